"""A checkpoint's tensors as torch tensors over mapped memory, under their Hugging Face names.

Owns: the step from bytes and type names to tensors, and giving mapped pages back. Knows nothing of the model.

No tensor is a copy unless its stored order differs from Hugging Face's (rows that GGUF interleaves, shifted norms).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.checkpoint import Checkpoint, CheckpointKind, GgufTensor, TensorView, iter_gguf, iter_safetensors
from turret.checkpoint.gguf_names import hf_tensor
from turret.errors import LoadError
from turret.nn.staging import staging
from turret.worker.torch_files import iter_torch_files

__all__ = ["StoredTensor", "release_pages", "stored_tensors"]

_SAFETENSORS: Mapping[str, torch.dtype] = MappingProxyType({
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16, "I16": torch.int16,
    "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64, "I64": torch.int64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
})  # fmt: skip
_GGUF_PLAIN: Mapping[str, torch.dtype] = MappingProxyType({
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of the checkpoint: `name` as a Hugging Face checkpoint has it, `stored_name` as the file does.

    `type_name` is a torch dtype's name, or the name of a block format whose packed rows are bytes.
    """

    name: str
    stored_name: str
    file: str
    type_name: str
    shape: tuple[int, ...]
    data: memoryview
    rows: NDArray[np.int64] | None = None
    add: float = 0.0

    def tensor(self) -> Tensor:
        """The tensor; packed block formats come as uint8 [rows, bytes of a row]."""
        dtype = getattr(torch, self.type_name, None)
        if not isinstance(dtype, torch.dtype):
            found = _view(self.data, torch.uint8).reshape(*self.shape[:-1], -1)
        else:
            found = _view(self.data, dtype).reshape(self.shape)
        if self.rows is not None:
            shuffled = staging((len(self.rows), *found.shape[1:]), found.dtype)
            found = torch.index_select(found, 0, torch.from_numpy(self.rows), out=shuffled)
        return found + self.add if self.add else found


def stored_tensors(
    checkpoint: Checkpoint, config: Mapping[str, Any], map_location: str | Mapping[str, str] = "cpu"
) -> list[StoredTensor]:
    """Every weight of the checkpoint; large ones first, so that a copy of one never comes on top of all others.

    `map_location` matters to files of torch.save only (see `turret.worker.torch_files`).
    """
    if checkpoint.kind is CheckpointKind.GGUF:
        found = list(_from_gguf(checkpoint, config))
    elif checkpoint.kind is CheckpointKind.PT:
        found = [_from_torch(*found) for found in iter_torch_files(checkpoint.weight_files, map_location)]
    else:
        found = [_from_safetensors(view) for view in iter_safetensors(checkpoint)]
    total = sum(t.data.nbytes for t in found)
    return sorted(found, key=lambda t: t.data.nbytes * 32 < total)


def release_pages(data: memoryview) -> None:
    """Let the system take back all mapped pages of the file that `data` lies in.

    Whoever still reads any finds them in the file again. The whole map, because layers that wait for more tensors read
    theirs once more when they pack, and a fault also maps what lies around.
    """
    if isinstance(data.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.obj.madvise(mmap.MADV_DONTNEED)


def _from_safetensors(view: TensorView) -> StoredTensor:
    dtype = _SAFETENSORS.get(view.dtype)
    if dtype is None:
        raise LoadError(f"{view.file}: tensor {view.name!r} has dtype {view.dtype}, which is not supported here")
    return StoredTensor(view.name, view.name, view.file, _torch_name(dtype), view.shape, view.data)


def _from_torch(file: str, name: str, tensor: Tensor) -> StoredTensor:
    data = tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")
    return StoredTensor(name, name, file, _torch_name(tensor.dtype), tuple(tensor.shape), data)


def _from_gguf(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Iterator[StoredTensor]:
    for tensor in iter_gguf(checkpoint):
        placed = _placed(checkpoint, tensor, config)
        if placed is None:
            continue
        dtype = _GGUF_PLAIN.get(tensor.type_name.lower())
        kind = tensor.type_name.lower() if dtype is None else _torch_name(dtype)
        shape = (1, *tensor.shape) if placed.lifted and len(tensor.shape) == 1 else tensor.shape
        whole = StoredTensor(
            placed.hf_name, tensor.name, tensor.file, kind, shape, tensor.data, placed.rows, placed.add)
        yield from _experts(whole) if placed.stacked else (whole,)


def _experts(stack: StoredTensor) -> Iterator[StoredTensor]:
    """Each expert's matrix of those that a file stacks."""
    if len(stack.shape) != 3:
        raise LoadError(f"{stack.file}: tensor {stack.stored_name!r} of shape {stack.shape} is no stack of matrices")
    count, *shape = stack.shape
    size = stack.data.nbytes // count
    for number in range(count):
        data = stack.data[number * size : (number + 1) * size]
        yield replace(stack, name=stack.name.format(e=number), shape=tuple(shape), data=data)


def _placed(checkpoint: Checkpoint, tensor: GgufTensor, config: Mapping[str, Any]) -> Any:
    try:
        return hf_tensor(checkpoint.gguf_architecture or "", tensor.name, config)
    except LoadError as error:
        raise LoadError(f"{tensor.file}: {error}") from None


def _view(data: memoryview, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(data, dtype=dtype) if data.nbytes else torch.empty(0, dtype=dtype)


def _torch_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
