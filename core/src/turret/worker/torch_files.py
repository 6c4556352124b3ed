"""Tensors of files that `torch.save` wrote, mapped where the file allows it.

Owns: reading them without running anything that they say. Knows nothing of the model.

Such a file is a pickle, and unpickling at large runs code from it. Here torch's own reader takes tensors, numbers and
plain containers and refuses everything else (`weights_only`).
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from turret.errors import LoadError

__all__ = ["iter_torch_files"]

_WRAPPERS = ("state_dict", "model", "module")
"""Keys under which training scripts put the weights."""


def iter_torch_files(
    files: tuple[str, ...], map_location: str | Mapping[str, str]
) -> Iterator[tuple[str, str, Tensor]]:
    """(file, name, contiguous tensor in this machine's memory) of every tensor.

    `map_location` says where a tensor is restored that was saved from some device, as torch has it. Raises LoadError
    naming the file.
    """
    for file in files:
        for name, tensor in _tensors(file, _load(file, map_location)).items():
            yield file, name, tensor.detach().cpu().contiguous()


def _load(file: str, map_location: str | Mapping[str, str]) -> Any:
    location = map_location if isinstance(map_location, str) else dict(map_location)
    try:
        # Files of torch before 1.6 are no archives and cannot be mapped.
        return torch.load(file, map_location=location, weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        raise LoadError(
            f"{file}: it holds more than tensors, and reading that would run code from the file: "
            f"{_first_sentence(error)}; convert it to safetensors where you trust it"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise LoadError(f"{file}: cannot be read as a file of torch.save: {_first_sentence(error)}") from error


def _first_sentence(error: Exception) -> str:
    """What is wrong, without the advice to read the file in a way that runs its code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "unsupported" in line.lower()]
    return (reasons or lines or [type(error).__name__])[0].rstrip(".")


def _tensors(file: str, loaded: Any) -> Mapping[str, Tensor]:
    while isinstance(loaded, Mapping) and (inner := next((k for k in _WRAPPERS if _holds(loaded.get(k))), None)):
        loaded = loaded[inner]
    if not _holds(loaded):
        raise LoadError(f"{file}: it holds no tensors by name, so it is no checkpoint")
    named = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
    odd = next((name for name, value in named.items() if value.layout is not torch.strided), None)
    if odd is not None:
        raise LoadError(f"{file}: tensor {odd!r} is {named[odd].layout}, and only dense tensors are read")
    return named


def _holds(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(item, (Tensor, Mapping)) for item in value.values())
