"""Reasoning parsers for turret: a pair of tags and a table of model families, and the two formats made of frames."""
