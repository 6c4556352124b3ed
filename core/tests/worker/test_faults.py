"""One request's failure is that request's failure: errors, memory, broken numbers inside a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch

from turret.messages import RunningRequest, StepPlan
from turret.nn.ops import REFERENCE_OPS
from turret.worker.local import LocalWorker

POISON, NAN = 299, 298


class TroubledOps:
    """A vendor's `embedding` that cannot take one token and turns another into no numbers at all."""

    api = "1.0"
    name = "troubled"

    def ops(self) -> Mapping[str, Callable[..., None]]:
        return {"embedding": self._embed}

    def linear_kernels(self) -> Sequence[Any]:
        return ()

    def _embed(self, out: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor, scale: float) -> None:
        if bool((ids == POISON).any()):
            raise ValueError(f"token {POISON} is poison")
        REFERENCE_OPS["embedding"](out, ids, weight, scale)
        out[ids == NAN] = torch.nan


@pytest.fixture
def make_driver():
    drivers = []

    def make(troubled=False, depth=1, **platform):
        parts = tiny.parts(**platform)
        parts = replace(parts, providers=[TroubledOps()]) if troubled else parts
        drivers.append(tiny.Driver(LocalWorker(parts, tiny.dummy_source(), tiny.limits()), depth))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.worker.shutdown()


def good(*names):
    return [tiny.request(name, [10 + ord(name[0]), 5, 6, 7], temperature=0.9) for name in names]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("token", "complaint"), [(POISON, "token 299 is poison"), (NAN, "not-a-number")])
def test_only_the_culprit_fails(make_driver, token, complaint, depth):
    clean = make_driver().run(good("a", "b"), 8)
    driver = make_driver(troubled=True, depth=depth)
    bad = tiny.request("bad", [1, 2, token, 3])
    got = driver.run([*good("a"), bad, *good("b")], 8)
    assert {"a": got["a"], "b": got["b"]} == clean and got["bad"] == []
    errors = [r.error for r in driver.results["bad"]]
    assert len(errors) == 8 and all(complaint in e for e in errors)
    driver.remove("bad", "a", "b")
    assert driver.run([tiny.request("c", [1, 2, 3])], 3)["c"], "the worker goes on, in the row that failed too"


def test_a_fault_in_a_later_chunk_fails_that_request_only(make_driver):
    clean = make_driver().run(good("a"), 6)
    driver = make_driver(troubled=True)
    got = driver.run([tiny.request("bad", [1] * 20 + [POISON]), *good("a")], 6, chunk=8)
    assert got["a"] == clean["a"] and got["bad"] == []
    assert [r.error is None for r in driver.results["bad"]][:2] == [True, True]
    assert "poison" in driver.results["bad"][2].error


def test_a_step_that_does_not_fit_in_memory_is_run_in_smaller_pieces(make_driver):
    """Sixty tokens of two requests in one step, on a device whose forward takes seventeen."""
    requests = [tiny.request("a", list(range(30)), prompt_logprobs=1), tiny.request("b", [7] * 30, temperature=1.0)]
    roomy, tight = make_driver(), make_driver(out_of_memory_tokens=17)
    assert tight.run(requests, 5) == roomy.run(requests, 5)
    entries = [[e.token_id for r in d.results["a"] for e in r.prompt_logprobs or []] for d in (roomy, tight)]
    assert entries[0] == entries[1] == list(range(1, 30))


def test_a_request_that_never_fits_in_memory_gets_the_reason(make_driver):
    driver = make_driver(out_of_memory_tokens=3)
    got = driver.run([tiny.request("big", list(range(40))), tiny.request("small", [1, 2])], 4)
    assert got["big"] == [] and len(got["small"]) == 4
    assert "does not fit (3 do)" in driver.results["big"][0].error


def test_a_plan_for_an_unknown_request_is_answered(make_driver):
    driver = make_driver()
    driver.submit(StepPlan(step_id=0, running=[RunningRequest("ghost", 4, 1, [])]))
    assert "not in the worker's batch" in driver.results["ghost"][0].error
    assert len(driver.run(good("a"), 3)["a"]) == 3
