"""What a forward asks of torch while it is recorded.

Owns: `Trace`, the watch over torch's functions, and `Call`, what it keeps of one. Knows no model and no replay.

Natives append themselves to their program; everything else that a forward computes goes through torch's Python
functions, each of which the watch sees. A tensor that torch made gets memory that stays, since native kernels
remember addresses. Reading a tensor's values in Python cannot be repeated and is refused.

The watch works on torch's functions, not on its dispatcher: entering a dispatch mode loads torch's compiler, a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from turret.contracts import StepBindings

__all__ = ["Call", "Result", "StepPart", "Trace", "parts_of"]

_FACTS = frozenset({
    "shape", "dtype", "device", "layout", "ndim", "is_cpu", "is_cuda", "requires_grad", "nbytes", "itemsize",
    "data_ptr", "stride", "size", "dim", "numel", "element_size", "is_contiguous", "storage_offset", "untyped_storage",
    "is_floating_point", "is_complex", "is_inference", "is_shared", "ndimension", "nelement", "__len__", "__hash__",
    "is_sparse", "is_quantized", "is_meta", "is_nested", "names", "result_type", "__repr__",
})  # fmt: skip
"""Questions about a tensor that its values do not answer."""

_VIEWS = frozenset({
    "view", "reshape", "split", "chunk", "unbind", "__getitem__", "narrow", "select", "transpose", "t", "permute",
    "squeeze", "unsqueeze", "expand", "flatten", "as_strided", "view_as", "expand_as", "detach", "unflatten", "movedim",
    "swapaxes", "T", "mT", "H", "mH", "diagonal", "tensor_split", "split_with_sizes", "unfold", "ravel", "contiguous",
    "to", "reshape_as", "alias",
})  # fmt: skip
"""Functions that compute nothing where what they return lies in the memory they were given."""

_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"})


@dataclass(frozen=True, slots=True)
class Result:
    """What an earlier call returned; `index` where it returned several."""

    call: int
    index: int | None


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of the step: its ids, its positions, a field of a group's geometry, or the step itself."""

    name: str
    group: int = 0

    def of(self, step: StepBindings) -> Any:
        if self.name == "step":
            return step
        if self.name in ("ids", "positions"):
            return getattr(step, self.name)
        return getattr(step.attention[self.group], self.name)


@dataclass(slots=True)
class Call:
    """One call of a torch function: its arguments, with `Result` and `StepPart` in place of tensors, and after how
    many native kernels it ran. `views`: it computes nothing. `memory[i]`: where result i stays, flat, and `sizes[i]`
    its number of values; None for results in memory that it was given. `empty`: it made room only."""

    name: str
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    after: int
    views: bool
    empty: bool = False
    memory: list[Tensor | None] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class Trace(TorchFunctionMode):
    """Watches one forward for `step`. `position()` is the number of native kernels so far; what torch makes gets
    memory for `most` tokens."""

    def __init__(self, step: StepBindings, position: Callable[[], int], most: int) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.fault: str | None = None
        self.tokens = step.ids.shape[0]
        self._step = step
        self._most = most
        self._paused = False
        self._position = position
        self._known: dict[int, Any] = {}
        self._alive: list[Tensor] = []
        for name in ("ids", "positions"):
            self._know(getattr(step, name), StepPart(name))
        for group, batch in enumerate(step.attention):
            for name in ("query_start", "seq_lens", "block_table", "slot_mapping"):
                self._know(getattr(batch, name), StepPart(name, group))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = _name(func)
        found = func(*args, **kwargs)
        if name in _FACTS or self._paused:
            return found
        outputs = parts_of(found)
        if found is not None and not all(isinstance(output, Tensor) for output in outputs):
            self.fault = self.fault or f"its Python code reads tensors ({name})"
            return found
        call = Call(
            resolve_name(func) or name, func, self._template(args), self._template(kwargs), self._position(), False,
            name in _EMPTY,
        )  # fmt: skip
        if found is not None:
            given = {_address(tensor) for tensor in _tensors((args, kwargs))}
            outputs = self._outputs(call, outputs, given, name)
            single = isinstance(found, Tensor)
            for index, tensor in enumerate(outputs):
                self._know(tensor, Result(len(self.calls), None if single else index))
            found = outputs[0] if single else type(found)(outputs)
        self.calls.append(call)
        return found

    def outside(
        self, name: str, work: Callable[[StepBindings, Sequence[Tensor]], None], tensors: Sequence[Tensor]
    ) -> None:
        """Do `work` unwatched, as one call that takes the step and these tensors."""
        args = (StepPart("step"), tuple(self._template(tensor) for tensor in tensors))
        self.calls.append(Call(name, work, args, {}, self._position(), False))
        self._paused = True
        try:
            work(self._step, tensors)
        finally:
            self._paused = False

    def _outputs(self, call: Call, found: list[Tensor], given: set[int], name: str) -> list[Tensor]:
        """What the model gets in place of the results: those that were made, where they stay."""
        inside = [_address(tensor) in given for tensor in found]
        call.views = name in _VIEWS and all(inside)
        return [self._inside(call, x) if own else self._made(call, x) for x, own in zip(found, inside, strict=True)]

    def _know(self, tensor: Tensor, source: Any) -> None:
        self._alive.append(tensor)  # an address of a dead object would be somebody else's
        self._known[id(tensor)] = source

    def _inside(self, call: Call, tensor: Tensor) -> Tensor:
        call.memory.append(None)
        call.sizes.append(0)
        return tensor

    def _made(self, call: Call, tensor: Tensor) -> Tensor:
        """The same values in memory that is large enough for the largest step and stays."""
        size = tensor.numel()
        grown = size // self.tokens * self._most if size % self.tokens == 0 else size
        memory = torch.empty(grown, dtype=tensor.dtype)
        call.memory.append(memory)
        call.sizes.append(size)
        part = memory[:size].view(tensor.shape)
        if not call.empty:
            part.copy_(tensor)
        return part

    def _template(self, value: Any) -> Any:
        """The value with sources in place of tensors."""
        if isinstance(value, Tensor):
            return self._known.get(id(value), value)
        if isinstance(value, slice):
            return slice(*(self._template(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, tuple):
            return tuple(self._template(part) for part in value)
        if isinstance(value, list):
            return [self._template(part) for part in value]
        if isinstance(value, dict):
            return {key: self._template(part) for key, part in value.items()}
        return value


def parts_of(found: Any) -> list[Any]:
    """What a function returned, as a list."""
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _name(function: Any) -> str:
    """The bare name; of a property that of the property."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", "")
    return str(name)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
