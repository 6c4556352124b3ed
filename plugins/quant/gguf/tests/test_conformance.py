"""Hold this distribution against its contracts: every case of turret's conformance kit."""

import pytest

from turret.testing import Case, cases


@pytest.mark.parametrize("case", cases("turret-quant-gguf"), ids=str)
def test_conformance(case: Case) -> None:
    case.run()
