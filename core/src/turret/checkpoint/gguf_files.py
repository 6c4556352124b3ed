"""A GGUF file (or the parts of a split one) as a checkpoint, and the iteration over its tensors.

Owns: which files belong together, what the whole says, the order in which tensors are handed out. Knows nothing of
what is done with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.checkpoint.facts import eos_token_ids, max_context
from turret.checkpoint.gguf_config import config_from_gguf
from turret.checkpoint.gguf_header import GgufFile, open_gguf
from turret.checkpoint.model import Checkpoint, CheckpointKind
from turret.errors import LoadError

__all__ = ["GgufTensor", "iter_gguf", "open_gguf_checkpoint", "open_parts"]

_PART = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf$")
_CONTROL = 3
_TEMPLATE_KEY = "tokenizer.chat_template"
# Control tokens that end a turn or a text, by the names models give them. A GGUF file names one end-of-sequence id,
# but instruction-tuned models end their turns with another, which Hugging Face keeps in generation_config.json.
_END_TOKENS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>",
    "<|eom_id|>", "<|end_of_turn|>", "<|endofturn|>", "<|eot|>", "<EOT>", "<end_of_utterance>", "[EOS]",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One stored tensor: `shape` slowest dimension first, `data` its packed bytes, mapped and read-only."""

    name: str
    type_id: int
    type_name: str
    shape: tuple[int, ...]
    data: memoryview
    file: str


def open_gguf_checkpoint(path: Path, reference: str, name: str | None = None) -> Checkpoint:
    """The checkpoint in a GGUF file; `path` may be any part of a split one.

    Raises LoadError naming the file and the tensor or key at fault, NotSupportedError for unknown architectures.
    """
    parts = _part_paths(path)
    file = open_gguf(parts[0])
    whole = _merged(parts) if len(parts) > 1 else file
    config = config_from_gguf(whole)
    eos = _end_ids(whole, config)
    generation: dict[str, Any] = {"eos_token_id": list(eos)} if eos else {}
    if config.get("bos_token_id") is not None:
        generation["bos_token_id"] = config["bos_token_id"]
    return Checkpoint(
        reference=reference,
        name=name or parts[0].stem,
        kind=CheckpointKind.GGUF,
        path=str(parts[0]),
        weight_files=tuple(str(p) for p in parts),
        config=config,
        generation_config=generation,
        chat_templates=_templates(file),
        tokenizer_path=str(parts[0]),
        eos_token_ids=eos,
        bos_token_id=config.get("bos_token_id"),
        max_context=max_context(config),
        gguf_architecture=str(file.metadata["general.architecture"]),
    )


def _part_paths(path: Path) -> list[Path]:
    """All parts of the file that `path` is a part of, in order; just `path` when it is not split."""
    match = _PART.match(path.name)
    if match is None:
        return [path]
    total = int(match["total"])
    names = [f"{match['stem']}-{i:05d}-of-{total:05d}.gguf" for i in range(1, total + 1)]
    paths = [path.with_name(name) for name in names]
    missing = [p.name for p in paths if not p.is_file()]
    if missing:
        raise LoadError(f"{path}: this is one of {total} parts, and {', '.join(missing)} is not beside it")
    return paths


def open_parts(checkpoint: Checkpoint) -> list[GgufFile]:
    """The checkpoint's GGUF files, opened in order."""
    return [open_gguf(path) for path in checkpoint.weight_files]


def iter_gguf(checkpoint: Checkpoint) -> Iterator[GgufTensor]:
    """Every tensor of the checkpoint in file order, each a view of mapped memory.

    A view stays valid as long as it is held; nothing is copied.
    """
    seen: dict[str, str] = {}
    for file in open_parts(checkpoint):
        for info in file.tensors.values():
            if info.name in seen:
                raise LoadError(f"{file.path}: tensor {info.name!r} is already in {seen[info.name]}")
            seen[info.name] = file.path
            yield GgufTensor(info.name, info.type.id, info.type.name, info.shape, info.data, file.path)


def _merged(parts: list[Path]) -> GgufFile:
    """The first part's metadata with the tensor tables of all parts."""
    files = [open_gguf(p) for p in parts]
    count = files[0].metadata.get("split.count")
    if count is not None and count != len(parts):
        raise LoadError(f"{parts[0]}: metadata split.count is {count}, but there are {len(parts)} parts")
    tensors = {name: info for file in reversed(files) for name, info in file.tensors.items()}
    total = files[0].metadata.get("split.tensors.count")
    if total is not None and total != len(tensors):
        raise LoadError(f"{parts[0]}: metadata split.tensors.count is {total}, but the parts hold {len(tensors)}")
    return GgufFile(files[0].path, files[0].metadata, tensors, files[0].buffer)


def _templates(file: GgufFile) -> dict[str, str]:
    templates: dict[str, str] = {}
    for key, value in file.metadata.items():
        if not isinstance(value, str):
            continue
        if key == _TEMPLATE_KEY:
            templates["default"] = value
        elif key.startswith(_TEMPLATE_KEY + "."):
            templates[key[len(_TEMPLATE_KEY) + 1 :]] = value
    return templates


def _end_ids(file: GgufFile, config: dict[str, Any]) -> tuple[int, ...]:
    ids = list(eos_token_ids(config))
    for key in ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"):
        value = file.metadata.get(key)
        if isinstance(value, int):
            ids.append(value)
    kinds = file.numbers("tokenizer.ggml.token_type") or []
    control = [i for i, kind in enumerate(kinds) if kind == _CONTROL]
    tokens = (file.strings("tokenizer.ggml.tokens") or []) if control else []
    ids.extend(i for i in control if i < len(tokens) and tokens[i] in _END_TOKENS)
    return tuple(dict.fromkeys(ids))
