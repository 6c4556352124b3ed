"""Prefill, one stream and 32 streams, without HTTP: one group of engines (a model in a format) in alternation.

Owns: the protocol. Knows engines only as processes that take jobs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cpu_peers.figures import Memory, Rate, Record
from cpu_peers.meter import QUIET, wait_for_quiet, watched
from cpu_peers.processes import Engine

__all__ = ["OFFLINE", "Patience", "undisturbed", "warm_up", "run_rounds"]

PROMPT, OUTPUT, STREAMS, PREFILL = 128, 128, 32, 512
PREFILLS = 3
"""A prefill is short: the median of so many counts as one figure."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a quiet machine before a figure, and how often to take a disturbed one again."""

    longest_wait: float = 20.0
    again: int = 1


def job(batch: int, prompt: int, output: int, seed: int) -> dict[str, int]:
    return {"batch": batch, "prompt": prompt, "output": output, "seed": seed}


def prefill(engine: Engine, seed: int) -> float:
    """Prompt tokens/s until the first token is there."""
    return PREFILL / statistics.median(engine.run(job(1, PREFILL, 1, seed * 10 + n)) for n in range(PREFILLS))


def one_stream(engine: Engine, seed: int) -> float:
    """Tokens/s after the first one."""
    first = engine.run(job(1, PROMPT, 1, seed + 100))
    return OUTPUT / (engine.run(job(1, PROMPT, 1 + OUTPUT, seed + 100)) - first)


def batch_32(engine: Engine, seed: int) -> float:
    """Output tokens/s of 32 streams over the whole time, their prompts included."""
    return STREAMS * OUTPUT / engine.run(job(STREAMS, PROMPT, OUTPUT, seed + 1000))


OFFLINE: dict[str, Callable[[Engine, int], float]] = {
    "prefill": prefill, "one_stream": one_stream, "batch_32": batch_32,
}  # fmt: skip


def warm_up(engine: Engine) -> None:
    """Every shape once, so that nobody pays for a first time within a figure."""
    for shape in (job(1, PREFILL, 1, 1), job(1, PROMPT, 8, 2), job(STREAMS, PROMPT, 4, 3)):
        engine.run(shape)


def undisturbed(measure: Callable[[], float], patience: Patience) -> tuple[float, float]:
    """(figure, CPUs that others used meanwhile): the least disturbed of a few tries."""
    tries: list[tuple[float, float]] = []
    for _ in range(1 + patience.again):
        wait_for_quiet(patience.longest_wait)
        with watched() as watch:
            rate = measure()
        tries.append((watch.others, rate))
        if watch.others <= QUIET:
            break
    others, rate = min(tries)
    return rate, others


def run_rounds(
    group: tuple[str, str], engines: Sequence[Engine], cells: Sequence[str], rounds: int, record: Record
) -> None:
    """Rounds over the cells; within a cell the engines take turns, the first one changes from round to round."""
    model, form = group
    for number in range(rounds):
        for cell in cells:
            turn = number % len(engines)
            for engine in (*engines[turn:], *engines[:turn]):
                rate, others = undisturbed(lambda e=engine, c=cell, n=number + 1: OFFLINE[c](e, n), record.patience)
                record.add(Rate(record.run, number, model, form, engine.name, cell, round(rate, 1), others))
    for engine in engines:
        record.add(Memory(record.run, model, form, engine.name, engine.memory()))
