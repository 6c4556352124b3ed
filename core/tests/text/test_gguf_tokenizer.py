"""Tokenizers built from GGUF metadata: the ids that transformers' own conversion gives for the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer, Qwen2Tokenizer

from turret.errors import LoadError, NotSupportedError
from turret.text import FastTokenizer
from turret.text.gguf_tokenizer import tokenizer_from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def write(path: Path, model: str, tokens: list[str], kinds: list[int], **extra: Any) -> Path:
    writer = gguf.GGUFWriter(path, extra.pop("architecture", "llama"))
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for key, value in extra.items():
        kinds_of = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        kinds_of[type(value)](f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def model_of(directory: Path) -> tuple[list[str], dict[str, Any]]:
    state = json.loads((directory / "tokenizer.json").read_text())
    vocab = Backend.from_file(str(directory / "tokenizer.json")).get_vocab()
    return sorted(vocab, key=vocab.__getitem__), state


@pytest.fixture(scope="session")
def byte_level_gguf(byte_level_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The tiny byte-level vocabulary as a GGUF file, with a pre-tokenizer of choice."""
    tokens, state = model_of(byte_level_dir)
    special = {t["content"]: CONTROL if t["special"] else USER_DEFINED for t in state["added_tokens"]}
    kinds = [special.get(t, NORMAL) for t in tokens]
    merges = [" ".join(m) for m in state["model"]["merges"]]

    def make(pre: str, **extra: Any) -> Path:
        path = tmp_path_factory.mktemp("gguf") / f"{pre}.gguf"
        return write(path, "gpt2", tokens, kinds, pre=pre, merges=merges, bos_token_id=0, eos_token_id=2, **extra)

    return make


@pytest.fixture(scope="session")
def demo_pair(demo_gguf: Path) -> tuple[FastTokenizer, Any]:
    return tokenizer_from_gguf(demo_gguf), AutoTokenizer.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name)


def without_digits(text: str) -> str:
    # transformers does not know that this model's digits stand alone; another test holds that.
    return "".join(c for c in text if not c.isnumeric())


@pytest.mark.model
def test_demo_encodes_as_transformers(demo_pair: tuple[FastTokenizer, Any], corpus: list[str]) -> None:
    ours, oracle = demo_pair
    for text in [*corpus, "<|im_start|>user\nhi<|im_end|>\n", "a<|endoftext|> b <repo_name>c", ""]:
        text = without_digits(text)
        assert ours.encode(text) == oracle.encode(text), text
        assert ours.decode(ours.encode(text), skip_special_tokens=False) == text


@pytest.mark.model
@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_demo_encodes_any_text_as_transformers(demo_pair: tuple[FastTokenizer, Any], text: str) -> None:
    ours, oracle = demo_pair
    text = without_digits(text)
    ids = oracle.encode(text)
    assert ours.encode(text) == ids
    # Not always `text`: this vocabulary lacks some control characters.
    assert ours.decode(ids, skip_special_tokens=False) == oracle.decode(ids, clean_up_tokenization_spaces=False)


@pytest.mark.model
def test_demo_puts_every_digit_alone(demo_pair: tuple[FastTokenizer, Any]) -> None:
    ours, _ = demo_pair
    assert [ours.piece(i) for i in ours.encode("in 2024: 3.14")] == [
        "in", "Ġ", "2", "0", "2", "4", ":", "Ġ", "3", ".", "1", "4"
    ]  # fmt: skip


@pytest.mark.model
def test_demo_roles(demo_pair: tuple[FastTokenizer, Any]) -> None:
    ours, oracle = demo_pair
    assert (ours.specials.bos_token_id, ours.specials.eos_token_id) == (oracle.bos_token_id, oracle.eos_token_id)
    assert ours.specials.names["bos_token"] == "<|im_start|>"
    assert ours.special_ids == set(range(17))
    assert ours.vocab_size == 49152


@pytest.mark.model
def test_gemma_encodes_as_transformers(gemma_gguf: Path) -> None:
    """transformers takes half a minute to build this tokenizer; data/make_gemma_golden.py asked it once."""
    ours = tokenizer_from_gguf(gemma_gguf)
    golden = json.loads((Path(__file__).parent / "data" / "gemma_golden.json").read_text())
    for text, ids, decoded in golden:
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == decoded
    assert ours.encode("a")[0] == ours.specials.bos_token_id == 2


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-4o", "gpt-2", "smollm", "dbrx", "deepseek-v3"])
def test_every_cut_loses_nothing(byte_level_gguf: Callable[..., Path], corpus: list[str], pre: str) -> None:
    ours = tokenizer_from_gguf(byte_level_gguf(pre))
    for text in corpus:
        text = text if pre != "qwen2" else text.replace("a\u0301", "á").replace("e\u0301", "é")  # composed on purpose
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-4o", "dbrx"])
def test_cuts_are_those_transformers_uses(byte_level_gguf: Callable[..., Path], corpus: list[str], pre: str) -> None:
    path = byte_level_gguf(pre)
    ours = tokenizer_from_gguf(path).backend.pre_tokenizer
    oracle = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer.pre_tokenizer
    for text in [*corpus, "HelloWorld I'M 12345 a1b22c333 !!??\n\n \n x", "ﬁﬀ Ǆǅǆ ʰʱ ①②③ ½ ٣٤٥"]:
        assert ours.pre_tokenize_str(text) == oracle.pre_tokenize_str(text)


def test_qwen2_is_what_the_hub_ships(
    byte_level_gguf: Callable[..., Path], byte_level_dir: Path, corpus: list[str]
) -> None:
    _, state = model_of(byte_level_dir)
    model = state["model"]
    oracle = Qwen2Tokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])
    ours = tokenizer_from_gguf(byte_level_gguf("qwen2"))
    for text in corpus:
        assert ours.encode(text) == oracle.encode(text, add_special_tokens=False)


def test_ends_of_a_text(byte_level_gguf: Callable[..., Path]) -> None:
    def ends(pre: str, **flags: bool) -> list[int]:
        ids = tokenizer_from_gguf(byte_level_gguf(pre, **flags)).encode("hello")
        return [i for i in ids if i in (0, 2)]

    assert ends("gpt-2") == []
    assert ends("llama-bpe") == [0]
    assert ends("llama-bpe", add_bos_token=False) == []
    assert ends("gpt-2", add_bos_token=True, add_eos_token=True) == [0, 2]


@pytest.fixture(scope="session")
def sentencepiece_gguf(sentencepiece_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    tokens, state = model_of(sentencepiece_dir)
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 259)]
    # As converters write them: the earlier a merge, the higher the score of what it makes.
    order = {"".join(m): -float(i) for i, m in reversed(list(enumerate(state["model"]["merges"])))}
    scores = [order.get(t, -1e6) for t in tokens]

    def make(**extra: Any) -> Path:
        path = tmp_path_factory.mktemp("gguf") / "spm.gguf"
        ids = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
        return write(path, "llama", tokens, kinds, scores=scores, **ids, **extra)

    return make


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_merges_are_recovered_from_scores(
    request: pytest.FixtureRequest, sentencepiece_gguf: Callable[..., Path], corpus: list[str], prefix: bool
) -> None:
    ours = tokenizer_from_gguf(sentencepiece_gguf(add_space_prefix=prefix))
    oracle = AutoTokenizer.from_pretrained(
        request.getfixturevalue("sentencepiece_dir" if prefix else "unprefixed_dir")
    )
    for text in [*corpus, "".join(corpus), " lead", "a</s>b"]:
        assert ours.encode(text) == oracle.encode(text)
        assert ours.decode(ours.encode(text)) == oracle.decode(oracle.encode(text), skip_special_tokens=True)


def test_refusals(byte_level_gguf: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match=r"pre-tokenizer is 'brand-new', .* --tokenizer"):
        tokenizer_from_gguf(byte_level_gguf("brand-new"))
    with pytest.raises(NotSupportedError, match=r"of kind 'rwkv', .* --tokenizer"):
        tokenizer_from_gguf(write(tmp_path / "r.gguf", "rwkv", ["a"], [1]))
    with pytest.raises(LoadError, match=r"tokenizer.ggml.merges is missing"):
        tokenizer_from_gguf(write(tmp_path / "m.gguf", "gpt2", ["a"], [1], pre="gpt-2"))
    with pytest.raises(LoadError, match=r"2 tokens but 1 token types"):
        tokenizer_from_gguf(write(tmp_path / "k.gguf", "gpt2", ["a", "b"], [1], pre="gpt-2"))
    with pytest.raises(LoadError, match=r"bos_token_id is 7, outside the vocabulary"):
        extra = {"pre": "gpt-2", "merges": ["a a"], "bos_token_id": 7}
        tokenizer_from_gguf(write(tmp_path / "b.gguf", "gpt2", ["a", "aa"], [1, 1], **extra))
    for merge in ("x y", "a b", "ab"):
        with pytest.raises(LoadError, match=rf"i.gguf: merge 0 \('{merge}'\) makes or uses a token outside"):
            tokenizer_from_gguf(write(tmp_path / "i.gguf", "gpt2", ["a", "b"], [1, 1], pre="gpt-2", merges=[merge]))
    with pytest.raises(LoadError, match=r"scores is missing"):
        tokenizer_from_gguf(write(tmp_path / "s.gguf", "llama", ["a"], [1]))
