"""Ratios as a table for people, and as the object that ends the program.

Owns: the layout. Knows nothing of how figures are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cpu_peers.cells import CELLS, FORMATS, Cell, peers_of, required
from cpu_peers.figures import Summary

__all__ = ["lines", "put_into", "verdict"]

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"

LEAST = dict(required())
HEAD = ("model", "weights", "turret ÷", *(cell.replace("_", " ") for cell in CELLS))


def lines(summary: Summary, markdown: bool) -> list[str]:
    """One row per model, format and peer: ratio, the required one in brackets, `!` where it is missed, `?` where others
    disturbed most of its rounds. Then rows of turret's own tokens/s."""
    rows = [row for model, forms in FORMATS.items() for form in forms for row in _rows(summary, model, form)]
    if markdown:
        rule = "|" + "---|" * len(HEAD)
        return ["| " + " | ".join(HEAD) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    widths = [max(len(row[column]) for row in [HEAD, *rows]) for column in range(len(HEAD))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [HEAD, *rows]]


def put_into(page: Path, summary: Summary) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page} has no {BEGIN.strip()} and {END}")
    versions = {name.removeprefix("version_"): value for name, value in summary.facts.items() if "version_" in name}
    stated = ", ".join(f"{name} {value}" for name, value in versions.items())
    text = "\n".join(["Ratios turret ÷ peer, required ones in brackets. " + stated + ".", "", *lines(summary, True)])
    page.write_text(f"{before}{BEGIN}\n{text}\n\n{END}{after}")


def _rows(summary: Summary, model: str, form: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    own = tuple(_rate(summary, model, form, "turret", cell) for cell in CELLS)
    if any(own):
        rows.append((model, form, "(tokens/s)", *own))
    for peer in peers_of(model, form):
        cells = tuple(_ratio(summary, Cell(model, form, peer, cell)) for cell in CELLS)
        if any(cells):
            rows.append((model, form, peer, *cells))
    return rows


def _rate(summary: Summary, *key: str) -> str:
    rate = summary.rates.get(key)  # type: ignore[call-overload]
    return "" if rate is None else f"{rate:.0f}"


def _ratio(summary: Summary, cell: Cell) -> str:
    ratio, least = summary.ratios.get(cell), LEAST.get(cell)
    if ratio is None:
        return ""
    missed = "!" if least is not None and ratio < least else ""
    doubt = "?" if cell in summary.disturbed else ""
    return f"{ratio:.2f}{missed}{doubt}" + ("" if least is None else f" ({least:g})")


def verdict(summary: Summary) -> dict[str, Any]:
    """Every ratio with what it has to be; `all_met` only if everything required was measured and reached."""
    ratios = {_name(cell): {"ratio": ratio, "required": LEAST.get(cell)} for cell, ratio in summary.ratios.items()}
    missing = [_name(cell) for cell in LEAST if cell not in summary.ratios]
    short = [_name(cell) for cell, ratio in summary.ratios.items() if ratio < LEAST.get(cell, 0.0)]
    memory, over = _memory(summary)
    starts = {name: value for name, value in summary.facts.items() if name.startswith("start_")}
    late = [name for name, value in starts.items() if value["seconds"] > value["at_most"]]
    return {
        "benchmark": "cpu", "ratios": ratios, "short": short, "missing": missing,
        "disturbed": [_name(cell) for cell in summary.disturbed], "memory": memory, "memory_over": over,
        "starts": starts, "late": late,
        "all_met": not (short or missing or over or late or not memory or not starts),
    }  # fmt: skip


def _name(cell: Cell) -> str:
    return f"{cell.model}/{cell.form}/{cell.peer}/{cell.cell}"


def _memory(summary: Summary) -> tuple[dict[str, Any], list[str]]:
    """turret's resident MiB beside 1.1 x llama.cpp's plus what importing torch takes."""
    torch = summary.facts.get("torch_import_bytes")
    found, over = {}, []
    for (model, form, engine), resident in summary.memory.items():
        other = summary.memory.get((model, form, "llamacpp"))
        if engine != "turret" or other is None or torch is None:
            continue
        most = 1.1 * other + torch
        found[f"{model}/{form}"] = {"turret": resident >> 20, "llamacpp": other >> 20, "at_most": int(most) >> 20}
        if resident > most:
            over.append(f"{model}/{form}")
    return found, over
