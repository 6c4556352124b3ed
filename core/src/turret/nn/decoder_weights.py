"""Weight placement derived from a spec: which stored tensor goes to which layer of the `Decoder`.

Owns: `decoder_weights`. Knows no file. The names come from the spec's `WeightNames`, the targets from `Decoder`.
"""

from __future__ import annotations

from turret.contracts.models import Placement, WeightRule
from turret.nn.moe import expert_weights, shared_weights
from turret.nn.spec import BlockSpec, DecoderSpec, MoESpec, Placing, QKNorm, WeightNames

__all__ = ["decoder_weights"]

Places = dict[str, tuple[str, int | None]]


class _Places(dict[str, tuple[str, int | None]]):
    """Refuses to give one stored name to two layers: a spec whose names do not fit its placing."""

    def __setitem__(self, name: str, place: tuple[str, int | None]) -> None:
        if name in self:
            raise ValueError(f"{name!r} would be both {self[name][0]} and {place[0]}; the spec's WeightNames clash")
        super().__setitem__(name, place)


def decoder_weights(spec: DecoderSpec) -> WeightRule:
    """The rule for a spec: layer names map to targets, a parameter's own name (`weight`, `qweight`, ...) stays.

    Names that the spec ignores, and the head of a tied model (files may carry it anyway), are skipped.
    """
    names = spec.names
    places: Places = {names.embed: ("embed", None), names.norm: ("norm", None)}
    if not spec.tied:
        places[names.head] = ("head", None)
    whole: dict[str, Placement] = {}
    for index, block in enumerate(spec.blocks):
        places.update(_block_places(index, block, names))
        if block.attention.sinks:
            whole[names.layer.format(i=index) + names.sinks] = Placement(f"layers.{index}.sinks.weight")
        if isinstance(block.mlp, MoESpec) and block.mlp.correction_bias:
            whole[names.layer.format(i=index) + names.router_bias] = Placement(f"layers.{index}.router_bias.weight")

    def rule(name: str) -> Placement | None:
        if name in whole:
            return whole[name]
        layer, _, param = name.rpartition(".")
        place = places.get(layer)
        if place is not None:
            return Placement(f"{place[0]}.{param}", place[1])
        if any(part in name for part in names.ignored) or (spec.tied and layer == names.head):
            return Placement(skip=True)
        return None

    return rule


def _block_places(index: int, block: BlockSpec, names: WeightNames) -> Places:
    layer, prefix = names.layer.format(i=index), f"layers.{index}"
    places: Places = _Places()
    places[layer + names.o] = (f"{prefix}.o", None)
    if names.qkv is not None:
        places[layer + names.qkv] = (f"{prefix}.qkv", None)
    else:
        for shard, name in enumerate((names.q, names.k, names.v)):
            places[layer + name] = (f"{prefix}.qkv", shard)
    if isinstance(block.mlp, MoESpec):
        _moe_places(places, (layer, prefix), block.mlp, names)
    else:
        _mlp_places(places, (layer, prefix), block.mlp.gated, names)
    if block.attention.qk_norm is not QKNorm.NONE:
        places[layer + names.q_norm] = (f"{prefix}.q_norm", None)
        places[layer + names.k_norm] = (f"{prefix}.k_norm", None)
    if block.placing is not Placing.POST:
        places[layer + names.attn_norm] = (f"{prefix}.attn_norm", None)
    if block.placing in (Placing.PRE, Placing.SANDWICH):
        places[layer + names.mlp_norm] = (f"{prefix}.mlp_norm", None)
    if block.placing in (Placing.POST, Placing.SANDWICH):
        places[layer + names.attn_post_norm] = (f"{prefix}.attn_post_norm", None)
        places[layer + names.mlp_post_norm] = (f"{prefix}.mlp_post_norm", None)
    return places


def _mlp_places(places: Places, at: tuple[str, str], gated: bool, names: WeightNames) -> None:
    """An MLP whose stored names begin with `at[0]` and whose targets with `at[1]`."""
    layer, prefix = at
    places[layer + names.down] = (f"{prefix}.down", None)
    if not gated:
        places[layer + names.up] = (f"{prefix}.up", None)
    elif names.gate_up is not None:
        places[layer + names.gate_up] = (f"{prefix}.gate_up", None)
    else:
        places[layer + names.gate] = (f"{prefix}.gate_up", 0)
        places[layer + names.up] = (f"{prefix}.gate_up", 1)


def _moe_places(places: Places, at: tuple[str, str], moe: MoESpec, names: WeightNames) -> None:
    layer, prefix = at
    places[layer + names.router] = (f"{prefix}.router", None)
    for number in range(moe.num_experts):
        _mlp_places(places, (layer, f"{prefix}.experts.{number}"), True, expert_weights(names, number))
    if moe.shared_size:
        _mlp_places(places, (layer, f"{prefix}.shared"), True, shared_weights(names))
    if moe.shared_gate:
        places[layer + names.shared_gate] = (f"{prefix}.shared_gate", None)
