"""Does what a manifest declares cover a query? A generic match of names, without importing the plugin.

Owns the meaning of a capability's shape (list, flag, range, word). Knows no kind's vocabulary: the query's facts and
the manifest's keys meet by name, `head_size` being covered by `head_size` or `head_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from turret.plugins.verdict import Verdict

__all__ = ["covers", "facts_of", "judge_capabilities", "signs_of"]

ANY = "*"
SIGNS = ("contains", "lacks")
_SHOWN = 100
"""Characters of a fact, or of a capability, that a reason shows."""


def facts_of(query: object) -> Mapping[str, object]:
    """What a query asks for, by name: a mapping, the fields of a dataclass or msgspec struct; nothing otherwise."""
    if isinstance(query, Mapping):
        return {str(key): _plain(value) for key, value in query.items()}
    names: Iterable[str] = getattr(query, "__struct_fields__", ())
    if is_dataclass(query):
        names = [field.name for field in fields(query)]
    return {name: _plain(getattr(query, name)) for name in names}


def judge_capabilities(capabilities: Mapping[str, object], query: object) -> Verdict:
    """Match a query's facts against declared capabilities; facts that the manifest does not mention pass."""
    refusals = []
    for name, fact in facts_of(query).items():
        for key in (name, f"{name}s"):
            if key in capabilities and not covers(capabilities[key], fact):
                refusals.append(f"{name} = {_shown(fact)} is outside the declared {key} = {_shown(capabilities[key])}")
    return Verdict.no(*refusals) if refusals else Verdict.yes()


def covers(capability: object, fact: object) -> bool:
    """Whether one capability covers one fact. None asks for nothing.

    A list covers its members, a table {min, max, multiple_of} the numbers within, `false` only facts that are false,
    `true` and "*" everything, any other value itself. A table {contains, lacks} covers texts in which all of the
    strings of the first stand and none of the second; a list of such tables those that any of them covers.
    """
    if fact is None or capability is True or capability == ANY:
        return True
    if capability is False:
        return not fact
    if isinstance(fact, (list, tuple, set, frozenset)):
        return all(covers(capability, item) for item in fact)
    if isinstance(capability, (list, tuple)):
        return ANY in capability or fact in capability or any(_shows(item, fact) for item in capability)
    if _has_signs(capability):
        return _shows(capability, fact)
    if isinstance(capability, Mapping):
        return _in_range(capability, fact)
    return capability == fact


def signs_of(capability: object, fact: object) -> int:
    """How many signs of a text a capability that covers it names: the more, the closer it is to that text."""
    tables = capability if isinstance(capability, (list, tuple)) else [capability]
    return max((len(_strings(one, "contains")) for one in tables if _shows(one, fact)), default=0)


def _has_signs(capability: object) -> bool:
    return isinstance(capability, Mapping) and any(key in capability for key in SIGNS)


def _shows(capability: object, fact: object) -> bool:
    if not _has_signs(capability) or not isinstance(fact, str):
        return False
    found = [all(sign in fact for sign in _strings(capability, "contains"))]
    found += [sign not in fact for sign in _strings(capability, "lacks")]
    return all(found)


def _strings(capability: object, key: str) -> list[str]:
    return [str(sign) for sign in capability.get(key, ())] if isinstance(capability, Mapping) else []


def _in_range(table: Mapping[str, object], fact: object) -> bool:
    if not isinstance(fact, (int, float)):
        return False
    low, high, step = (table.get(key) for key in ("min", "max", "multiple_of"))
    if isinstance(low, (int, float)) and fact < low:
        return False
    if isinstance(high, (int, float)) and fact > high:
        return False
    return not (isinstance(step, (int, float)) and fact % step != 0)


def _plain(value: object) -> object:
    """Facts are compared as manifests can write them: words, numbers, flags."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int, float, bool, list, tuple, set, frozenset)):
        return value
    return str(value)


def _shown(value: object) -> str:
    text = str(list(value)) if isinstance(value, (tuple, set, frozenset)) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
