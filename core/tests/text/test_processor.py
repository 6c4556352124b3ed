"""The processor: one object for a front door, from a checkpoint to prompts and texts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig

from turret.checkpoint import Checkpoint, ResolveOptions, resolve
from turret.errors import ConfigError, RequestError
from turret.sampling import SamplingParams
from turret.text import ChatOptions, TextOptions, TextProcessor, Truncation

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
MESSAGES = [{"role": "user", "content": "the quick fox"}]


@pytest.fixture
def checkpoint(byte_level_dir: Path, tmp_path: Path) -> Checkpoint:
    path = tmp_path / "model"
    path.mkdir()
    for file in byte_level_dir.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    LlamaConfig(num_hidden_layers=1, max_position_embeddings=32, vocab_size=512).save_pretrained(path)
    (path / "chat_template.jinja").write_text(TEMPLATE)
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS " + TEMPLATE)
    return resolve(str(path), ResolveOptions(need_weights=False))


@pytest.fixture
def text(checkpoint: Checkpoint) -> TextProcessor:
    return TextProcessor.open(checkpoint)


def test_a_conversation_becomes_ids(text: TextProcessor) -> None:
    prompt = text.encode_chat(MESSAGES, ChatOptions())
    assert prompt.text == "<|begin|><|im_start|>the quick fox<|im_end|>"
    # The template writes bos itself; it must not come twice.
    assert prompt.token_ids == text.tokenizer.encode(prompt.text, add_special_tokens=False)
    assert prompt.token_ids.count(0) == 1
    assert text.encode_chat(MESSAGES, ChatOptions(), add_special_tokens=True).token_ids.count(0) == 2


def test_every_id_that_ends_a_sequence(text: TextProcessor) -> None:
    # 2 is both LlamaConfig's default and the tokenizer's <|im_end|>; a model's configs may name more.
    assert text.eos_token_ids == (2,)
    assert TextProcessor(text.tokenizer, {}, None, (7, 2)).eos_token_ids == (7, 2)
    assert TextProcessor(text.tokenizer, {}, None, (7,)).eos_token_ids == (7, 2)
    assert TextProcessor(None, {}, None, (7,)).eos_token_ids == (7,)


def test_which_template_is_used(text: TextProcessor, checkpoint: Checkpoint, tmp_path: Path) -> None:
    tools = ChatOptions(tools=[{"type": "function", "function": {"name": "f"}}])
    assert text.render_chat(MESSAGES, tools).startswith("TOOLS ")
    assert text.render_chat(MESSAGES, ChatOptions(), "tool_use").startswith("TOOLS ")
    assert text.render_chat(MESSAGES, ChatOptions(), "{{ eos_token }}!") == "<|im_end|>!"
    by_name = TextProcessor.open(checkpoint, TextOptions(chat_template="tool_use"))
    assert by_name.render_chat(MESSAGES).startswith("TOOLS ")
    (tmp_path / "own.jinja").write_text("mine")
    by_path = TextProcessor.open(checkpoint, TextOptions(chat_template=str(tmp_path / "own.jinja")))
    assert by_path.render_chat(MESSAGES, tools) == "mine"
    with pytest.raises(ConfigError, match=r"neither a file nor"):
        TextProcessor.open(checkpoint, TextOptions(chat_template="nowhere"))


def test_a_model_without_a_template(checkpoint: Checkpoint) -> None:
    text = TextProcessor(TextProcessor.open(checkpoint).tokenizer, {})
    assert text.chat_template is None
    with pytest.raises(RequestError, match=r"no chat template: use /v1/completions"):
        text.render_chat(MESSAGES)


def test_a_broken_template_of_a_request_is_the_requests_fault(text: TextProcessor) -> None:
    with pytest.raises(RequestError, match=r"the chat template is not valid") as caught:
        text.render_chat(MESSAGES, ChatOptions(), "{% for %}")
    assert caught.value.status == 400


def test_prompts_that_do_not_fit_are_told_the_numbers(text: TextProcessor) -> None:
    assert text.max_model_len == 32
    assert len(text.encode_prompt("a" * 20, add_special_tokens=False)) <= 31
    with pytest.raises(RequestError, match=r"maximum context length is 32 tokens, but the prompt has 32 tokens"):
        text.encode_prompt([5] * 32)
    assert len(text.encode_prompt([5] * 31)) == 31
    with pytest.raises(RequestError, match=r"has 1000000 characters, more than"):
        text.encode_prompt("a" * 1_000_000)
    longer = TextProcessor(text.tokenizer, {}, max_model_len=None)
    assert len(longer.encode_prompt([5] * 1000)) == 1000


def test_truncation_keeps_the_end(text: TextProcessor) -> None:
    ids = list(range(3, 43))
    assert text.encode_prompt(ids, truncation=Truncation(4)) == ids[-4:]
    assert text.encode_prompt(ids, truncation=Truncation(-1)) == ids[-31:]
    assert text.encode_prompt(ids[:5], truncation=Truncation(9)) == ids[:5]
    assert text.encode_prompt(ids, truncation=Truncation(4, "right")) == ids[:4]
    assert len(text.encode_prompt("a" * 100_000, truncation=Truncation(4))) == 4
    with pytest.raises(RequestError, match=r"has 1000000 characters, more than"):
        text.encode_prompt("a" * 1_000_000, truncation=Truncation(4))
    for wrong in (0, -2, 33):
        with pytest.raises(RequestError, match=r"truncate_prompt_tokens") as caught:
            text.encode_prompt(ids, truncation=Truncation(wrong))
        assert caught.value.param == "truncate_prompt_tokens"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "is empty"), ([1, -1], "token ids of at least 0"), ([1, 10**6], "outside the vocabulary"),
        ([True], "got True"), (["x"], "got 'x'"),
    ],
)  # fmt: skip
def test_impossible_prompts(text: TextProcessor, prompt: list[int], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        text.encode_prompt(prompt)
    assert caught.value.param == "prompt"


def test_an_empty_text_is_bos_alone_or_an_error(text: TextProcessor) -> None:
    assert text.encode_prompt("") == [0]
    with pytest.raises(RequestError, match=r"prompt is empty"):
        text.encode_prompt("", add_special_tokens=False)


def test_bad_words_inside_and_at_the_start_of_a_word(text: TextProcessor, sentencepiece_dir: Path) -> None:
    for processor in (text, spm_processor(sentencepiece_dir)):
        tokenizer = processor.tokenizer
        spelled = [b"".join(tokenizer.token_bytes(i) for i in ids) for ids in processor.bad_words_ids(["fox", " dog"])]
        assert spelled == [b"fox", b" fox", b"dog", b" dog"]
        # Found in real text, after a space and inside a word.
        ids = tokenizer.encode("the fox", add_special_tokens=False)
        assert any(ids[-len(word) :] == word for word in processor.bad_words_ids(["fox"]))
    assert text.bad_words_ids(None) == []


def spm_processor(path: Path) -> TextProcessor:
    checkpoint = Checkpoint(
        reference="x", name="x", kind="safetensors", path=str(path), config={}, tokenizer_path=str(path)
    )  # fmt: skip
    return TextProcessor.open(checkpoint)


def test_output_continues_the_prompt(sentencepiece_dir: Path) -> None:
    text = spm_processor(sentencepiece_dir)
    ids = text.tokenizer.encode("fox", add_special_tokens=False)
    assert text.output(SamplingParams(), [5, 6]).push(ids, finished=True).text == " fox"
    assert text.output(SamplingParams()).push(ids, finished=True).text == "fox"


def test_token_ids_in_and_out_without_a_tokenizer(checkpoint: Checkpoint) -> None:
    text = TextProcessor.open(checkpoint, TextOptions(skip_tokenizer=True))
    assert not text.has_tokenizer
    assert text.encode_prompt([10**6]) == [10**6]
    assert text.output(SamplingParams()).push([1, 2], finished=True) == ("", None, 2)
    for call in (lambda: text.encode_prompt("x"), lambda: text.encode_chat(MESSAGES)):
        with pytest.raises(RequestError, match=r"without a tokenizer"):
            call()


@pytest.mark.model
def test_demo_from_reference_to_prompt_imports_no_torch() -> None:
    code = """
import json, sys
from turret.checkpoint import normalized_config, resolve
from turret.text import TextProcessor
checkpoint = resolve("demo")
normalized_config(checkpoint)
prompt = TextProcessor.open(checkpoint).encode_chat([{"role": "user", "content": "Hi"}])
print(json.dumps([prompt.text, prompt.token_ids, sorted({"torch", "transformers"} & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, ids, slow = json.loads(done.stdout)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert ids[0] == 1
    assert len(ids) == 31
    assert slow == []
