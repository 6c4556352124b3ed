"""Hold this distribution against its contract: every case of turret's conformance kit."""

import pytest

from turret.testing import Case, cases


@pytest.mark.parametrize("case", cases("turret-endpoint-grpc"), ids=str)
def test_conformance(case: Case) -> None:
    case.run()
