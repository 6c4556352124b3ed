"""From what the user wrote to a checkpoint: the demo, a directory, a GGUF file, or a hub id.

Owns: how a reference is told apart. Knows nothing of formats.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from turret.checkpoint.demo import DEMO, DEMO_SAMPLING, locate_demo
from turret.checkpoint.directory import open_directory
from turret.checkpoint.gguf_files import open_gguf_checkpoint
from turret.checkpoint.hub import HUB_ID, fetch, split_hub_id
from turret.checkpoint.model import Checkpoint, ResolveOptions
from turret.errors import LoadError

__all__ = ["locate_directory", "resolve"]

_DEFAULT = ResolveOptions()
_PATH_STARTS = ("/", "./", "../", "~", ".\\", "..\\")


def resolve(reference: str | None, options: ResolveOptions = _DEFAULT) -> Checkpoint:
    """The checkpoint that `reference` names; None and "demo" mean the embedded default model.

    A path to a directory or to a .gguf file is taken as such; anything else shaped like a hub id ("org/name",
    "org/name:Q4_K_M" for a GGUF repository) is looked up in the hub's cache and, unless offline, on the hub.
    Raises LoadError with one sentence that says what is wrong and what to do.
    """
    if reference is None or reference == DEMO:
        demo = open_gguf_checkpoint(locate_demo(), DEMO, DEMO)
        return msgspec.structs.replace(demo, generation_config={**demo.generation_config, **DEMO_SAMPLING})
    path = Path(reference).expanduser()
    if path.is_dir():
        return open_directory(
            path, reference, _name(path), need_weights=options.need_weights, prefer_pt=options.prefer_pt
        )
    if path.is_file():
        return _open_file(path, reference)
    if _looks_like_path(reference):
        raise LoadError(f"{reference}: no such file or directory")
    return _open_hub(reference, options)


def locate_directory(reference: str, options: ResolveOptions = _DEFAULT) -> Path:
    """A directory with the small files (config, tokenizer, templates) of `reference`, which may be a file's own path.

    For `--tokenizer` and `--hf-config-path`: no weights are fetched or needed. A .gguf file is returned as it is.
    """
    if reference == DEMO:
        return locate_demo()
    path = Path(reference).expanduser()
    if path.exists():
        return path
    if _looks_like_path(reference):
        raise LoadError(f"{reference}: no such file or directory")
    return fetch(reference, msgspec.structs.replace(options, need_weights=False))


def _name(path: Path) -> str:
    return path.resolve().name or str(path)


def _open_file(path: Path, reference: str) -> Checkpoint:
    if path.suffix == ".gguf":
        return open_gguf_checkpoint(path, reference)
    if path.suffix in (".safetensors", ".bin", ".pt"):
        raise LoadError(f"{reference}: give the directory that holds this file and its config.json")
    raise LoadError(f"{reference}: not a model: give a directory, a .gguf file or a hub id")


def _looks_like_path(reference: str) -> bool:
    return (
        reference.startswith(_PATH_STARTS)
        or reference.endswith(".gguf")
        or os.sep * 2 in reference
        or not HUB_ID.match(reference)
    )


def _open_hub(reference: str, options: ResolveOptions) -> Checkpoint:
    repo, variant = split_hub_id(reference)
    directory = fetch(reference, options)
    if variant is None:
        if not (directory / "config.json").is_file():
            raise LoadError(
                f"hub model {repo!r} has no config.json; if it holds GGUF files, name one by its quantization: "
                f"{repo}:Q4_K_M"
            )
        found = open_directory(
            directory, reference, repo, need_weights=options.need_weights, prefer_pt=options.prefer_pt
        )
    else:
        found = open_gguf_checkpoint(_variant_file(directory, variant, reference), reference, repo)
    return msgspec.structs.replace(found, revision=options.revision)


def _variant_file(directory: Path, variant: str, reference: str) -> Path:
    found = sorted(p for p in directory.rglob("*.gguf") if variant.lower() in p.name.lower())
    heads = [p for p in found if "-of-" not in p.name or "-00001-of-" in p.name]
    exact = [p for p in heads if p.stem.lower().split("-00001-of-")[0].endswith(variant.lower())]
    heads = exact or heads
    if len(heads) != 1:
        names = ", ".join(p.name for p in heads) or "none"
        raise LoadError(f"{reference}: one GGUF file of the repository must match {variant!r}; found {names}")
    return heads[0]
