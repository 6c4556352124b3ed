"""Torch calls between the native kernels of a recorded forward, made again for any number of tokens.

Owns: `merge`, which makes of two traces calls that serve every step, and `TorchParts`, which makes them. Knows no
model.

Each number of a call is known for two runs with different token counts: one that did not change is a constant, one that
grew is a linear function of the tokens. Views that nothing computes with are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from turret.contracts import StepBindings
from turret.errors import NotSupportedError
from turret_platform_cpu.trace import Call, Result, StepPart, Trace, parts_of

__all__ = ["TorchParts", "merge"]

_DIFFERENT = "its torch calls depend on the number of tokens"


@dataclass(frozen=True, slots=True)
class _Growing:
    """A whole number that is `slope` times the step's tokens plus `offset`."""

    slope: int
    offset: int


class TorchParts:
    """Calls in parts: `run(after, step)` makes those that follow `after` native kernels."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._found: list[Any] = [None] * len(calls)
        self._parts: dict[int, list[int]] = {}
        for index, place in enumerate(_placed(calls)):
            if place is not None:
                self._parts.setdefault(place, []).append(index)

    @property
    def places(self) -> list[int]:
        """After how many native kernels there are parts, in order."""
        return sorted(self._parts)

    @property
    def names(self) -> list[str]:
        """What each part computes with."""
        return [", ".join(dict.fromkeys(self._computing(after))) for after in self.places]

    def run(self, after: int, step: StepBindings) -> None:
        """Make one part's calls."""
        for index in self._parts[after]:
            call = self._calls[index]
            self._found[index] = _settled(call, call.function(
                *self._fill(call.args, step), **self._fill(call.kwargs, step)))

    def _computing(self, after: int) -> Iterator[str]:
        return (call.name for call in (self._calls[i] for i in self._parts[after]) if not (call.views or call.empty))

    def _fill(self, value: Any, step: StepBindings) -> Any:
        """Arguments of a call for one step."""
        kind = type(value)
        if kind is Result:
            found = self._found[value.call]
            return found if value.index is None else found[value.index]
        if kind is _Growing:
            return value.slope * step.ids.shape[0] + value.offset
        if kind is StepPart:
            return value.of(step)
        if kind is slice:
            return slice(*(self._fill(part, step) for part in _ends(value)))
        if kind is tuple or kind is list:
            return kind(self._fill(part, step) for part in value)
        if kind is dict:
            return {key: self._fill(part, step) for key, part in value.items()}
        return value


def merge(first: Trace, second: Trace) -> list[Call]:
    """The calls of two runs as one list. Raises NotSupportedError where they differ in more than numbers."""
    a, b = first.calls, second.calls
    if [(call.name, call.after) for call in a] != [(call.name, call.after) for call in b]:
        raise NotSupportedError(_DIFFERENT)
    solve = _Solver(first.tokens, second.tokens)
    for x, y in zip(a, b, strict=True):
        x.args, x.kwargs = solve(x.args, y.args), solve(x.kwargs, y.kwargs)
        for one, two in zip(x.sizes, y.sizes, strict=True):
            if one != two and one * second.tokens != two * first.tokens:
                raise NotSupportedError(f"what {x.name} makes grows otherwise than the step's tokens")
    return a


def _placed(calls: Sequence[Call]) -> list[int | None]:
    """After how many native kernels a replay makes each call; None for views and rooms that nothing computes with. A
    view waits for whoever needs it first, so that it splits nothing by itself."""
    places: list[int | None] = [None if call.views or call.empty else call.after for call in calls]
    for call, place in zip(reversed(calls), reversed(places), strict=True):
        if place is None:
            continue
        for source in _results((call.args, call.kwargs)):
            made = calls[source.call]
            if made.views or made.empty:
                own = places[source.call]
                places[source.call] = place if own is None else min(own, place)
    return places


def _settled(call: Call, found: Any) -> Any:
    """The results, those that were made where the recording put them."""
    outputs, made = parts_of(found), 0
    for place, memory in enumerate(call.memory):
        output: Tensor = outputs[place]
        if memory is None:
            continue
        part = memory[: output.numel()].view(output.shape)
        if not call.empty:
            part.copy_(output)
        outputs[place] = part
        made += 1
    if not made:
        return found
    return outputs if isinstance(found, (tuple, list)) else outputs[0]


class _Solver:
    """Numbers of two runs as functions of their tokens."""

    def __init__(self, first: int, second: int) -> None:
        self._first, self._second = first, second

    def __call__(self, a: Any, b: Any) -> Any:
        if type(a) is not type(b):
            raise NotSupportedError(_DIFFERENT)
        if isinstance(a, Tensor):
            if a is not b:
                raise NotSupportedError("its torch calls take tensors that are made anew for each step")
            return a
        if isinstance(a, slice):
            return slice(*(self(x, y) for x, y in zip(_ends(a), _ends(b), strict=True)))
        if isinstance(a, (tuple, list)):
            if len(a) != len(b):
                raise NotSupportedError(_DIFFERENT)
            return type(a)(self(x, y) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict):
            return {key: self(a[key], b[key]) for key in a}
        if a == b:
            return a
        if type(a) is not int:
            raise NotSupportedError(_DIFFERENT)
        slope, rest = divmod(a - b, self._first - self._second)
        if rest:
            raise NotSupportedError("a size in its torch calls grows otherwise than the step's tokens")
        return _Growing(slope, a - slope * self._first)


def _ends(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def _results(value: Any) -> Iterator[Result]:
    if isinstance(value, Result):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _results(part)
    elif isinstance(value, dict):
        yield from _results(list(value.values()))
    elif isinstance(value, slice):
        yield from _results(list(_ends(value)))
