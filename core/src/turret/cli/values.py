"""Reading option values from text.

Owns: sizes, flags, lists and JSON as people write them on a command line, in the environment and in YAML. Knows nothing
of which options exist.
"""

from __future__ import annotations

import json
import re
from typing import Any

from turret.config import Option
from turret.errors import ConfigError

__all__ = ["parse_flag", "parse_size", "read_value"]

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<suffix>[kmgtKMGT]?)")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def parse_size(text: str) -> int:
    """A count: `4096`, `1k` = 1000, `1K` = 1024, `1.5k` = 1500; raises `ValueError` with a sentence."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a count such as 4096, 4k (4000) or 4K (4096)")
    number, suffix = found["number"], found["suffix"]
    if not suffix:
        if "." in number:
            raise ValueError(f"{text!r} is not a whole number")
        return int(number)
    binary = suffix.isupper()
    if binary and "." in number:
        raise ValueError(f"{text!r}: fractions go with the decimal suffixes k, m, g, t only")
    value = float(number) * (1024 if binary else 1000) ** _POWERS[suffix.lower()]
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def parse_flag(text: str) -> bool:
    """A switch as text: 1/0, true/false, yes/no, on/off."""
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"{text!r} is neither true nor false")


def read_value(option: Option, value: Any, origin: str) -> Any:
    """The value of `option` from text or YAML; raises `ConfigError` that names `origin`."""
    if value is None:
        return None
    if str(value) in option.missing:
        raise ConfigError(f"{origin}: {option.missing[str(value)]}", option.name)
    try:
        read = _read(option, value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{origin}: {error}", option.name) from error
    _check_choice(option, read, origin)
    return read


def _read(option: Option, value: Any) -> Any:
    if str(value) in option.words:
        return option.words[str(value)]
    if option.kind == "flag":
        return value if isinstance(value, bool) else parse_flag(str(value))
    if option.kind in ("int", "size"):
        return _whole(option, value)
    if option.kind == "float":
        return float(value)
    if option.kind == "list":
        return _read_list(value)
    if option.kind == "json":
        return _read_json(option, value)
    return str(value)


def _whole(option: Option, value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise ValueError(f"{value!r} is not a whole number")
    if isinstance(value, int):
        return value
    if option.kind == "size":
        return parse_size(str(value))
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


def _read_list(value: Any) -> list[str]:
    """A YAML or JSON list, or one string."""
    if isinstance(value, str):
        value = json.loads(value) if value.startswith("[") else [value]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is not a list")
    return [str(item) for item in value]


def _read_json(option: Option, value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"{value!r} is not JSON") from None
    wanted = type(option.default)
    if option.default is not None and not isinstance(value, wanted):
        raise ValueError(f"{json.dumps(value)} is not a JSON {'object' if wanted is dict else 'list'}")
    return value


def _check_choice(option: Option, value: Any, origin: str) -> None:
    if (complaint := option.complaint(value)) is not None:
        raise ConfigError(f"{origin}: {complaint}", option.name)
