"""The conformance kit over this distribution."""

from __future__ import annotations

import pytest

from turret.testing import Case, cases


@pytest.mark.parametrize("case", cases("turret-platform-fake"), ids=str)
def test_conformance(case: Case) -> None:
    case.run()
