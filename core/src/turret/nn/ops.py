"""The table of named ops: for each name the best provider's, else the reference.

Owns: `OpTable` and the map of reference ops. Knows no provider by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from turret.contracts.ops import OP_NAMES, LinearKernel, OpProvider
from turret.errors import PluginError
from turret.nn.ops_activation import activation, add, copy, gelu_and_mul, scale, silu_and_mul, softcap
from turret.nn.ops_choice import argmax
from turret.nn.ops_moe import add_gated, moe, route
from turret.nn.ops_norm import fused_add_rms_norm, layer_norm, rms_norm
from turret.nn.ops_position import embedding, rotary
from turret.nn.ops_sample import sample

__all__ = ["REFERENCE", "REFERENCE_OPS", "OpTable"]

REFERENCE = "reference"

REFERENCE_OPS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "embedding": embedding,
        "rms_norm": rms_norm,
        "fused_add_rms_norm": fused_add_rms_norm,
        "layer_norm": layer_norm,
        "rotary": rotary,
        "silu_and_mul": silu_and_mul,
        "gelu_and_mul": gelu_and_mul,
        "activation": activation,
        "softcap": softcap,
        "add": add,
        "scale": scale,
        "copy": copy,
        "add_gated": add_gated,
        "route": route,
        "moe": moe,
        "argmax": argmax,
        "sample": sample,
    }
)


@dataclass(frozen=True)
class OpTable:
    """Resolved ops. `ops[name]` is callable for every name of OP_NAMES, `origin[name]` says whose it is, and `kernels`
    are the providers' linear kernels, best first (the references that follow them are the layer factory's)."""

    ops: Mapping[str, Callable[..., None]]
    origin: Mapping[str, str]
    kernels: tuple[LinearKernel, ...]

    @classmethod
    def resolve(cls, providers: Sequence[OpProvider] = ()) -> OpTable:
        """From providers, best first. Raises PluginError for an op name that the contract does not know."""
        ops, origin = dict(REFERENCE_OPS), dict.fromkeys(OP_NAMES, REFERENCE)
        kernels: list[LinearKernel] = []
        for provider in reversed(providers):
            offered = provider.ops()
            unknown = sorted(set(offered) - set(OP_NAMES))
            if unknown:
                raise PluginError(f"provider {provider.name!r} offers unknown ops: {', '.join(unknown)}", stage="ops")
            ops.update(offered)
            origin.update(dict.fromkeys(offered, provider.name))
        for provider in providers:
            kernels.extend(provider.linear_kernels())
        return cls(MappingProxyType(ops), MappingProxyType(origin), tuple(kernels))
