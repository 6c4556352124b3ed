"""The official OpenAI SDK for Node."""

from __future__ import annotations

import pytest

END = "<|im_end|>"
"""The token that ends a message is among its tokens, not in its text."""


@pytest.fixture(scope="module")
def seen(demo, node):
    return node("openai_node.mjs", demo)


def test_answers(seen):
    assert seen["models"] == ["demo"] and "Paris" in seen["content"] and "Paris" in seen["completion"]
    assert seen["logprobs"].removesuffix(END) == seen["content"] and set(seen["alternatives"]) == {2}
    assert seen["usage"]["total_tokens"] == seen["usage"]["prompt_tokens"] + seen["usage"]["completion_tokens"]


def test_streams(seen):
    assert seen["streamed"] == seen["finalContent"] == seen["content"]
    assert seen["streamUsage"] == seen["usage"]
    assert seen["completionStreamed"] == seen["completion"]


def test_errors_and_aborts(seen):
    assert seen["error"]["kind"] == "BadRequestError" and seen["error"]["status"] == 400
    assert seen["error"]["param"] == "max_tokens" and "8192" in seen["error"]["message"]
    assert 3 <= seen["aborted"] < 400
