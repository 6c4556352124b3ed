"""Figures as they are taken, kept in a file of one JSON object a line, and the ratios they give.

Owns: the file and the arithmetic of ratios. Knows nothing of engines. Several runs may write to one file: a ratio is
taken within a round of a run, where both figures are minutes apart, and the median of the rounds counts.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cpu_peers.cells import Cell
from cpu_peers.meter import QUIET

__all__ = ["Fact", "Memory", "Rate", "Record", "Summary", "read", "summarise"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens/s of an engine in a cell, in one round; `others` is how many CPUs other processes used."""

    run: str
    round: int
    model: str
    form: str
    engine: str
    cell: str
    rate: float
    others: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of an engine after its rounds."""

    run: str
    model: str
    form: str
    engine: str
    resident: int


@dataclass(frozen=True, slots=True)
class Fact:
    """Anything else worth keeping: versions, the cost of importing torch, seconds to a first token."""

    run: str
    name: str
    value: Any


KINDS = {"rate": Rate, "memory": Memory, "fact": Fact}


@dataclass(slots=True)
class Record:
    """The figures of a run, and the file they are appended to as they come."""

    run: str
    path: Path
    patience: Any
    figures: list[Rate | Memory | Fact] = field(default_factory=list)

    def add(self, figure: Rate | Memory | Fact) -> None:
        """Keep a figure and show it."""
        self.figures.append(figure)
        kind = next(name for name, made in KINDS.items() if isinstance(figure, made))
        with self.path.open("a") as file:
            print(json.dumps({"kind": kind, **asdict(figure)}), file=file)
        if isinstance(figure, Rate):
            mark = "  disturbed" if figure.others > QUIET else ""
            what = f"{figure.model:>10} {figure.form:>6} {figure.cell:>10} {figure.engine:>12}"
            print(f"{what} {figure.rate:9.1f} tokens/s  others {figure.others:.2f}{mark}", flush=True)


def read(path: Path) -> list[Rate | Memory | Fact]:
    """What runs have written to a file."""
    found: list[Rate | Memory | Fact] = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        found.append(KINDS[fields.pop("kind")](**fields))
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """What figures come to. `ratios` and `rates` are medians; `disturbed` cells rest on a figure to distrust."""

    ratios: dict[Cell, float]
    rates: dict[tuple[str, str, str, str], float]
    disturbed: set[Cell]
    memory: dict[tuple[str, str, str], int]
    facts: dict[str, Any]


def summarise(figures: Iterable[Rate | Memory | Fact]) -> Summary:
    """Medians, and turret ÷ peer within each round."""
    rates: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    rounds: dict[tuple[str, int, str, str, str], dict[str, Rate]] = defaultdict(dict)
    memory: dict[tuple[str, str, str], int] = {}
    facts: dict[str, Any] = {}
    for figure in figures:
        if isinstance(figure, Rate):
            rates[figure.model, figure.form, figure.engine, figure.cell].append(figure.rate)
            rounds[figure.run, figure.round, figure.model, figure.form, figure.cell][figure.engine] = figure
        elif isinstance(figure, Memory):
            memory[figure.model, figure.form, figure.engine] = figure.resident
        else:
            facts[figure.name] = figure.value
    ratios, disturbed = _ratios(rounds.values())
    return Summary(ratios, {key: statistics.median(found) for key, found in rates.items()}, disturbed, memory, facts)


def _ratios(rounds: Iterable[dict[str, Rate]]) -> tuple[dict[Cell, float], set[Cell]]:
    found: dict[Cell, list[float]] = defaultdict(list)
    disturbed: dict[Cell, list[bool]] = defaultdict(list)
    for engines in rounds:
        own = engines.get("turret")
        if own is None:
            continue
        for name, other in engines.items():
            if name != "turret":
                cell = Cell(own.model, own.form, name, own.cell)
                found[cell].append(own.rate / other.rate)
                disturbed[cell].append(max(own.others, other.others) > QUIET)
    marked = {cell for cell, marks in disturbed.items() if sum(marks) * 2 > len(marks)}
    return {cell: round(statistics.median(values), 2) for cell, values in found.items()}, marked
