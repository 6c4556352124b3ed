"""A local directory in Hugging Face layout as a checkpoint.

Owns: which files of a directory are the model and what they say. Knows nothing of hubs or tensors' use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from turret.checkpoint.facts import eos_token_ids, max_context, text_config
from turret.checkpoint.gguf_files import open_gguf_checkpoint
from turret.checkpoint.model import Checkpoint, CheckpointKind
from turret.checkpoint.safetensors_files import SAFETENSORS_INDEX, read_index
from turret.checkpoint.torch_files import torch_files
from turret.errors import LoadError

__all__ = ["open_directory", "read_chat_templates", "read_json"]

_UNREAD = ("*.pth", "*.ckpt", "*.pkl")


def open_directory(
    path: Path, reference: str, name: str, *, need_weights: bool = True, prefer_pt: bool = False
) -> Checkpoint:
    """The checkpoint in a local directory: config.json with safetensors, a single GGUF file, or config.json with files
    of torch.save; those first with `prefer_pt`.

    `need_weights=False` accepts a directory that has only a config. Raises LoadError naming what is missing or broken.
    """
    config_path = path / "config.json"
    kind, weights = CheckpointKind.SAFETENSORS, [] if prefer_pt else _weight_files(path)
    if not weights and not prefer_pt and (gguf := _gguf_in(path)) is not None:
        return open_gguf_checkpoint(gguf, reference, name)
    if not weights and (weights := torch_files(path)):
        kind = CheckpointKind.PT
    if not config_path.is_file():
        raise LoadError(f"{path}: there is neither config.json nor a .gguf file; this is not a model directory")
    config = read_json(config_path)
    if need_weights and not weights:
        raise LoadError(f"{path}: {_why_no_weights(path, prefer_pt)}")
    generation = read_json(path / "generation_config.json") if (path / "generation_config.json").is_file() else {}
    bos = text_config(config).get("bos_token_id", config.get("bos_token_id"))
    return Checkpoint(
        reference=reference,
        name=name,
        kind=kind,
        path=str(path),
        weight_files=tuple(str(p) for p in weights),
        config=config,
        generation_config=generation,
        chat_templates=read_chat_templates(path),
        tokenizer_path=str(path),
        eos_token_ids=eos_token_ids(generation, config),
        bos_token_id=bos if isinstance(bos, int) else None,
        max_context=max_context(config),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; LoadError naming the file when it is not one."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as exc:
        raise LoadError(f"{path}: cannot be read as JSON: {exc}") from None
    if not isinstance(value, dict):
        raise LoadError(f"{path}: must hold a JSON object")
    return value


def read_chat_templates(path: Path) -> dict[str, str]:
    """Chat templates by name from the places a directory keeps them; a file of its own wins over tokenizer_config."""
    templates: dict[str, str] = {}
    for file in ("tokenizer_config.json", "chat_template.json"):
        if (path / file).is_file():
            templates.update(_named(read_json(path / file).get("chat_template"), path / file))
    for jinja in sorted((path / "additional_chat_templates").glob("*.jinja")):
        templates[jinja.stem] = _read_text(jinja)
    if (path / "chat_template.jinja").is_file():
        templates["default"] = _read_text(path / "chat_template.jinja")
    return templates


def _named(value: object, source: Path) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    try:
        entries = msgspec.convert(value, list[dict[str, str]])
        return {entry["name"]: entry["template"] for entry in entries}
    except (msgspec.ValidationError, KeyError):
        raise LoadError(f"{source}: chat_template must be a string or a list of names and templates") from None


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise LoadError(f"{path}: cannot be read as UTF-8 text: {exc}") from None


def _weight_files(path: Path) -> list[Path]:
    index = read_index(path)
    if index is None:
        found = sorted(path.glob("*.safetensors"))
        # Mistral ships the same weights a second time under its own names.
        hf_only = [p for p in found if not p.name.startswith("consolidated")]
        return hf_only or found
    files = sorted({path / name for name in index.values()})
    for file in files:
        if not file.is_file():
            tensor = next(t for t, name in index.items() if name == file.name)
            raise LoadError(
                f"{file}: the file is missing, but {SAFETENSORS_INDEX} places tensor {tensor!r} (and others) in it"
            )
    return files


def _gguf_in(path: Path) -> Path | None:
    """The GGUF model of the directory (its first part, if split); None when it holds none."""
    found = sorted(p for p in path.glob("*.gguf") if not p.name.startswith("mmproj"))
    heads = [p for p in found if "-of-" not in p.name or "-00001-of-" in p.name]
    if len(heads) > 1:
        names = ", ".join(p.name for p in heads)
        raise LoadError(f"{path}: holds several GGUF models ({names}); name one of the files")
    return heads[0] if heads else None


def _why_no_weights(path: Path, prefer_pt: bool) -> str:
    unread = [p.name for pattern in _UNREAD for p in path.glob(pattern)]
    if unread:
        return f"the weights are {unread[0]}, which is not read; convert them to safetensors"
    wanted = ".bin files (--load-format pt)" if prefer_pt else ".safetensors, .gguf or .bin files"
    return f"there are no {wanted}; --load-format dummy makes random weights"
