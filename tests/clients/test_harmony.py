"""openai-harmony, OpenAI's own code for gpt-oss's format: what it renders and reads, turret reads too.

Its vocabulary comes from npm (js-tiktoken), since the library fetches it from elsewhere; it checks the file's hash.
"""

from __future__ import annotations

import json
import random
import re
import subprocess

import pytest
from formats import random_call, random_text, turret_reads

ROUNDS = 150


@pytest.fixture(scope="module")
def encoding(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "js-tiktoken@1"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    source = (folder / "node_modules/js-tiktoken/dist/ranks/o200k_base.cjs").read_text()
    ranks = json.loads('"' + re.search(r'bpe_ranks"?:\s*"(.*?)"', source)[1] + '"')
    lines = []
    for line in ranks.split("\n"):
        _, first, *tokens = line.split(" ")
        lines += [f"{token} {int(first) + place}\n" for place, token in enumerate(tokens)]
    (folder / "o200k_base.tiktoken").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        import openai_harmony

        yield openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def said(source):
    """A turn: reasoning and preambles in any order and number, then calls or an answer."""
    from openai_harmony import Message, Role

    assistant = lambda text: Message.from_role_and_content(Role.ASSISTANT, text)  # noqa: E731
    messages = []
    for _ in range(source.randint(0, 3)):
        channel = source.choice(("analysis", "analysis", "commentary"))
        messages.append(assistant(random_text(source, 8)).with_channel(channel))
    if source.random() < 0.5:
        messages.append(assistant(random_text(source, 8)).with_channel("final"))
        return messages
    for _ in range(source.randint(1, 2)):
        name, arguments = random_call(source)
        text = json.dumps(arguments, ensure_ascii=False)
        call = assistant(text).with_channel("commentary").with_recipient(f"functions.{name}")
        messages.append(call.with_content_type("<|constrain|>json"))
    return messages


def test_what_it_renders(encoding):
    from openai_harmony import Conversation, Message, RenderConversationConfig, Role

    source, answers, meant = random.Random(1), [], []
    user = Message.from_role_and_content(Role.USER, "Hello")
    config = RenderConversationConfig(auto_drop_analysis=False)
    prompt = encoding.render_conversation_for_completion(Conversation.from_messages([user]), Role.ASSISTANT)
    for _ in range(ROUNDS):
        turn = said(source)
        tokens = encoding.render_conversation(Conversation.from_messages([user, *turn]), config)
        assert tokens[: len(prompt)] == prompt
        text = encoding.decode_utf8(tokens[len(prompt) :])
        if source.random() < 0.5:  # the recipient after the channel, as models write it
            text = re.sub(r" to=(\S+?)<\|channel\|>commentary", r"<|channel|>commentary to=\1", text)
        before = encoding.decode_utf8(prompt)
        answers.append({"text": text, "tool": "openai", "reasoning": "openai_gptoss", "prompt": before})
        # What it reads back itself is the expected reading.
        again = encoding.encode(text, allowed_special="all")
        meant.append(encoding.parse_messages_from_completion_tokens(again, Role.ASSISTANT))
    for answer, messages, read in zip(answers, meant, turret_reads(answers), strict=True):
        calls = [(m.recipient.removeprefix("functions."), json.loads(text_of([m]))) for m in messages if m.recipient]
        plain = [m for m in messages if not m.recipient]
        assert read["reasoning"] == text_of(m for m in plain if m.channel == "analysis"), answer["text"]
        assert read["content"] == text_of(m for m in plain if m.channel != "analysis"), answer["text"]
        assert [(name, json.loads(text)) for name, text, _ in read["calls"]] == calls, answer["text"]


def text_of(messages):
    return "".join(message.content[0].text for message in messages)
