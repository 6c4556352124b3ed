"""Where option values come from: the command line beats the file, the file beats the environment, that the defaults.

Owns: the merge, and the errors for names that do not exist or are refused. Knows nothing of what options mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turret.cli.values import read_value
from turret.config import Config, Option, option_table
from turret.config.refused import refusal, refused_names
from turret.errors import ConfigError

__all__ = ["ENV_PREFIX", "OptionSet", "read_environment", "read_file"]

ENV_PREFIX = "TURRET_"


class OptionSet:
    """The options of a `Config`, by the names people use."""

    def __init__(self) -> None:
        self.options: list[Option] = option_table(Config)
        self._by_name = {o.name: o for o in self.options}
        self._by_short = {short: o for o in self.options for short in o.short}

    def find(self, name: str) -> Option | None:
        """An option by long name (dashes or underscores) or by its one-dash spelling."""
        dashed = name.replace("_", "-")
        return self._by_name.get(dashed) or self._by_short.get(name)

    def require(self, name: str, value: Any, origin: str) -> Option | None:
        """The option, or None for a refused one whose value asks for nothing; else raises `ConfigError`."""
        option = self.find(name)
        if option is not None:
            return option
        dashed = name.replace("_", "-")
        if (known := refusal(dashed)) is not None:
            if known.asks_for_nothing(value):
                return None
            raise ConfigError(f"{origin}: {known.sentence}", dashed)
        close = difflib.get_close_matches(dashed, self._by_name, n=1)
        hint = f"did you mean {close[0]}?" if close else "`turret serve --help` lists the options"
        raise ConfigError(f"{origin}: there is no such option; {hint}", dashed)


def read_file(path: str, known: OptionSet) -> dict[str, Any]:
    """Values by field name from a YAML file whose keys are long option names."""
    import yaml

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}", "config") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path} is not valid YAML: {error}", "config") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"--config {path} must hold a mapping from option names to values", "config")
    values: dict[str, Any] = {}
    for key, value in loaded.items():
        origin = f"{path}: {key}"
        if (option := known.require(str(key), value, origin)) is not None:
            values[option.field] = read_value(option, value, origin)
    return values


def read_environment(environ: Mapping[str, str], known: OptionSet) -> dict[str, Any]:
    """Values by field name from TURRET_<OPTION> variables; other variables with the prefix are somebody else's."""
    values: dict[str, Any] = {}
    for option in known.options:
        name = ENV_PREFIX + option.name.replace("-", "_").upper()
        text = environ.get(name)
        if text:
            values[option.field] = read_value(option, text, name)
    for refused in refused_names():
        name = ENV_PREFIX + refused.replace("-", "_").upper()
        if environ.get(name):
            known.require(refused, environ[name], name)
    return values
