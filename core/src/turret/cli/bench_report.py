"""How figures of `turret bench` are shown: a table for people, one line of JSON for programs.

Owns: percentiles and the layout. Knows nothing of what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Report", "percentile"]

PERCENTILES = (50, 90, 99)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` percent do not exceed (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


@dataclass
class Report:
    """Figures in the order they were added."""

    facts: dict[str, Any] = field(default_factory=dict)
    _spreads: dict[str, dict[str, float]] = field(default_factory=dict)
    _attached: dict[str, Any] = field(default_factory=dict)

    def add(self, **facts: Any) -> None:
        """Single figures; floats are rounded to what can mean something."""
        self.facts.update({k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()})

    def spread(self, name: str, values: Sequence[float]) -> None:
        """Mean and percentiles of many; nothing where nothing was measured."""
        if values:
            found = {"mean": sum(values) / len(values), **{f"p{p}": percentile(values, p) for p in PERCENTILES}}
            self._spreads[name] = {key: round(value, 3) for key, value in found.items()}

    def attach(self, **parts: Any) -> None:
        """What only programs read: it goes into the JSON, not into the table."""
        self._attached.update(parts)

    def show(self) -> None:
        """Print the table, then the JSON as the last line."""
        for name, value in self.facts.items():
            print(f"{name:28} {value}")
        if self._spreads:
            columns = ["mean", *(f"p{p}" for p in PERCENTILES)]
            print(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
            for name, found in self._spreads.items():
                print(f"{name:28}" + "".join(f"{found[column]:12.2f}" for column in columns))
        print(json.dumps(self.as_dict()), flush=True)

    def as_dict(self) -> Mapping[str, Any]:
        """Everything, plain."""
        flat = {f"{name}_{key}": value for name, found in self._spreads.items() for key, value in found.items()}
        return {**self.facts, **flat, **self._attached}
