"""Option metadata: what a field of a section is called on a command line and how its text is read.

Owns: `Option`, `opt()` to declare one beside its field, `option_table()` to walk them. Knows nothing of argparse.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turret.errors import ConfigError

__all__ = ["Option", "check_value", "opt", "option_table", "require"]


def require(ok: bool, option: str, sentence: str) -> None:
    """Raise `ConfigError` about `option` unless `ok`."""
    if not ok:
        raise ConfigError(f"--{option} {sentence}", option)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as users write it.

    `name` is the long option without dashes (`max-model-len`); `field` the attribute of its section; `kind` one of
    `str int float size flag json list`; `size` reads 1k = 1000 and 1K = 1024; `choices` restricts it;
    `negatable` flags have a `--no-` form. `short` lists one-dash spellings. `missing` are values that users of vLLM
    know and that this version does not have, each with the sentence that says so. `words` stand for values that are
    written another way. A `bare` option may stand without its value, which then is None.
    """

    name: str
    section: str
    field: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    negatable: bool = False
    short: tuple[str, ...] = ()
    metavar: str | None = None
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    words: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bare: bool = False

    def complaint(self, value: Any) -> str | None:
        """Why `value` is none that the option takes, its type aside; None when it is fine."""
        if str(value) in self.missing:
            return self.missing[str(value)]
        if self.choices and value not in self.choices:
            return f"{value!r} is not one of {', '.join(self.choices)}"
        return None


def opt(default: Any, help: str, **meta: Any) -> Any:
    """A dataclass field with option metadata.

    `meta` may hold `name`, `kind`, `choices`, `negatable`, `short`, `metavar`, `missing`, `words`, `bare`; name and
    kind follow from the field when absent.
    """
    metadata = {"option": {"help": help, **meta}}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def option_table(config_type: type) -> list[Option]:
    """All options of a config: one per field declared with `opt` in each of its sections, in declaration order."""
    table: list[Option] = []
    for section, section_type in typing.get_type_hints(config_type).items():
        if not dataclasses.is_dataclass(section_type):
            continue
        hints = typing.get_type_hints(section_type)
        for f in dataclasses.fields(section_type):
            meta = f.metadata.get("option")
            if meta is None:
                continue
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            table.append(_option(section, f.name, hints[f.name], default, meta))
    return table


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "size": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "flag": ((bool,), "true or false"),
    "list": ((list, tuple), "a list"),
    "json": ((dict, list), "an object or a list"),
}


def check_value(option: Option, value: Any) -> None:
    """Raise `ConfigError` unless `value`, which a program gave, has the option's type and is one of its choices."""
    types_, said = _TYPES[option.kind]
    fits = isinstance(value, types_) and (bool in types_ or not isinstance(value, bool))
    if fits and option.kind == "json":
        fits = isinstance(value, type(option.default))
        said = "an object" if isinstance(option.default, dict) else "a list"
    if not fits:
        raise ConfigError(f"--{option.name} must be {said}, got {value!r}", option.name)
    if (complaint := option.complaint(value)) is not None:
        raise ConfigError(f"--{option.name}: {complaint}", option.name)


def _option(section: str, name: str, hint: Any, default: Any, meta: dict[str, Any]) -> Option:
    kind = meta.get("kind") or _kind_of(hint)
    return Option(
        name=meta.get("name", name.replace("_", "-")),
        section=section,
        field=name,
        kind=kind,
        default=default,
        help=meta["help"],
        choices=tuple(meta.get("choices", ())),
        negatable=meta.get("negatable", kind == "flag" and default is not False),
        short=tuple(meta.get("short", ())),
        metavar=meta.get("metavar"),
        missing=meta.get("missing", {}),
        words=meta.get("words", {}),
        bare=meta.get("bare", False),
    )


def _kind_of(hint: Any) -> str:
    """Reader for a type hint; `X | None` reads as X."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        args = [a for a in typing.get_args(hint) if a is not type(None)]
        hint = args[0]
    origin = typing.get_origin(hint) or hint
    kinds = {bool: "flag", int: "int", float: "float", str: "str", list: "list", dict: "json"}
    return kinds[origin]
