"""Clients for Node that call tools: the SDKs of OpenAI and Anthropic, and `ai` with @ai-sdk/openai-compatible."""

from __future__ import annotations

import pytest

ONE = [{"city": "Łódź", "days": 2}]
BOTH = [{"city": "Łódź", "days": 1}, {"city": "Oslo", "days": 3}]
ENDS = ("Take an umbrella.", "Take two umbrellas.")


@pytest.mark.parametrize("mode", ["whole", "streamed"])
def test_openai(scripted, node, mode):
    seen = node("openai_tools.mjs", scripted)[mode]
    assert seen["one"] == {"calls": ONE, "end": ENDS[0]} and seen["both"] == {"calls": BOTH, "end": ENDS[1]}
    assert seen["run"] == ENDS[0]
    assert seen["responses"] == {"results": 2, "end": ENDS[1], "kept": ENDS[1]}


def test_anthropic(scripted, node):
    seen = node("anthropic_node.mjs", scripted)
    for mode in ("whole", "streamed"):
        one, both = seen[mode]["one"], seen[mode]["both"]
        assert one["kinds"] == ["thinking", "text", "tool_use"] and both["kinds"].count("tool_use") == 2
        assert one["reasons"] == both["reasons"] == ["tool_use", "end_turn"]
        assert (one["end"], both["end"]) == ENDS
    assert seen["counted"] == seen["used"]


def test_ai(scripted, node):
    seen = node("ai_sdk.mjs", scripted)
    for task, calls, end in (("ASK-WEATHER", ONE, ENDS[0]), ("ASK-BOTH", BOTH, ENDS[1])):
        told = seen[task]
        assert told["calls"] == calls and told["whole"] == told["streamed"] == {"text": end, "steps": 2, "usage": True}
        assert {"tool-call", "tool-result", "finish"} <= set(told["kinds"])
    thought = seen["ASK-THOUGHT"]
    assert thought["whole"]["text"] == thought["streamed"]["text"] == "It is 4."
    assert thought["thought"] == ["Two and two.\n"] * 2 and "reasoning-delta" in thought["kinds"]


def test_the_demo_model(demo, node):
    seen = node("demo_node.mjs", demo)
    for client, reasons in (("anthropic", ("end_turn", "max_tokens")), ("ai", ("stop", "length"))):
        told = seen[client]
        assert "Paris" in told["whole"] and told["whole"] == told["streamed"] and told["reason"] in reasons
