"""The tensors that hold keys and values.

Owns: one tensor per slot and which layers share it. Knows nothing of blocks' owners.

The i-th layer of each group lives in the i-th tensor: a block id belongs to one group at a time, so layers that share a
tensor never share a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from turret.contracts import KVLayout
from turret.errors import ConfigError, NotSupportedError
from turret.messages import KVGroup

__all__ = ["common_layout", "make_kv_cache"]

_LINE = 64
"""Pages begin with a cache line: a vector load across two lines costs two."""


def common_layout(layouts: Sequence[KVLayout]) -> KVLayout:
    """The one layout of all layers; raises NotSupportedError when they differ."""
    if not layouts:
        raise NotSupportedError("the model has no attention layer that keeps keys and values")
    for layer, layout in enumerate(layouts):
        if layout != layouts[0]:
            raise NotSupportedError(
                f"layer {layer} wants KV pages {layout}, layer 0 wants {layouts[0]}; one pool serves one kind of page")
    return layouts[0]


def make_kv_cache(layout: KVLayout, groups: Sequence[KVGroup], num_blocks: int, device: str) -> list[Tensor]:
    """Each layer's cache [num_blocks, *page_shape], by layer index; zeros, which a system hands out only when touched.

    Raises ConfigError when the device has no room.
    """
    slots = max(len(group.layers) for group in groups)
    shape = (num_blocks, *layout.page_shape)
    try:
        tensors = [_zeros(shape, getattr(torch, layout.dtype), device) for _ in range(slots)]
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"the KV cache of {num_blocks} blocks ({num_blocks * layout.page_bytes * slots / 2**30:.2f} GiB) does not "
            f"fit on {device}: {error}; lower --kv-cache-memory-bytes or --gpu-memory-utilization",
            "kv-cache-memory-bytes") from error
    by_layer = {layer: tensors[slot] for group in groups for slot, layer in enumerate(group.layers)}
    return [by_layer[layer] for layer in range(len(by_layer))]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Zeros; on the CPU as untouched memory. torch.zeros writes them, which takes seconds a gigabyte for pages that may
    never be used; numpy asks the system for memory that is zero already."""
    if device != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = torch.from_numpy(np.zeros(size + _LINE, dtype=np.uint8))
    start = -memory.data_ptr() % _LINE
    return memory[start : start + size].view(dtype).view(shape)
