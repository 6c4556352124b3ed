"""OpenAI's Responses API for turret."""
