"""Plugin options: `--plugin-config kind:name.key=value`, checked against the schema in the plugin's manifest.

Owns their syntax and validation. Knows nothing of what an option does.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from turret.errors import ConfigError
from turret.plugins.candidate import Candidate
from turret.plugins.registry import Registry

__all__ = ["Setting", "check_known", "options_for", "parse_settings"]

OPTION = "--plugin-config"


@dataclass(frozen=True, slots=True)
class Setting:
    """One parsed item: whose option (`kind:name`), which key (dots reach into tables), and the text given."""

    label: str
    path: tuple[str, ...]
    text: str


def parse_settings(items: Iterable[str]) -> tuple[Setting, ...]:
    """Parse `kind:name.key=value` items; raises ConfigError that shows the form."""
    settings = []
    for item in items:
        left, equals, text = item.partition("=")
        kind, colon, rest = left.strip().partition(":")
        name, *path = rest.split(".")
        if not (equals and colon and kind and name and path and all(path)):
            raise ConfigError(f"{OPTION} reads kind:name.key=value, got {item!r}", option=OPTION)
        settings.append(Setting(f"{kind}:{name}", tuple(path), text.strip()))
    return tuple(settings)


def check_known(settings: Iterable[Setting], registry: Registry) -> None:
    """Every setting must be for a plugin that is installed; raises ConfigError with the nearest names."""
    labels = sorted({item.label for item in registry.candidates})
    for setting in settings:
        if setting.label not in labels:
            near = difflib.get_close_matches(setting.label, labels, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `turret plugins list`"
            raise ConfigError(f"{OPTION} {setting.label}: no such plugin is installed; {hint}", option=OPTION)


def options_for(candidate: Candidate, settings: Iterable[Setting]) -> dict[str, Any]:
    """The candidate's options with its schema's defaults filled in; raises ConfigError when they do not fit.

    Without a manifest there is no schema, and options reach the plugin as they were written.
    """
    mine = [setting for setting in settings if setting.label == candidate.label]
    schema = candidate.provided.options if candidate.provided else {}
    if schema is None:
        if mine:
            raise ConfigError(f"{OPTION} {candidate.label}: {candidate.distribution} takes no options", option=OPTION)
        return {}
    properties: Mapping[str, Any] = schema.get("properties", {})
    options = {name: part["default"] for name, part in properties.items() if "default" in part}
    for setting in mine:
        _put(options, setting, properties)
    if mine:
        _validate(candidate, options, schema)
    return options


def _put(options: dict[str, Any], setting: Setting, properties: Mapping[str, Any]) -> None:
    part: Mapping[str, Any] = {"properties": properties}
    table = options
    for key in setting.path[:-1]:
        part = part.get("properties", {}).get(key, {})
        below = table.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{OPTION} {setting.label}: {key} is no table", option=OPTION)
        table = below
    wanted = part.get("properties", {}).get(setting.path[-1], {}).get("type")
    table[setting.path[-1]] = setting.text if wanted == "string" else _value(setting.text)


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _validate(candidate: Candidate, options: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    # Imported here, against the rule of imports at the top: it costs more than the rest of this room together, and
    # most runs set no plugin option.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        remedy = f"report it to the authors of {candidate.distribution}"
        raise candidate.broken("options", f"its options schema is invalid: {exc.message}", remedy).error() from exc
    closed = {"additionalProperties": False, **schema}
    faults = sorted(Draft202012Validator(closed).iter_errors(options), key=lambda fault: list(map(str, fault.path)))
    if faults:
        told = "; ".join(f"{'.'.join(map(str, fault.path)) or 'options'}: {fault.message}" for fault in faults)
        raise ConfigError(f"{OPTION} {candidate.label} ({candidate.distribution}): {told}", option=OPTION)
