"""Anthropic's Messages API for turret."""
