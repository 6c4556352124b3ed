"""Which parsers read the answers of a model: those the options name, or with `auto` those that know its chat template.

Owns: what `auto` means, and its sentences. Knows no format: manifests say which signs of a template are whose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turret.checkpoint import Checkpoint
from turret.config import Config
from turret.errors import ConfigError
from turret.plugins import Candidate, PluginHost, Selection
from turret.plugins.files import file_candidates
from turret.server.parts import AnswerParsers
from turret.text import read_template

__all__ = [
    "AUTO", "ChosenParsers", "add_parser_files", "choose_parsers", "recognised", "template_query", "template_text",
]

AUTO = "auto"
OPTIONS: Mapping[str, str] = {"tool_parser": "tool-call-parser", "reasoning_parser": "reasoning-parser"}
READS: Mapping[str, str] = {"tool_parser": "tool calls are", "reasoning_parser": "reasoning is"}


@dataclass(frozen=True, slots=True)
class ChosenParsers:
    """The parsers, loaded, and a line for the log of each that was chosen here."""

    parsers: AnswerParsers
    notes: tuple[str, ...] = ()


def add_parser_files(host: PluginHost, tools: str | None, reasoning: str | None) -> None:
    """Make the parsers that files define known to the host; raises `ConfigError` for files that are of no use."""
    if tools:
        host.add(file_candidates(tools, "tool_parser", "tool-parser-plugin"))
    if reasoning:
        host.add(file_candidates(reasoning, "reasoning_parser", "reasoning-parser-plugin"))


def choose_parsers(config: Config, host: PluginHost, checkpoint: Checkpoint) -> ChosenParsers:
    """What the options ask for; raises `ConfigError` where `auto` does not recognise the model's template, and
    `PluginError` for a parser that is not there or broken."""
    notes: list[str] = []

    def one(kind: str, name: str | None) -> tuple[str, Any]:
        if not name:
            return "", None
        found = _recognised(config, host, checkpoint, kind, notes) if name == AUTO else None
        chosen = host.select(kind, key=name, explicit=name).require() if found is None else found
        return chosen.label, host.load(chosen)

    reasoning = one("reasoning_parser", config.server.reasoning_parser)
    tools = one("tool_parser", config.server.tool_call_parser)
    return ChosenParsers(AnswerParsers(reasoning[1], tools[1], reasoning[0], tools[0]), tuple(notes))


def template_text(checkpoint: Checkpoint, chat_template: str | None) -> str:
    """The templates by which conversations are rendered, one after the other; empty where there is none."""
    templates = checkpoint.chat_templates
    if chat_template is not None:
        return templates[chat_template] if chat_template in templates else read_template(chat_template)
    return "\n".join(templates[name] for name in ("default", "tool_use") if name in templates)


def template_query(template: str) -> dict[str, str]:
    """The question that parsers' manifests answer."""
    return {"template": template}


def recognised(selection: Selection) -> Candidate | None:
    """Who knows the template that was asked about; a plugin that says nothing of templates does not count."""
    chosen = selection.chosen
    known = chosen is not None and chosen.provided is not None and "template" in chosen.provided.capabilities
    return chosen if known else None


def _recognised(
    config: Config, host: PluginHost, checkpoint: Checkpoint, kind: str, notes: list[str]
) -> Candidate:
    option = OPTIONS[kind]
    template = template_text(checkpoint, config.model.chat_template)
    if not template:
        raise ConfigError(
            f"--{option} auto looks at the chat template, and {checkpoint.name} has none: name a parser, or give "
            "--chat-template", option,
        )  # fmt: skip
    chosen = recognised(host.select(kind, template_query(template)))
    if chosen is None:
        raise ConfigError(
            f"--{option} auto: no {kind} plugin recognises the chat template of {checkpoint.name}; name one "
            f"(`turret plugins list --kind {kind}`), or leave the option out", option,
        )  # fmt: skip
    notes.append(f"{READS[kind]} read by {chosen.identity}, which knows the marks of this chat template")
    return chosen
