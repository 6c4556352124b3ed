"""Checks that a template's operation will not build something huge, before it is done.

Owns: the size rules for literals, operators, string methods and filters. Knows nothing of jinja2's environment.

Small values that share parts can print as (or take as long to compare as) enormous ones: twenty-five times
`x = [x, x]` is a tree of 33 million leaves. So containers are measured with everything in them, shared parts counted as
often as they would be visited, wherever a container is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, KeysView, Mapping, Sequence, ValuesView
from functools import wraps
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined

__all__ = ["MAX_SIZE", "check_call", "check_filter", "check_operator", "check_printed", "check_size"]

MAX_SIZE = 8_000_000
"""Characters that one value may have or print as."""
_MAX_ITEMS = 200_000
_MAX_BITS = 4096
_WIDE_FIELD = re.compile(r"\d{5}|%[^a-zA-Z%]*\*|\{[^{}]+\{")  # also widths that are themselves arguments
_PADDING = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})
_Sized = (str, bytes, list, tuple)
_PRINTABLE = (str, bytes, int, float, list, tuple, dict, type(None), Undefined)


def check_size(value: Any) -> Any:
    """`value` itself; SecurityError when it holds more than MAX_SIZE characters or 200 thousand items."""
    if isinstance(value, str):
        if len(value) > MAX_SIZE:
            raise _too_big()
    elif isinstance(value, (list, tuple, dict)):
        _Measure().take(value, 0)
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise _too_big()
    return value


def check_printed(value: Any) -> Any:
    """`value` itself, which is about to become text; only plain data may, since other objects print what they hold."""
    if isinstance(value, (KeysView, ValuesView, ItemsView)):
        check_size(list(value))
    elif not isinstance(value, _PRINTABLE):
        raise SecurityError(f"the template prints a {type(value).__name__}")
    return check_size(value)


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse `left operator right` when its result would be huge."""
    check_size(left)
    check_size(right)
    if operator == "+" and isinstance(left, _Sized) and isinstance(right, _Sized):
        _require(len(left) + len(right))
    elif operator == "*":
        if isinstance(left, _Sized) and isinstance(right, int):
            _require(len(left) * right)
        elif isinstance(right, _Sized) and isinstance(left, int):
            _require(len(right) * left)
        elif isinstance(left, int) and isinstance(right, int):
            _require_bits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _require_bits(left.bit_length() * max(right, 0))
    elif operator == "%" and isinstance(left, str):
        _check_format(left, right)


def check_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a string method whose result would be huge."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if name in ("format", "format_map"):
        # jinja2 replaces these methods by wrappers of its own; the format string is then out of reach of `__self__`.
        owner = owner if isinstance(owner, str) else getattr(function, "__wrapped__", None)
        owner = getattr(owner, "__self__", owner)
        if isinstance(owner, str):
            _check_format(owner, (*args, *kwargs.values()))
        return
    if not isinstance(owner, (str, bytes)):
        return
    if name in _PADDING:
        # expandtabs pads at every tab, the others once; one bound serves both.
        for value in (*args, *kwargs.values()):
            if isinstance(value, int):
                _require(value * max(len(owner), 1) if name == "expandtabs" else value)
    elif name == "replace":
        _check_replace(owner, *args[:2])
    elif name == "join" and args:
        _check_join(owner, args[0])
    elif name == "translate":
        raise SecurityError("the method translate is not available in chat templates")


def check_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The jinja2 filter `function` with a check of what it would build; the filter itself if it builds nothing."""
    before = _FILTER_CHECKS.get(name)
    if before is None and name not in ("sum", "list"):
        return function

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        # Filters that want the environment or context get it first; the value follows.
        passed = args[1:] if hasattr(function, "jinja_pass_arg") else args
        if before is not None:
            before(*passed, **kwargs)
        return check_size(function(*args, **kwargs))

    return checked


def _too_big() -> SecurityError:
    return SecurityError(f"the template builds a value of more than {MAX_SIZE} characters or {_MAX_ITEMS} items")


def _require(size: int) -> None:
    if size > MAX_SIZE:
        raise _too_big()


def _require_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise SecurityError("the template computes a number of more than a thousand digits")


class _Measure:
    """Walks a value as printing it would, and gives up when that is too much."""

    __slots__ = ("characters", "items")

    def __init__(self) -> None:
        self.characters, self.items = MAX_SIZE, _MAX_ITEMS

    def take(self, value: Any, depth: int) -> None:
        self.items -= 1
        if isinstance(value, (str, bytes)):
            self.characters -= len(value)
        if self.items < 0 or self.characters < 0:
            raise _too_big()
        if depth > 100:
            raise SecurityError("the template nests values more than 100 deep")
        if isinstance(value, (list, tuple, KeysView, ValuesView, ItemsView)):
            for item in value:
                self.take(item, depth + 1)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.take(key, depth + 1)
                self.take(item, depth + 1)


def _check_format(pattern: str, values: Any) -> None:
    if _WIDE_FIELD.search(pattern):
        raise SecurityError("a format with a field of more than 9999 characters")
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, tuple) else (values,):
        check_printed(value)
    _require(len(pattern) + (pattern.count("%") + pattern.count("{")) * 10_000)


def _check_replace(text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    text, old, new = (str(check_printed(v)) for v in (text, old, new))
    _require(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _check_join(separator: Any, items: Any = (), *_: Any, **__: Any) -> None:
    if isinstance(items, (list, tuple, str)):
        check_size(items)
        _require(len(str(check_printed(separator))) * len(items))


def _check_join_filter(items: Any, d: Any = "", *_: Any, **__: Any) -> None:
    _check_join(d, items)


def _check_indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = width if isinstance(width, int) else len(str(check_printed(width)))
    check_printed(text)
    _require(len(str(text)) + size * (str(text).count("\n") + 1))


def _check_format_filter(pattern: Any, *args: Any, **kwargs: Any) -> None:
    _check_format(str(check_printed(pattern)), (*args, *kwargs.values()))


def _check_count(_: Any, count: Any = 1, fill_with: Any = None, **__: Any) -> None:
    check_size(fill_with)
    if isinstance(count, int):
        _require(count)


def _check_value(value: Any, *_: Any, **__: Any) -> None:
    check_printed(value)


_FILTER_CHECKS: Mapping[str, Callable[..., None]] = {
    "replace": _check_replace,
    "join": _check_join_filter,
    "indent": _check_indent,
    "format": _check_format_filter,
    "batch": _check_count,
    "slice": _check_count,
    **dict.fromkeys(
        ("string", "upper", "lower", "trim", "title", "capitalize", "wordcount", "striptags", "truncate", "urlencode",
         "e", "escape", "safe"), _check_value,
    ),
}  # fmt: skip
