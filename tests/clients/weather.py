"""The tools that clients are given, and what these return."""

from __future__ import annotations

__all__ = ["FUNCTION", "NOW", "SCHEMA", "forecast", "half_past"]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": SCHEMA},
}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def forecast(city: str, days: int) -> str:
    """A bad one."""
    return f"rain in {city} for {days} days"


def half_past() -> str:
    """Always the same."""
    return "12:30"
