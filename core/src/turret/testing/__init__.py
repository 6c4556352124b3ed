"""The conformance kit and fakes, for plugin authors and for turret's own tests.

Owns how a plugin is held against its contract. Knows no particular plugin.

A plugin's tests need one file:

    @pytest.mark.parametrize("case", cases("turret-attention-acme"), ids=str)
    def test_conformance(case: Case) -> None:
        case.run()

and, for kinds whose data only their authors can make (quantized weights, configs, answers of a model), a module
`<package>.conformance` with `samples()`.
"""

from turret.testing.cases import Case, NotApplicable, cases
from turret.testing.samples import ModelSample, ParserSample, QuantSample

__all__ = ["Case", "ModelSample", "NotApplicable", "ParserSample", "QuantSample", "cases"]
