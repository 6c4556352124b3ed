"""The suite that `turret plugins test` hands to pytest: the cases of the distribution named on its command line.

Owns nothing but the parametrisation. Run with `-p turret.testing.pytest_plugin --turret-distribution DIST`.
"""

from __future__ import annotations

import pytest

from turret.testing.cases import Case, cases

__all__ = ["pytest_generate_tests", "test_conformance"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    distribution = metafunc.config.getoption("--turret-distribution")
    metafunc.parametrize("case", cases(distribution), ids=str)


def test_conformance(case: Case) -> None:
    case.run()
