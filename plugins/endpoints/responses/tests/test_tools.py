"""Tools of every kind: what the model is shown of them, and what a client gets of their calls."""

from __future__ import annotations

import json
from typing import Any

from turret.contracts import ChatFinish, ToolArgumentsDelta, ToolCallEnd, ToolCallStart

PATCH = {"type": "custom", "name": "patch", "description": "Change files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}}  # fmt: skip
SPAWN = {"type": "namespace", "name": "agents", "description": "Others.",
         "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}]}  # fmt: skip


def test_tools_of_every_kind_are_functions_to_the_model(new_bench: Any, translated: Any) -> None:
    """As a coding agent offers them: its own, a group, one that takes text, and one that nobody here can run."""
    own = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    search = {"type": "web_search", "external_web_access": True}
    made = translated(tools=[own, SPAWN, PATCH, search], tool_choice="auto")
    assert [tool["function"]["name"] for tool in made["tools"]] == ["f", "agents__spawn", "patch"]
    patch = made["tools"][2]["function"]
    assert patch["parameters"]["required"] == ["input"] and 'lark grammar:\nstart: "x"' in patch["description"]
    bench = new_bench()
    response = bench.sdk.responses.create(model="m", input="Hi", tools=[own, search])  # type: ignore[list-item]
    assert [tool.type for tool in response.tools] == ["function"]


def test_choices_among_tools(translated: Any) -> None:
    tools = [{"type": "function", "name": name} for name in "fg"] + [SPAWN]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    made = translated(tools=tools, tool_choice=allowed)
    assert [tool["function"]["name"] for tool in made["tools"]] == ["g"] and made["tool_choice"] == "required"
    made = translated(tools=tools, tool_choice={"type": "function", "name": "spawn", "namespace": "agents"})
    assert made["tool_choice"]["function"]["name"] == "agents__spawn"
    assert "tool_choice" not in translated(tool_choice="auto")


def test_calls_come_back_as_they_were_declared(new_bench: Any) -> None:
    arguments = '{"input": "*** Łódź\\n\\"\\ud83d\\ude00\\\\x"}'
    script = [
        ToolCallStart(0, "agents__spawn", "c0"), ToolArgumentsDelta(0, "{}"), ToolCallEnd(0),
        ToolCallStart(1, "patch", "c1"), *(ToolArgumentsDelta(1, letter) for letter in arguments), ToolCallEnd(1),
        ToolCallStart(2, "patch", "c2"), ToolArgumentsDelta(2, '{"text": "x"}'), ToolCallEnd(2),
        ChatFinish("tool_calls"),
    ]  # fmt: skip
    bench = new_bench(script)
    asked: dict[str, Any] = {"model": "m", "input": "Hi", "tools": [SPAWN, PATCH]}
    first = bench.sdk.responses.create(**asked)
    spawn, patch, strange = first.output
    assert spawn.type == "function_call" and (spawn.name, spawn.namespace) == ("spawn", "agents")
    text = '*** Łódź\n"😀\\x'
    assert patch.type == "custom_tool_call" and (patch.name, patch.input) == ("patch", text)
    assert strange.type == "custom_tool_call" and strange.input == '{"text": "x"}'
    with bench.sdk.responses.create(**asked, stream=True) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas[:-1]) == text and len(deltas) > 10 and deltas[-1] == strange.input
    done = [event.input for event in events if event.type == "response.custom_tool_call_input.done"]
    assert done == [text, strange.input]
    # The next turn shows the model what it wrote.
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}
    bench.sdk.responses.create(previous_response_id=first.id, **{**asked, "input": [result]})
    *_, said, told = bench.host.bodies[-1]["messages"]
    functions = [call["function"] for call in said["tool_calls"]]
    assert [function["name"] for function in functions] == ["agents__spawn", "patch", "patch"]
    assert json.loads(functions[1]["arguments"]) == {"input": text}
    assert told == {"role": "tool", "tool_call_id": "c1", "content": "done"}
