"""Chat templates of real models: `auto` finds their parsers, and what a template writes of a turn is read back.

TURRET_TEMPLATES names a folder of `*.jinja` files; the source archive of llama-cpp-python on PyPI has seventy of them,
in vendor/llama.cpp/models/templates. Without it there is nothing to try.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from turret.compose.hosts import plugin_host
from turret.compose.parser_choice import recognised, template_query
from turret.config import Config
from turret.contracts import ContentDelta, ParserContext, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from turret.errors import ConfigError, RequestError
from turret.text import ChatOptions, ChatTemplate

FOLDER = os.environ.get("TURRET_TEMPLATES", "")
FILES = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []
pytestmark = pytest.mark.skipif(not FILES, reason="TURRET_TEMPLATES names no folder of templates")

PROPERTIES = {
    "city": {"type": "string", "description": "where"}, "days": {"type": "integer", "description": "how long"},
    "metric": {"type": "boolean", "description": "units"},
    "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
}  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather", "description": "Weather.",
            "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]},
        },
    },
]  # fmt: skip
ARGUMENTS = {"city": 'Łódź "x" <b>', "days": 2, "metric": True, "tags": ["a", "[b]"]}
THOUGHT = "Let me see."
UNKNOWN = {
    "fireworks-ai-llama-3-firefunction-v2": "its tools are a variable of another name",
    "ibm-granite-granite-3.3-2B-Instruct": "it does not write calls of earlier turns",
    "LFM2-8B-A1B": "it does not write calls of earlier turns",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "it does not write calls without an answer",
    "llama-cpp-deepseek-r1": "it needs an engine that prints generators",
    "Kimi-K2-Instruct": "it appends to lists, which the sandbox refuses",
    "Kimi-K2-Thinking": "it appends to lists, which the sandbox refuses",
}


def turns() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The same turn as templates want it: arguments as text or not, content null or empty, with reasoning or not."""
    found = []
    for thinks in (True, False):
        for as_text in (False, True):
            for content in (None, ""):
                arguments = json.dumps(ARGUMENTS, ensure_ascii=False) if as_text else ARGUMENTS
                function = {"name": "get_weather", "arguments": arguments}
                turn: dict[str, Any] = {"role": "assistant", "content": content}
                turn["tool_calls"] = [{"id": "call00000", "type": "function", "function": function}]
                if thinks:
                    turn |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), THOUGHT)
                found.append((turn, {"enable_thinking": thinks, "thinking": thinks}))
    return found


def written(template: ChatTemplate, turn: dict[str, Any], kwargs: dict[str, Any]) -> tuple[str, str]:
    """The prompt and what the turn adds to it, from the last mark on that both share."""
    user = [{"role": "user", "content": "Weather?"}]
    options = {"tools": TOOLS, "kwargs": kwargs}
    prompt = template.render(user, ChatOptions(add_generation_prompt=True, **options))
    whole = template.render([*user, turn], ChatOptions(add_generation_prompt=False, **options))
    length = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    shared = prompt[:length]
    cut = shared.rfind("<") if "<" in shared and ">" not in shared[shared.rfind("<") :] else len(shared)
    return shared[:cut], whole[cut:]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_call_is_read_back(path: Path) -> None:
    source = path.read_text()
    host = plugin_host(Config().plugins, frozenset({"front"}))
    tools = recognised(host.select("tool_parser", template_query(source)))
    if tools is None:
        pytest.skip("no tool parser knows it")
    if path.stem in UNKNOWN:
        pytest.skip(UNKNOWN[path.stem])
    reasoning = recognised(host.select("reasoning_parser", template_query(source)))
    template, tried = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}), []
    for turn, kwargs in turns():
        try:
            prompt, answer = written(template, turn, kwargs)
        except (RequestError, ConfigError) as error:
            tried.append(str(error))
            continue
        context = ParserContext(tuple(TOOLS), tuple(kwargs.items()), prompt)
        thought, rest = "", answer
        if reasoning is not None:
            session = host.load(reasoning).open(context)
            events = [*session.feed(answer, []), *session.finish()]
            thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
            rest = "".join(event.text for event in events if isinstance(event, ContentDelta))
        session = host.load(tools).open(context)
        events = [*session.feed(rest, []), *session.finish()]
        names = [event.name for event in events if isinstance(event, ToolCallStart)]
        text = "".join(event.text for event in events if isinstance(event, ToolArgumentsDelta))
        content = "".join(event.text for event in events if isinstance(event, ContentDelta))
        # Special tokens that end a turn are not text where a model runs.
        content = re.sub(r"<[^<>]*>|\[e~\[", "", content).strip()
        called = names == ["get_weather"] and json.loads(text) == ARGUMENTS
        if called and not content and thought.strip() in ("", THOUGHT):
            return
        tried.append(f"{answer!r} was read as {names} {text} {content!r} {thought!r}")
    raise AssertionError("\n".join(tried))
