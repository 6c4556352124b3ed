"""The mixture of experts: a router, experts that are small gated MLPs, and shared experts beside them.

Owns: `MoE`, `MoEBuffers` and the order of a call. Knows no model and no kernel: experts are linears like any other,
each packed on its own, and which tokens they see is the business of the op `moe`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from turret.contracts.ops import ExpertWeights, MoECall, Routing
from turret.errors import LoadError
from turret.nn.context import Scratch
from turret.nn.factory import LayerFactory
from turret.nn.linear import Part
from turret.nn.mlp import MLP, MLPBuffers, MLPSizes
from turret.nn.spec import MoESpec, WeightNames

__all__ = ["MoE", "MoEBuffers", "expert_weights", "shared_weights"]


@dataclass(slots=True)
class MoEBuffers:
    """Scratch of one step: the router's `logits` [T, E], each token's K `weights` and `ids` [T, K], inputs and results
    of experts in their order [T * K, H], an expert's own, and those of the shared expert."""

    logits: Tensor
    weights: Tensor
    ids: Tensor
    sorted: Tensor
    results: Tensor
    expert: MLPBuffers
    shared: MLPBuffers | None
    beside: Tensor | None
    gate: Tensor | None

    @classmethod
    def take(cls, scratch: Scratch, spec: MoESpec, hidden: int, rows: int, dtype: torch.dtype) -> MoEBuffers:
        experts, count = spec.num_experts, spec.top_k
        shared = spec.shared_size > 0
        return cls(
            logits=scratch.take(f"moe_logits.{experts}", (rows, experts), torch.float32),
            weights=scratch.take(f"moe_weights.{count}", (rows, count), torch.float32),
            ids=scratch.take(f"moe_ids.{count}", (rows, count), torch.int64),
            sorted=scratch.take(f"moe_sorted.{count}", (rows, count * hidden), dtype).view(rows * count, hidden),
            results=scratch.take(f"moe_results.{count}", (rows, count * hidden), torch.float32).view(-1, hidden),
            expert=MLPBuffers.take(scratch, spec.expert, rows, dtype),
            shared=MLPBuffers.take(scratch, spec.shared, rows, dtype) if shared else None,
            beside=scratch.take("moe_beside", (rows, hidden), torch.float32) if shared else None,
            gate=scratch.take("moe_gate", (rows, 1), torch.float32) if spec.shared_gate else None,
        )


class MoE:
    """`moe(out, x, buffers)`: out[T, H] float32 from x[T, H]."""

    _packed: ExpertWeights | None = None

    def __init__(self, prefix: str, spec: MoESpec, factory: LayerFactory, names: WeightNames, sizes: MLPSizes) -> None:
        layer = names.layer.format(i=sizes.index)
        self.spec = spec
        self._routing = Routing(spec.scoring, spec.renormalise, spec.scale)
        ops = factory.ops.ops
        self._route, self._moe, self._add, self._add_gated = ops["route"], ops["moe"], ops["add"], ops["add_gated"]
        self._router = factory.linear(
            f"{prefix}.router", [Part(layer + names.router, spec.num_experts)], sizes.hidden, False
        )
        self._bias = None
        if spec.correction_bias:
            self._bias = factory.vector(f"{prefix}.router_bias", layer + names.router_bias, (spec.num_experts,))
        expert_names = [expert_weights(names, number) for number in range(spec.num_experts)]
        self._experts = [
            MLP(f"{prefix}.experts.{number}", spec.expert, factory, own, sizes)
            for number, own in enumerate(expert_names)
        ]
        self._shared = self._shared_gate = None
        if spec.shared_size:
            self._shared = MLP(f"{prefix}.shared", spec.shared, factory, shared_weights(names), sizes)
        if spec.shared_gate:
            if not spec.shared_size:
                raise LoadError("a gate of shared experts needs shared experts")
            self._shared_gate = factory.linear(
                f"{prefix}.shared_gate", [Part(layer + names.shared_gate, 1)], sizes.hidden, False
            )

    def __call__(self, out: Tensor, x: Tensor, buffers: MoEBuffers) -> None:
        self._router(buffers.logits, x)
        bias = None if self._bias is None else self._bias.value
        self._route(buffers.weights, buffers.ids, buffers.logits, bias, self._routing)
        experts = [_over(expert, buffers.expert) for expert in self._experts]
        scratch = buffers.sorted, buffers.results
        self._moe(MoECall(out, x, buffers.weights, buffers.ids, experts, *scratch, self._together()))
        if self._shared is not None:
            assert buffers.shared is not None and buffers.beside is not None
            self._shared(buffers.beside, x, buffers.shared)
            if self._shared_gate is not None:
                assert buffers.gate is not None
                self._shared_gate(buffers.gate, x)
                self._add_gated(out, buffers.beside, buffers.gate)
            else:
                self._add(out, buffers.beside)


    def _together(self) -> ExpertWeights | None:
        """The experts for an op that multiplies them together; what it keeps stays as long as the weights do."""
        first, have = self._experts[0].up.sole, self._packed
        if have is None or first is None or have.up[0] is not first[1]:
            self._packed = _packed_together(self._experts, self.spec.activation)
        return self._packed


def expert_weights(names: WeightNames, number: int) -> WeightNames:
    """Names by which an MLP finds one expert."""
    prefix = names.experts.format(e=number)
    gate, up, down = (prefix + name for name in (names.expert_gate, names.expert_up, names.expert_down))
    return replace(names, gate=gate, up=up, down=down, gate_up=None)


def shared_weights(names: WeightNames) -> WeightNames:
    """Names by which an MLP finds the shared expert."""
    gate, up, down = (names.shared + name for name in ("gate_proj", "up_proj", "down_proj"))
    return replace(names, gate=gate, up=up, down=down, gate_up=None)


def _packed_together(experts: list[MLP], activation: str) -> ExpertWeights | None:
    """None where an expert's weight is in pieces, or not all are the same kernel's."""
    ups, downs = [expert.up.sole for expert in experts], [expert.down.sole for expert in experts]
    found = [weight for weight in (*ups, *downs) if weight is not None]
    kernel = found[0][0] if found else None
    if kernel is None or len(found) < 2 * len(experts) or any(own is not kernel for own, _ in found):
        return None
    packed = [weight for _, weight in found]
    return ExpertWeights(kernel, packed[: len(experts)], packed[len(experts) :], activation)


def _over(expert: MLP, buffers: MLPBuffers) -> Callable[[Tensor, Tensor], None]:
    """The expert as the op calls it: any number of rows, in the same scratch memory."""

    def run(out: Tensor, x: Tensor) -> None:
        rows = x.shape[0]
        expert(out, x, MLPBuffers(buffers.up[:rows], buffers.active[:rows]))

    return run
