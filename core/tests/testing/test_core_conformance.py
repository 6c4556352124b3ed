"""The core's own defaults are plugins and pass the kit."""

import pytest

from turret.testing import Case, cases


@pytest.mark.parametrize("case", cases("turret"), ids=str)
def test_conformance(case: Case) -> None:
    case.run()
