"""mistral-common, Mistral's own code for its formats: calls that its tokenizers write, turret reads.

The vocabulary is the one in the package; later formats are the same with that version and all control tokens.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from formats import TOOLS, random_call, random_text, turret_reads

ROUNDS = 40
VERSIONS = ("v3", "v7", "v11", "v13")


def tokenizer(version, folder):
    import mistral_common
    from mistral_common.tokens.tokenizers.base import SpecialTokens
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    stored = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
    if version == "v3":
        return MistralTokenizer.from_file(str(stored))
    made = json.loads(stored.read_text())
    made["config"]["version"] = version
    names = dict.fromkeys(token.value for token in SpecialTokens)
    made["special_tokens"] = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)]
    path = folder / stored.name
    path.write_text(json.dumps(made))
    return MistralTokenizer.from_file(str(path))


@pytest.mark.parametrize("version", VERSIONS)
def test_calls(version, tmp_path):
    from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.tool_calls import FunctionCall, Tool, ToolCall

    mine, source, answers, meant = tokenizer(version, tmp_path), random.Random(3), [], []
    tools = [Tool.model_validate(tool) for tool in TOOLS]

    def written(calls, content):
        ids = [f"call{place:05}" for place in range(len(calls))]
        told = [
            ToolCall(id=i, function=FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False)))
            for i, (name, arguments) in zip(ids, calls, strict=True)
        ]
        turn = AssistantMessage(content=content, tool_calls=told)
        results = [ToolMessage(content="ok", tool_call_id=i) for i in ids]
        request = ChatCompletionRequest(tools=tools, messages=[UserMessage(content="Hi"), turn, *results])
        return mine.encode_chat_completion(request).text.partition("[/INST]")[2].partition("</s>")[0]

    for _ in range(ROUNDS):
        calls = [random_call(source) for _ in range(source.randint(1, 3))]
        content = random_text(source) if version in ("v7", "v11", "v13") and source.random() < 0.3 else None
        text = written(calls, content)
        assert "[TOOL_CALLS]" in text
        answers.append({"text": text, "tool": "mistral", "tools": TOOLS})
        meant.append((content or "", calls))
    for answer, (content, calls), read in zip(answers, meant, turret_reads(answers), strict=True):
        assert read["content"].strip() == content.strip(), answer["text"]
        assert [(name, json.loads(text)) for name, text, _ in read["calls"]] == calls, answer["text"]
        assert all(len(call_id) == 9 and call_id.isalnum() for *_, call_id in read["calls"])
