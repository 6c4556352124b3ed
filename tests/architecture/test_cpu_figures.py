"""What benchmarks/cpu.py makes of its figures: ratios within a round, medians, and a verdict that needs everything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sources

MIB = 1 << 20


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(sources.ROOT / "benchmarks"))
    from cpu_peers import cells, figures, table

    yield type("Parts", (), {"cells": cells, "figures": figures, "table": table})
    for name in [name for name in sys.modules if name.split(".")[0] == "cpu_peers"]:
        del sys.modules[name]


def rate(parts: Any, number: int, engine: str, value: float, others: float = 0.0) -> Any:
    return parts.figures.Rate("run", number, "smollm2", "q4_0", engine, "prefill", value, others)


def test_a_ratio_is_taken_within_a_round(parts: Any) -> None:
    """Both slow down together in the second round: the ratio does not notice."""
    found = []
    for number, (own, other) in enumerate([(300, 100), (30, 10), (200, 100)]):
        found += [rate(parts, number, "turret", own), rate(parts, number, "llamacpp", other)]
    summary = parts.figures.summarise(found)
    assert summary.ratios == {parts.cells.Cell("smollm2", "q4_0", "llamacpp", "prefill"): 3.0}


@pytest.mark.parametrize(("others", "marked"), [([0.5, 0.5, 0.0], True), ([0.5, 0.0, 0.0], False)])
def test_a_cell_is_marked_when_most_of_its_rounds_were_disturbed(parts: Any, others: list[float], marked: bool) -> None:
    found = []
    for number, used in enumerate(others):
        found += [rate(parts, number, "turret", 300, used), rate(parts, number, "llamacpp", 100)]
    assert bool(parts.figures.summarise(found).disturbed) is marked


def test_figures_survive_their_file(parts: Any, tmp_path: Path) -> None:
    record = parts.figures.Record("run", tmp_path / "figures.jsonl", None)
    record.add(rate(parts, 0, "turret", 1.5))
    record.add(parts.figures.Memory("run", "smollm2", "q4_0", "turret", 7))
    record.add(parts.figures.Fact("run", "version_turret", "1"))
    assert parts.figures.read(record.path) == record.figures


def everything(parts: Any, factor: float) -> list[Any]:
    """Each required cell at `factor` times what it needs, memory and starts within bounds."""
    found: list[Any] = []
    for number, (cell, least) in enumerate(parts.cells.required()):
        for engine, value in (("turret", 100 * least * factor), (cell.peer, 100.0)):
            found.append(parts.figures.Rate(str(number), 0, cell.model, cell.form, engine, cell.cell, value, 0.0))
    facts = {"torch_import_bytes": 100 * MIB, "start_cold": {"seconds": 3.0, "at_most": 4.0}}
    found += [parts.figures.Fact("run", name, value) for name, value in facts.items()]
    for engine, size in (("turret", 300), ("llamacpp", 200)):
        found.append(parts.figures.Memory("run", "smollm2", "q4_0", engine, size * MIB))
    return found


def verdict(parts: Any, found: list[Any]) -> dict[str, Any]:
    made: dict[str, Any] = parts.table.verdict(parts.figures.summarise(found))
    return made


def test_all_is_met_when_everything_was_measured_and_reached(parts: Any) -> None:
    assert verdict(parts, everything(parts, 1.01))["all_met"] is True


def test_a_short_cell_is_named(parts: Any) -> None:
    found = [*everything(parts, 1.01), rate(parts, 0, "turret", 1), rate(parts, 0, "llamacpp", 100)]
    found = [one for one in found if getattr(one, "run", "") == "run" or one.form != "q4_0" or one.cell != "prefill"]
    made = verdict(parts, found)
    assert made["short"] == ["smollm2/q4_0/llamacpp/prefill"] and made["all_met"] is False


def test_what_was_not_measured_is_not_met(parts: Any) -> None:
    made = verdict(parts, everything(parts, 1.01)[2:])
    assert len(made["missing"]) == 1 and made["all_met"] is False


def test_memory_has_room_for_torch_and_a_tenth(parts: Any) -> None:
    found = everything(parts, 1.01)
    assert verdict(parts, found)["memory"]["smollm2/q4_0"]["at_most"] == 320
    found.append(parts.figures.Memory("run", "smollm2", "q4_0", "turret", 321 * MIB))
    made = verdict(parts, found)
    assert made["memory_over"] == ["smollm2/q4_0"] and made["all_met"] is False
