"""Hold this distribution against its contract: every case of turret's conformance kit."""

import pytest

from turret.testing import Case, cases


@pytest.mark.parametrize("case", cases("turret-structured-llguidance"), ids=str)
def test_conformance(case: Case) -> None:
    case.run()
