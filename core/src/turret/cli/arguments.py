"""The command line of `turret serve`: argv to option values.

Owns: argparse set-up from the option table, spellings (dashes or underscores, dotted JSON keys, `--no-` forms) and the
help page. Knows nothing of what options do.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from turret.cli.sources import ENV_PREFIX, OptionSet, read_environment, read_file
from turret.cli.values import read_value
from turret.config import Option
from turret.errors import ConfigError

__all__ = ["read_options"]

_TITLES = {
    "model": "model",
    "load": "loading weights",
    "cache": "KV cache",
    "scheduler": "scheduler",
    "parallel": "processes and devices",
    "device": "hardware",
    "plugins": "plugins",
    "server": "HTTP server",
    "tls": "TLS",
    "observability": "logs, metrics and traces",
    "structured": "structured output",
}
_LONG = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?P<path>(?:\.[\w-]+)*)(?P<append>\+?)(?:=(?P<value>.*))?", re.DOTALL)
_SHORT = re.compile(r"-(?P<name>[A-Za-z]\w*)(?P<rest>[.=].*)?", re.DOTALL)


def read_options(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Option values by field name; the command line beats --config FILE, which beats the environment.

    Raises `ConfigError` with one sentence for an option that is unknown, refused or malformed.
    """
    known = OptionSet()
    plain, nested = _normalize(argv, known)
    given = vars(_parser(known).parse_args(plain))
    path = given.pop("config", None)
    positional = given.pop("model_tag", None)
    if positional is not None and given.setdefault("model", positional) != positional:
        raise ConfigError(f"the model is named twice: {positional} and --model {given['model']}", "model")
    by_field = {o.field: o for o in known.options}
    chosen = {field: _typed(by_field[field], value) for field, value in given.items()}
    merged = {**read_environment(environ, known), **(read_file(path, known) if path else {}), **chosen}
    for field, value in nested.items():
        merged[field] = _deep_merge(merged.get(field) or {}, value)
    return merged


def _typed(option: Option, value: Any) -> Any:
    return value if option.kind in ("flag", "list") else read_value(option, value, f"--{option.name}")


def _normalize(argv: Sequence[str], known: OptionSet) -> tuple[list[str], dict[str, Any]]:
    """argv with canonical option names, and the values of dotted JSON options by field."""
    plain: list[str] = []
    nested: dict[str, Any] = {}
    queue = list(argv)
    while queue:
        word = queue.pop(0)
        long, short = _LONG.fullmatch(word), _SHORT.fullmatch(word)
        if long is None:
            if short is None or short["name"] == "h" or known.find(short["name"]) is not None:
                plain.append(word)
            else:
                value = _next_value(queue)
                known.require(short["name"], short["rest"] or (True if value is None else value), word)
                _drop_value(queue)
            continue
        name = long["name"].replace("_", "-")
        if name in ("help", "config"):
            plain.append(word)
        elif long["path"] or long["append"]:
            value = long["value"] if long["value"] is not None else _take(queue, word)
            _put(nested, known, long, value)
        else:
            plain += _spelled(name, long["value"], known, queue)
    return plain, nested


def _spelled(name: str, value: str | None, known: OptionSet, queue: list[str]) -> list[str]:
    """One option as argparse knows it; nothing for a refused one whose value asks for nothing."""
    positive = name.removeprefix("no-")
    if name != positive and known.find(name) is None:
        return [f"--{name}"] if known.require(positive, False, f"--{name}") else []
    given = value if value is not None else _next_value(queue)
    option = known.require(name, True if given is None else given, f"--{name}")
    if option is None:
        if value is None:
            _drop_value(queue)
        return []
    if option.kind == "flag" and value is not None:
        on = read_value(option, value, f"--{name}")
        return [f"--{name}"] if on else [f"--no-{name}"] if option.negatable else []
    return [f"--{name}" if value is None else f"--{name}={value}"]


def _next_value(queue: list[str]) -> str | None:
    return queue[0] if queue and not queue[0].startswith("-") else None


def _drop_value(queue: list[str]) -> None:
    if _next_value(queue) is not None:
        queue.pop(0)


def _take(queue: list[str], word: str) -> str:
    if not queue:
        raise ConfigError(f"{word} needs a value")
    return queue.pop(0)


def _put(nested: dict[str, Any], known: OptionSet, found: re.Match[str], text: str) -> None:
    """`--x.a.b V` sets a key of a JSON option, `--x.list+ V` appends to a list in it."""
    name = found["name"].replace("_", "-")
    option = known.require(name, {}, f"--{name}")
    if option is None or option.kind != "json" or not isinstance(option.default, dict):
        raise ConfigError(f"--{name} is not a JSON object, so it has no keys to set with dots", name)
    keys = found["path"].strip(".").split(".")
    at = nested.setdefault(option.field, {})
    for key in keys[:-1]:
        at = at.setdefault(key, {})
    value = _json_or_text(text)
    if found["append"]:
        at.setdefault(keys[-1], []).append(value)
    else:
        at[keys[-1]] = value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _deep_merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _deep_merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


class _Parser(argparse.ArgumentParser):
    """Complains in one line instead of printing a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; `turret serve --help` lists the options")


def _parser(known: OptionSet) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="turret serve",
        usage="turret serve [MODEL] [OPTIONS]",
        description="Serve a model over HTTP. Without a model, the embedded demo model.",
        epilog="Sizes read 1k as 1000 and 1K as 1024. JSON options take dotted keys: --hf-overrides.rope_theta 1e6. "
        f"Every option can be set as {ENV_PREFIX}<OPTION> in the environment or as a key of the --config file.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("model_tag", nargs="?", metavar="MODEL", help="directory, .gguf file, hub id, or 'demo'")
    parser.add_argument("--config", metavar="FILE", help="YAML file with options; the command line beats it")
    groups = {section: parser.add_argument_group(title) for section, title in _TITLES.items()}
    for option in known.options:
        _add(groups[option.section], option)
    return parser


def _add(group: Any, option: Option) -> None:
    names = [*(f"-{short}" for short in option.short), f"--{option.name}"]
    text = option.help.replace("%", "%%")
    settings: dict[str, Any] = {"dest": option.field}
    if option.kind == "flag":
        if option.negatable:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["action"] = "store_true"
        group.add_argument(*names, help=_with_default(text, option), **settings)
        return
    if option.kind == "list":
        settings |= {"nargs": "+", "action": "extend"}
    if option.bare:
        settings |= {"nargs": "?", "const": None}
    settings["metavar"] = option.metavar or ("{" + ",".join(option.choices) + "}" if option.choices else _hint(option))
    group.add_argument(*names, help=_with_default(text, option), **settings)


def _hint(option: Option) -> str:
    return {"int": "N", "float": "X", "size": "N", "json": "JSON", "list": "TEXT"}.get(option.kind, "TEXT")


def _with_default(text: str, option: Option) -> str:
    if option.default in (None, False, [], {}):
        return text
    shown = str(option.default).lower() if isinstance(option.default, bool) else option.default
    return f"{text} (default: {shown})".replace("%%", "%").replace("%", "%%")
