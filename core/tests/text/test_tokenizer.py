"""Tokenizers from directories: the ids and texts that transformers gives for the same files."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from turret.checkpoint import Checkpoint, CheckpointKind
from turret.errors import LoadError, RequestError
from turret.text import FastTokenizer, Tokenizer, TokenizerOptions, load_tokenizer
from turret.text.directory_tokenizer import tokenizer_from_directory
from turret.text.slow_tokenizer import TransformersTokenizer


@pytest.fixture(scope="session")
def pair(any_dir: Path) -> tuple[Tokenizer, Any]:
    return tokenizer_from_directory(any_dir), AutoTokenizer.from_pretrained(any_dir)


def test_encodes_as_transformers(pair: tuple[Tokenizer, Any], corpus: list[str]) -> None:
    ours, oracle = pair
    for text in [*corpus, "".join(corpus), "", " ", "  x", "<|im_start|>user\nhi<|im_end|>", "a<think>b", "<s>x</s>"]:
        assert ours.encode(text) == oracle.encode(text)
        assert ours.encode(text, add_special_tokens=False) == oracle.encode(text, add_special_tokens=False)
    assert ours.encode_batch(corpus) == oracle(corpus)["input_ids"]


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_encodes_and_decodes_any_text_as_transformers(pair: tuple[Tokenizer, Any], text: str) -> None:
    ours, oracle = pair
    ids = oracle.encode(text)
    assert ours.encode(text) == ids
    for skip in (True, False):
        expected = oracle.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=skip) == expected


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_decodes_any_ids_of_byte_level_vocabularies_as_transformers(byte_level_dir: Path, data: st.DataObject) -> None:
    ours, oracle = tokenizer_from_directory(byte_level_dir), AutoTokenizer.from_pretrained(byte_level_dir)
    for _ in range(20):
        ids = data.draw(st.lists(st.integers(0, ours.vocab_size + 3), max_size=12))
        assert ours.decode(ids) == oracle.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_roles_and_vocabulary(byte_level_dir: Path) -> None:
    ours, oracle = tokenizer_from_directory(byte_level_dir), AutoTokenizer.from_pretrained(byte_level_dir)
    assert ours.vocab_size == len(oracle)
    assert ours.vocab() == oracle.get_vocab()
    assert ours.specials.bos_token_id == oracle.bos_token_id == 0
    assert ours.specials.eos_token_id == oracle.eos_token_id
    assert ours.specials.names == {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
    assert ours.special_ids == set(oracle.all_special_ids) | {oracle.convert_tokens_to_ids("<|im_start|>")}
    assert ours.piece(40) == oracle.convert_ids_to_tokens(40)
    assert ours.piece(-1) is None
    assert ours.piece(10**6) is None
    assert ours.token_id("<think>") == oracle.convert_tokens_to_ids("<think>")
    assert ours.token_id("never seen") is None


def test_bytes_of_tokens_join_to_the_text(byte_level_dir: Path, sentencepiece_dir: Path, corpus: list[str]) -> None:
    for path, lead in ((byte_level_dir, ""), (sentencepiece_dir, " ")):
        ours = tokenizer_from_directory(path)
        for text in corpus:
            ids = ours.encode(text, add_special_tokens=False)
            assert b"".join(ours.token_bytes(i) for i in ids).decode() == lead + text
    assert ours.token_bytes(10**6) == b""


def changed(source: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(source, target)
    file = target / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return target


@pytest.mark.parametrize(
    "flags", [{"add_bos_token": False}, {"add_bos_token": True, "add_eos_token": True}, {"add_eos_token": True}]
)
def test_flags_for_the_ends_of_a_text_mean_what_transformers_makes_of_them(
    byte_level_dir: Path, tmp_path: Path, flags: dict[str, bool]
) -> None:
    path = changed(byte_level_dir, tmp_path / "t", **flags)
    assert tokenizer_from_directory(path).encode("hello") == AutoTokenizer.from_pretrained(path).encode("hello")


def test_tokens_declared_only_in_the_config(byte_level_dir: Path, tmp_path: Path) -> None:
    ours = tokenizer_from_directory(byte_level_dir)
    declared = {str(ours.vocab_size): {"content": "<tool>", "special": True, "normalized": False}}
    config = json.loads((byte_level_dir / "tokenizer_config.json").read_text())
    declared = config.get("added_tokens_decoder", {}) | declared
    path = changed(byte_level_dir, tmp_path / "t", added_tokens_decoder=declared)
    more = tokenizer_from_directory(path)
    assert more.encode("a<tool>b", add_special_tokens=False)[1] == ours.vocab_size
    assert more.decode(more.encode("a<tool>b")) == "ab"
    wrong = {str(ours.vocab_size + 7): {"content": "<tool>"}}
    path = changed(byte_level_dir, tmp_path / "w", added_tokens_decoder=wrong)
    with pytest.raises(LoadError, match=r"'<tool>' should have id .* do not belong together"):
        tokenizer_from_directory(path)


def test_role_given_as_an_object(byte_level_dir: Path, tmp_path: Path) -> None:
    path = changed(byte_level_dir, tmp_path / "t", eos_token={"content": "<think>", "__type": "AddedToken"})
    ours = tokenizer_from_directory(path)
    assert ours.specials.eos_token_id == ours.token_id("<think>")
    assert ours.specials.eos_token_id in ours.special_ids


def test_stored_truncation_and_padding_are_not_used(byte_level_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(byte_level_dir, path)
    backend = tokenizer_from_directory(path)
    assert isinstance(backend, FastTokenizer)
    raw = json.loads((path / "tokenizer.json").read_text())
    raw["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (path / "tokenizer.json").write_text(json.dumps(raw))
    assert len(tokenizer_from_directory(path).encode("a much longer text than four tokens")) > 4


def test_lone_surrogates_are_the_clients_fault(byte_level_dir: Path) -> None:
    ours = tokenizer_from_directory(byte_level_dir)
    for call in (lambda: ours.encode("ab\ud83d"), lambda: ours.encode_batch(["x", "ab\ud83d"])):
        with pytest.raises(RequestError, match="lone surrogate"):
            call()


def test_one_tokenizer_serves_many_threads(byte_level_dir: Path, corpus: list[str]) -> None:
    ours = tokenizer_from_directory(byte_level_dir)
    expected = [ours.encode(t) for t in corpus]
    failures: list[str] = []

    def work() -> None:
        for _ in range(50):
            for text, ids in zip(corpus, expected, strict=True):
                if ours.encode(text) != ids or ours.decode(ids) != text:
                    failures.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_modes_through_transformers_agree(sentencepiece_dir: Path, corpus: list[str]) -> None:
    fast = tokenizer_from_directory(sentencepiece_dir)
    through = tokenizer_from_directory(sentencepiece_dir, mode="hf")
    slow = tokenizer_from_directory(sentencepiece_dir, mode="slow")
    assert isinstance(through, FastTokenizer)
    assert isinstance(slow, TransformersTokenizer)
    assert slow.specials == through.specials == fast.specials
    assert slow.vocab_size == fast.vocab_size
    for text in corpus:
        ids = fast.encode(text)
        assert through.encode(text) == slow.encode(text) == ids
        assert slow.decode(ids) == fast.decode(ids) == through.decode(ids)
    assert slow.piece(5) == fast.piece(5)
    assert slow.token_id("<s>") == 1


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadError, match=r"tokenizer\.json: not a tokenizer"):
        tokenizer_from_directory(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LoadError, match="empty: no tokenizer could be loaded"):
        tokenizer_from_directory(empty)


def test_tokenizer_from_elsewhere(byte_level_dir: Path, sentencepiece_dir: Path) -> None:
    checkpoint = Checkpoint(
        reference="x", name="x", kind=CheckpointKind.SAFETENSORS, path=str(byte_level_dir), config={},
        tokenizer_path=str(byte_level_dir),
    )  # fmt: skip
    assert load_tokenizer(checkpoint).specials.bos_token_id == 0
    other = TokenizerOptions(reference=str(sentencepiece_dir))
    assert load_tokenizer(checkpoint, other).specials.bos_token_id == 1
