"""The work every engine gets, and the loop in which an engine's process takes it.

Owns: the prompts, the channel between the benchmark and an engine's process. Knows no engine; runs on the standard
library alone, since each engine has an interpreter of its own.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

__all__ = ["channel", "prompts", "serve"]

FIRST_TOKEN, LAST_TOKEN = 300, 45_000
"""Random tokens are drawn from here: ordinary ones in each of the vocabularies."""

Generate = Callable[[list[list[int]], int], int]
"""Greedy continuation of all prompts by so many tokens each, the end of sequence ignored; tokens made."""


def prompts(count: int, length: int, seed: int) -> list[list[int]]:
    """Random token ids; the same for every engine."""
    draw = random.Random(seed)
    return [[draw.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(length)] for _ in range(count)]


def channel() -> IO[str]:
    """Standard output for answers alone: whatever else the process prints goes to standard error from here on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve(answers: IO[str], generate: Generate, **facts: Any) -> None:
    """Say what runs, then time one job after another until the input ends."""
    generate(prompts(1, 16, 0), 4)
    print(json.dumps(facts), file=answers, flush=True)
    for job in _jobs():
        batch = prompts(job["batch"], job["prompt"], job["seed"])
        began = time.perf_counter()
        made = generate(batch, job["output"])
        seconds = time.perf_counter() - began
        if made != job["batch"] * job["output"]:
            raise RuntimeError(f"{made} tokens came where {job['batch']} x {job['output']} were asked for")
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)


def _jobs() -> Iterator[dict[str, int]]:
    for line in sys.stdin:
        yield json.loads(line)
