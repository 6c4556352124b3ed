"""The grid of attention queries that a manifest's capabilities span, and queries just outside of it.

Owns the choice of points: a base point, each axis varied on its own, and the features together. Knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turret.contracts import AttentionQuery
from turret.plugins.capabilities import covers

__all__ = ["declared", "inside", "outside"]

HEAD_SIZES = (64, 1, 8, 16, 32, 48, 72, 80, 96, 128, 192, 256)
BLOCK_SIZES = (16, 1, 8, 32, 64, 128)
HEADS = ((8, 2), (4, 4), (6, 1))
DTYPES = ("float32", "bfloat16", "float16")
KV_DTYPES = (*DTYPES, "int8", "float8_e4m3fn", "float8_e5m2")
FEATURES = ("sliding_window", "softcap", "sinks", "alibi", "bidirectional")
STRANGE: Mapping[str, Sequence[Any]] = {
    "dtype": ("float64", "int8"),
    "kv_dtype": ("float64", "int16"),
    "head_size": (100_003,),
    "block_size": (100_003,),
    "variant": ("mla", "linear"),
}
"""Values that a backend which declares its limits on that axis must refuse, where they are outside of them."""


def declared(capabilities: Mapping[str, Any], field: str) -> Any:
    """What the manifest says of a query's field; None when it says nothing."""
    return capabilities.get(field, capabilities.get(f"{field}s"))


def _choices(capabilities: Mapping[str, Any], field: str, usual: Sequence[Any]) -> list[Any]:
    """Declared values as they stand (lists), or the usual ones that are covered; at least one."""
    said = declared(capabilities, field)
    if isinstance(said, (list, tuple)) and "*" not in said:
        return sorted(said, key=lambda value: usual.index(value) if value in usual else len(usual))
    return [value for value in usual if said is None or covers(said, value)] or [said]


def inside(capabilities: Mapping[str, Any], device: str) -> Iterator[AttentionQuery]:
    """Points that the capabilities cover: few, but each declared value at least once."""
    dtypes = [dtype for dtype in _choices(capabilities, "dtype", DTYPES) if dtype in DTYPES]
    sizes = _choices(capabilities, "head_size", HEAD_SIZES)
    blocks = _choices(capabilities, "block_size", BLOCK_SIZES)
    base = AttentionQuery(device, dtypes[0], _kv(capabilities, dtypes[0]), sizes[0], sizes[0], 8, 2, blocks[0])
    yield base
    yield from (replace(base, dtype=dtype, kv_dtype=_kv(capabilities, dtype)) for dtype in dtypes[1:])
    kinds = [kind for kind in _choices(capabilities, "kv_dtype", KV_DTYPES) if kind in KV_DTYPES]
    yield from (replace(base, dtype=dtype, kv_dtype=kind) for dtype in dtypes for kind in kinds)
    yield from (replace(base, head_size=size, value_head_size=size) for size in sizes[1:])
    yield from (replace(base, block_size=block) for block in blocks[1:])
    yield from (replace(base, num_heads=heads, num_kv_heads=kv_heads) for heads, kv_heads in HEADS[1:])
    if declared(capabilities, "value_head_size") is not None and covers(declared(capabilities, "value_head_size"), 32):
        yield replace(base, value_head_size=32)
    variants = declared(capabilities, "variant")
    if variants is not None and covers(variants, "mla"):  # one KV head; values are the first numbers of the keys
        size, value = (576, 512) if covers(declared(capabilities, "head_size"), 576) else (sizes[0], sizes[0])
        latent = replace(base, variant="mla", num_kv_heads=1, head_size=size, value_head_size=value)
        yield from (replace(latent, dtype=dtype, kv_dtype=_kv(capabilities, dtype)) for dtype in dtypes)
    offered = [feature for feature in FEATURES if declared(capabilities, feature) is True]
    typed = [replace(base, dtype=dtype, kv_dtype=_kv(capabilities, dtype)) for dtype in dtypes]
    yield from (_with(point, feature) for point in typed for feature in offered)
    if {"sliding_window", "softcap"} <= set(offered):
        yield _with(_with(base, "sliding_window"), "softcap")


def _with(query: AttentionQuery, feature: str) -> AttentionQuery:
    return replace(query, **{feature: True})  # type: ignore[arg-type]  # the features are flags


def _kv(capabilities: Mapping[str, Any], dtype: str) -> str:
    """The cache holds the activations' own type where that is declared, else the first that is."""
    choices = _choices(capabilities, "kv_dtype", DTYPES)
    found: str = dtype if dtype in choices else choices[0]
    return found


def outside(capabilities: Mapping[str, Any], base: AttentionQuery) -> Iterator[tuple[str, AttentionQuery]]:
    """Points beyond what is declared, one axis at a time."""
    for field, values in STRANGE.items():
        said = declared(capabilities, field)
        for value in values:
            if said is not None and not covers(said, value):
                also = {"value_head_size": value} if field == "head_size" else {}
                yield f"{field}={value}", replace(base, **{field: value}, **also)
    for feature in FEATURES:
        if declared(capabilities, feature) is False:
            yield feature, _with(base, feature)
