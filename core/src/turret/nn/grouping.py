"""How a decoder's layers share the KV cache.

Owns: `kv_groups`. Knows no tensors.

All groups draw pages of one size from one pool, and a block id costs a page in each of `slots` tensors, as many as the
largest group has layers. So groups of unequal size waste memory: with 4 full layers and 22 sliding ones, groups of 4
(one full, six sliding) waste two layers' pages, one group of each kind would waste eighteen.
"""

from __future__ import annotations

from collections.abc import Sequence

from turret.messages import KVGroup, KVGroupKind

__all__ = ["kv_groups"]

MOST_GROUPS = 12
"""Every group is a block table to keep per request; beyond this many, larger groups with some waste are better."""

NEARLY_EQUAL = 1.25


def kv_groups(windows: Sequence[int | None], max_position: int) -> list[KVGroup]:
    """Groups from each layer's window (None: sees everything). A window no shorter than `max_position` is none."""
    classes: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        effective = None if window is None or window >= max_position else window
        classes.setdefault(effective, []).append(layer)
    size = _group_size([len(layers) for layers in classes.values()])
    groups = []
    for window in sorted(classes, key=lambda w: (w is not None, w or 0)):
        kind = KVGroupKind.FULL if window is None else KVGroupKind.SLIDING
        groups += [KVGroup(kind, layers, window) for layers in _split(classes[window], size)]
    return groups


def _group_size(counts: list[int]) -> int:
    """The largest number of layers a group may have."""
    smallest, largest = min(counts), max(counts)
    if largest <= smallest * NEARLY_EQUAL:
        return largest
    size = smallest
    while sum(-(-count // size) for count in counts) > MOST_GROUPS:
        size += 1
    return size


def _split(layers: list[int], size: int) -> list[list[int]]:
    """Runs of neighbours, as equal as can be."""
    parts = -(-len(layers) // size)
    short, extra = divmod(len(layers), parts)
    runs, start = [], 0
    for part in range(parts):
        stop = start + short + (part < extra)
        runs.append(layers[start:stop])
        start = stop
    return runs
