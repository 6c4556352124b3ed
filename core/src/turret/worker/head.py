"""From hidden states to logits or tokens: the model's head over the rows that are sampled from, recorded if it can be.

Owns: `HeadRunner`, its scratch memory and its two programs. Knows no sampling parameters.

A recorded head picks its rows out of the buffer in which a recorded forward leaves hidden states. Where every row only
wants its most likely token, the second program finds it too, and logits never leave the platform's caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.contracts import GraphRecorder, Model, Program, StepBindings, Variation
from turret.errors import NotSupportedError
from turret.nn import AttentionState, ForwardContext, Scratch
from turret.worker.graph import buffer_of

__all__ = ["HeadRunner", "HeadSetup"]


@dataclass(frozen=True, slots=True)
class HeadSetup:
    """The model, the ops it calls, the most rows at a time, the device, and what stands for attention in a context."""

    model: Model
    ops: dict[str, Callable[..., None]]
    max_rows: int
    device: str
    attention: AttentionState


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Programs over `hidden`: logits alone, and with them the best token of each row and its value."""

    hidden: Tensor
    logits: Tensor
    plain: Program
    greedy: Program


class HeadRunner:
    """Logits of up to `max_rows` rows at a time; what it returns holds until the next call."""

    def __init__(self, setup: HeadSetup) -> None:
        self._setup = setup
        self._scratch = Scratch(setup.max_rows, setup.device)
        self._context = ForwardContext(setup.ops, self._scratch, setup.attention)
        self._tokens = torch.empty(setup.max_rows, dtype=torch.int64)
        self._values = torch.empty(setup.max_rows, dtype=torch.float32)
        self._recorded: _Recorded | None = None

    @property
    def max_rows(self) -> int:
        """Rows of one call."""
        return self._setup.max_rows

    def logits(self, hidden: Tensor) -> NDArray[np.float32]:
        """Host logits [n, V] of hidden [n, H], op by op."""
        logits = self._setup.model.logits(hidden, self._context)
        return np.ascontiguousarray(logits.to(device="cpu", dtype=torch.float32).numpy())

    def reads(self, hidden: Tensor) -> bool:
        """Whether `logits_of` and `best_of` serve rows of this tensor."""
        return self._recorded is not None and self._recorded.hidden.data_ptr() == hidden.data_ptr()

    def logits_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Host logits [n, V] of these rows of the recorded forward's buffer."""
        assert self._recorded is not None
        self._recorded.plain.replay(_step(torch.from_numpy(rows)))
        found: NDArray[np.float32] = self._recorded.logits[: len(rows)].numpy()
        return found

    def best_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The most likely token of each row [n], and its logit."""
        assert self._recorded is not None
        self._recorded.greedy.replay(_step(torch.from_numpy(rows)))
        return self._tokens[: len(rows)].numpy(), self._values[: len(rows)].numpy()

    def record(self, recorder: GraphRecorder, hidden: Tensor) -> None:
        """Record the head over rows of `hidden` [most tokens, H] and prove it. Raises NotSupportedError."""
        self._recorded = None
        if self._setup.device != "cpu":
            raise NotSupportedError(f"rows are chosen on the host, hidden states lie on {self._setup.device}")
        hidden[: self.max_rows].normal_(generator=torch.Generator(hidden.device).manual_seed(0))
        found: list[Tensor] = []
        plain = self._program(recorder, lambda rows: found.append(self._forward(hidden, rows)))
        greedy = self._program(recorder, lambda rows: self._choose(self._forward(hidden, rows)))
        logits = buffer_of(found[0], self._scratch)
        if logits.dtype != torch.float32 or logits.device.type != "cpu":
            raise NotSupportedError(f"logits are {logits.dtype} on {logits.device}")
        recorded = _Recorded(hidden, logits, plain, greedy)
        for rows in {(0,), (self.max_rows - 1, 0), tuple(range(min(5, self.max_rows)))}:
            self._prove(recorded, torch.tensor(rows[: self.max_rows]))
        self._recorded = recorded

    def _program(self, recorder: GraphRecorder, run: Callable[[Tensor], object]) -> Program:
        rows, varied = (torch.arange(min(count, self.max_rows)) for count in (3, 2))
        return recorder.record(
            lambda: run(rows), _step(rows), Variation(self.max_rows, lambda: (lambda: run(varied), _step(varied))))

    def _forward(self, hidden: Tensor, rows: Tensor) -> Tensor:
        picked = self._scratch.take("picked", (rows.shape[0], hidden.shape[1]), hidden.dtype)
        self._setup.ops["embedding"](picked, rows, hidden, 1.0)
        return self._setup.model.logits(picked, self._context)

    def _choose(self, logits: Tensor) -> None:
        count = logits.shape[0]
        self._setup.ops["argmax"](self._tokens[:count], self._values[:count], logits)

    def _prove(self, recorded: _Recorded, rows: Tensor) -> None:
        """Replays find the bits of the head op by op, over spoilt memory."""
        count = rows.shape[0]
        expected = self._setup.model.logits(recorded.hidden[rows], self._context).clone()
        recorded.logits[:count].fill_(float("nan"))
        recorded.plain.replay(_step(rows))
        same = torch.equal(recorded.logits[:count].view(torch.int32), expected.view(torch.int32))
        recorded.greedy.replay(_step(rows))
        if not same or not torch.equal(self._tokens[:count], expected.argmax(dim=1)):
            raise NotSupportedError(f"a replay of the head for {count} rows gives other numbers than the model")


def _step(rows: Tensor) -> StepBindings:
    """Rows are to a head what ids are to a forward."""
    return StepBindings(rows, rows, ())
