"""Tools as a body of the Responses API declares them, and the functions that a chat completion knows them by.

Owns: namespaces, custom tools, tools left out, and choices between them. Knows nothing of items or of answers.

A custom tool takes plain text: the model is shown a function with the one argument `input`. A function of a namespace
is shown under both names, joined. What a client offers beside its own tools and nobody here can run (a search of the
web, say) is left out, as if it had not been offered; the response echoes those that were shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turret.errors import RequestError

__all__ = ["Origin", "Toolbox", "flat_name"]

LEFT_OUT = ("web_search", "image_generation", "tool_search")
"""How types of tools begin that clients offer without being asked to."""
INPUT = "input"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a function was declared as."""

    name: str
    namespace: str | None = None
    custom: bool = False


def flat_name(name: str, namespace: str | None) -> str:
    """The one name of a function that may stand in a namespace."""
    return name if not namespace else f"{namespace}__{name}"


@dataclass(slots=True)
class Toolbox:
    """`functions` are tools of a chat completion, `origins` say by name what each was declared as, and `shown` are the
    declarations behind them."""

    functions: list[dict[str, Any]] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    shown: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, tools: Sequence[Mapping[str, Any]]) -> Toolbox:
        """Raises RequestError for a tool that is neither the client's own nor one that may be left out."""
        box = cls()
        own = [not str(tool.get("type")).startswith(LEFT_OUT) for tool in tools]
        for place, tool in enumerate(tools):
            if own[place] or not any(own):
                box.shown.append(dict(tool))
                box._add(tool, f"tools.{place}", None)
        return box

    def origin(self, name: str) -> Origin:
        """What a call of the model's is a call of; a name that was never declared is a function's."""
        return self.origins.get(name, Origin(name))

    def choice(self, choice: str | Mapping[str, Any]) -> Any:
        """`tool_choice` of a chat completion. With allowed tools, the others go. Raises RequestError."""
        if isinstance(choice, str):
            return choice
        kind = choice.get("type")
        if kind == "allowed_tools":
            wanted = [self._chosen(one) for one in choice.get("tools") or ()]
            self.functions[:] = [one for one in self.functions if one["function"]["name"] in wanted]
            return choice.get("mode", "auto")
        return {"type": "function", "function": {"name": self._chosen(choice)}}

    def _chosen(self, choice: Mapping[str, Any]) -> str:
        name = choice.get("name")
        if choice.get("type") not in ("function", "custom") or not isinstance(name, str):
            raise RequestError(
                "tool_choice must be none, auto, required, {type: function or custom, name} or allowed_tools of those",
                "tool_choice",
            )
        return flat_name(name, choice.get("namespace"))

    def _add(self, tool: Any, where: str, namespace: str | None) -> None:
        kind = tool.get("type") if isinstance(tool, dict) else type(tool).__name__
        if kind == "namespace" and namespace is None:
            for place, inner in enumerate(tool.get("tools") or ()):
                self._add(inner, f"{where}.tools.{place}", _name(tool, where))
            return
        if kind not in ("function", "custom"):
            what = f"{kind} is a tool that OpenAI runs; give function or custom tools of your own"
            raise RequestError(f"{where}: {what}", f"{where}.type")
        name = _name(tool, where)
        function = _custom(tool) if kind == "custom" else _function(tool)
        function["name"] = flat_name(name, namespace)
        self.functions.append({"type": "function", "function": function})
        self.origins[function["name"]] = Origin(name, namespace, kind == "custom")


def _name(tool: Mapping[str, Any], where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where}.name must be text", f"{where}.name")
    return name


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tool[name] for name in ("description", "parameters", "strict") if tool.get(name) is not None}


def _custom(tool: Mapping[str, Any]) -> dict[str, Any]:
    """One argument of plain text. A grammar is told to the model; it is not enforced."""
    about, format = tool.get("description") or "", tool.get("format")
    if isinstance(format, Mapping) and format.get("type") == "grammar":
        about += f"\n\n{INPUT} follows this {format.get('syntax', '')} grammar:\n{format.get('definition', '')}"
    schema = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
    return {"description": about.strip(), "parameters": schema}
