"""The kit's pytest plugin: collects the outcome of each case and writes conformance.json.

Owns the file's shape. Knows nothing of the cases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from turret.plugins.metadata import scan_distributions
from turret.plugins.plan import core_version
from turret.testing.cases import Case

__all__ = ["ConformanceReport", "pytest_addoption", "pytest_configure"]


class ConformanceReport:
    """Outcomes by case, written when the session ends."""

    def __init__(self, path: Path, distribution: str) -> None:
        self._path = path
        self._distribution = distribution
        self._outcomes: list[dict[str, Any]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")  # type: ignore[attr-defined]
        if isinstance(case, Case) and (call.when == "call" or (call.when == "setup" and report.failed)):
            outcome = {"plugin": case.plugin, "section": case.section, "name": case.name, "outcome": report.outcome}
            reason = ""
            if call.excinfo is not None:
                reason = str(call.excinfo.value).strip().partition("\n")[0]
            self._outcomes.append({**outcome, "reason": reason, "seconds": round(report.duration, 4)})
        return report

    def pytest_sessionfinish(self) -> None:
        counts = Counter(entry["outcome"] for entry in self._outcomes)
        entries = scan_distributions([self._distribution]).entries
        result = {
            "schema": 1,
            "distribution": self._distribution,
            "version": entries[0].version if entries else "",
            "turret": core_version(),
            "passed": counts["passed"],
            "failed": counts["failed"],
            "not_applicable": counts["skipped"],
            "cases": self._outcomes,
        }
        self._path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("turret", "turret's conformance kit")
    group.addoption("--turret-distribution", help="distribution to hold against its contracts")
    group.addoption("--conformance-json", help="file to write the outcome of each case to")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--conformance-json")
    if path:
        report = ConformanceReport(Path(path), config.getoption("--turret-distribution") or "")
        config.pluginmanager.register(report, "turret-conformance-report")
