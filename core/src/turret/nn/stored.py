"""Packed weights of linear layers as bytes, and back.

Owns: `StoredPiece` and the way between a layer's pieces and memory. Knows no file and no kernel's layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from turret.contracts.ops import LinearKernel, StorableKernel

__all__ = ["StoredPiece", "pieces_in_memory", "rebuilt"]


class StoredPiece(msgspec.Struct, frozen=True):
    """Columns [start, stop) of a layer as its kernel packed them: the kernel's name and its header; `held` is what the
    layer's tensors came to before (on its first piece)."""

    kernel: str
    start: int
    stop: int
    header: bytes
    held: int = 0

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> StoredPiece:
        return msgspec.msgpack.decode(data, type=cls)


def pieces_in_memory(
    pieces: Sequence[tuple[LinearKernel, Any, int, int]], held: int
) -> Iterator[tuple[StoredPiece, memoryview]]:
    """(kernel, packed, start, stop) of a whole layer as stored pieces; nothing where a kernel keeps nothing."""
    kernels = [kernel for kernel, _, _, _ in pieces]
    if not all(isinstance(kernel, StorableKernel) for kernel in kernels):
        return
    for kernel, packed, start, stop in pieces:
        assert isinstance(kernel, StorableKernel)
        header, data = kernel.store(packed)
        yield StoredPiece(kernel.name, start, stop, header, held if start == 0 else 0), data


def rebuilt(kernels: Sequence[LinearKernel], piece: StoredPiece) -> tuple[LinearKernel, Any, memoryview]:
    """The kernel, the packed weight, and its memory, which is to be filled. Raises ValueError for a strange header."""
    for kernel in kernels:
        if kernel.name == piece.kernel and isinstance(kernel, StorableKernel):
            packed, memory = kernel.restore(piece.header)
            return kernel, packed, memory
    raise ValueError(f"no kernel {piece.kernel!r} that keeps packed weights")
