"""The section of structured output.

Owns: the keys of --structured-outputs-config and their checks. Knows no backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from turret.config.options import opt, require

__all__ = ["StructuredConfig"]

_OPTION = "structured-outputs-config"
_SWITCHES = ("disable_fallback", "disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning")
_NAMES: Mapping[str, str] = MappingProxyType({"guidance": "llguidance"})
_MISSING = ("outlines", "lm-format-enforcer")
_PARSERS: Mapping[str, str] = MappingProxyType(
    {"reasoning_parser": "--reasoning-parser", "reasoning_parser_plugin": "--reasoning-parser-plugin"})


@dataclass(frozen=True, slots=True)
class StructuredConfig:
    """Grammars for answers."""

    structured_outputs_config: dict[str, Any] = opt(
        {}, "Grammars: backend (auto, xgrammar, guidance or a plugin's name), disable_fallback, "
            "disable_any_whitespace, disable_additional_properties, enable_in_reasoning.", kind="json")

    def __post_init__(self) -> None:
        given = self.structured_outputs_config
        known = ("backend", *_SWITCHES, *_PARSERS)
        unknown = sorted(set(given) - set(known))
        require(not unknown, _OPTION, f"has no key {', '.join(unknown)}; it has {', '.join(known)}")
        for name in _SWITCHES:
            require(isinstance(given.get(name, False), bool), _OPTION, f"{name} must be true or false")
        for name, option in _PARSERS.items():
            require(given.get(name, "") in ("", None), _OPTION, f"{name}: name the parser with {option}")
        backend = given.get("backend", "auto")
        require(isinstance(backend, str) and bool(backend), _OPTION, "backend must be a name")
        require(backend not in _MISSING, _OPTION,
                f"there is no backend {backend} in this version; take xgrammar or guidance")

    @property
    def backend(self) -> str:
        """A plugin's name, or `auto`."""
        named = str(self.structured_outputs_config.get("backend", "auto"))
        return _NAMES.get(named, named)

    @property
    def disable_fallback(self) -> bool:
        """Only the first backend is asked."""
        return bool(self.structured_outputs_config.get("disable_fallback", False))

    @property
    def disable_any_whitespace(self) -> bool:
        """JSON is written without free white space."""
        return bool(self.structured_outputs_config.get("disable_any_whitespace", False))

    @property
    def disable_additional_properties(self) -> bool:
        """Objects hold only the properties that their schema names, unless it says otherwise."""
        return bool(self.structured_outputs_config.get("disable_additional_properties", False))

    @property
    def enable_in_reasoning(self) -> bool:
        """Grammars hold from the first token, reasoning or not."""
        return bool(self.structured_outputs_config.get("enable_in_reasoning", False))
