"""Metrics of several processes as those of one server.

Owns: how series of the same name and labels become one. Knows nothing of what they mean beyond their type.

Counters and histograms are added up. Gauges are added up too (each front counts its own), except that the time at which
a series was made is the earliest, and a gauge that only carries labels stays 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

__all__ = ["merge_metrics"]

_LEAST = frozenset({"process_start_time_seconds", "process_max_fds"})
"""Gauges of one process of which several are no sum."""

Key = tuple[str, tuple[tuple[str, str], ...]]


def merge_metrics(texts: Sequence[str], past: bool = False) -> bytes:
    """One page of Prometheus text format 0.0.4 from those of several processes; `past` leaves only what still counts
    when its process is gone."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[Key, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            if past and family.type not in ("counter", "histogram", "summary"):
                continue
            families.setdefault(family.name, family)
            merged = values.setdefault(family.name, {})
            combine = _combination(family)
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                merged[key] = combine((merged[key], sample.value)) if key in merged else sample.value
    registry = CollectorRegistry()
    registry.register(_Merged(families, values))
    return generate_latest(registry)


def _combination(family: Metric) -> Callable[[tuple[float, float]], float]:
    if family.name.endswith("_created") or family.name in _LEAST:
        return min
    return max if family.name.endswith("_info") else sum


class _Merged(Collector):
    def __init__(self, families: dict[str, Metric], values: dict[str, dict[Key, float]]) -> None:
        self._families = families
        self._values = values

    def collect(self) -> Iterable[Metric]:
        """Each family with its merged samples."""
        for name, family in self._families.items():
            merged = Metric(name, family.documentation, family.type)
            for (sample, labels), value in self._values[name].items():
                merged.add_sample(sample, dict(labels), value)
            yield merged
