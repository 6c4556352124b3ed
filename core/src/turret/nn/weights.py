"""How layers receive their weights: one stored tensor at a time, in any order, packed as soon as a layer is complete.

Owns: `Parameter`, `Receiver` and the checks of shape and dtype. Knows neither files nor layers' mathematics.

A tensor is held as given (it may be a mapped view of a file) until its layer has everything; the layer then packs once
and the receiver lets go, so that peak memory is the model plus one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turret.contracts.quant import ParamSpec
from turret.errors import LoadError

__all__ = ["FLOATING", "Parameter", "Receiver", "torch_dtype"]

FLOATING = "floating"
"""A ParamSpec dtype that any of PLAIN_DTYPES satisfies: plain weights are cast to the model's dtype by their layer."""

PLAIN_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16"})
"""An 8-bit float is no plain weight: without its scales its numbers mean nothing."""

WHOLE = 0
"""The shard number of a layer that is not fused."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One stored tensor that a layer waits for.

    `target` is the layer's name in the model, `shard` which part of a fused layer, `param` the parameter's own name
    (`weight`, `bias`, `qweight`), `name` the checkpoint's name for it, `init` how `fill_random` makes one up: `matrix`,
    `gain` (near `init_mean`) or `zeros`.
    """

    target: str
    shard: int
    param: str
    name: str
    spec: ParamSpec
    init: str = "matrix"
    init_mean: float = 0.0


Adopt = Callable[[Mapping[tuple[int, str], Tensor]], int]
"""Takes a layer's complete tensors by (shard, param) and returns the bytes it holds from then on."""


class Receiver:
    """Collects the tensors of one layer, then hands them to the layer's `adopt`."""

    def __init__(self, target: str, parameters: Sequence[Parameter], adopt: Adopt) -> None:
        self.target = target
        self.parameters = tuple(parameters)
        self.held_bytes = 0
        self._adopt = adopt
        self._waiting = {(p.shard, p.param): p for p in parameters}
        self._received: dict[tuple[int, str], Tensor] = {}

    @property
    def complete(self) -> bool:
        return not self._waiting

    def missing(self) -> list[Parameter]:
        """What has not arrived."""
        return list(self._waiting.values())

    def fulfil(self, held: int) -> None:
        """The layer has its weights from elsewhere, `held` bytes of them: of its tensors only biases still come."""
        self.held_bytes = held
        self._waiting = {key: parameter for key, parameter in self._waiting.items() if key[1] == "bias"}

    def put(self, shard: int | None, param: str, tensor: Tensor) -> None:
        """Take one tensor; packs the layer if it was the last one. Raises LoadError that names the tensor."""
        key = (WHOLE if shard is None else shard, param)
        waiting = self._waiting.get(key)
        if waiting is None:
            self._refuse(key, tensor)
            return
        _check(waiting, tensor)
        del self._waiting[key]
        self._received[key] = tensor
        if not self._waiting:
            received, self._received = self._received, {}
            self.held_bytes += self._adopt(received)

    def _refuse(self, key: tuple[int, str], tensor: Tensor) -> None:
        """Some quantizers store an all-zero bias for layers that have none; anything else unexpected is an error."""
        shard, param = key
        known = [p for p in self.parameters if p.shard == shard]
        if known and param == "bias" and all(p.param != "bias" for p in known) and not bool(tensor.any()):
            return
        if any((p.shard, p.param) == key for p in self.parameters):
            raise LoadError(f"tensor for {self.target}.{param} (shard {shard}) arrived twice")
        names = ", ".join(sorted(p.name for p in known)) or "no such shard"
        raise LoadError(f"{self.target} (shard {shard}) has no parameter {param!r}; it expects {names}")


def _check(parameter: Parameter, tensor: Tensor) -> None:
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    expected = parameter.spec
    if shape != tuple(expected.shape):
        raise LoadError(f"{parameter.name}: expected shape {tuple(expected.shape)}, the file has {shape}")
    fits = dtype in PLAIN_DTYPES if expected.dtype == FLOATING else dtype == expected.dtype
    if not fits:
        raise LoadError(f"{parameter.name}: expected dtype {expected.dtype}, the file has {dtype}")


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name without `torch.`; raises LoadError for an unknown one."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise LoadError(f"unknown dtype {name!r}")
    return dtype
