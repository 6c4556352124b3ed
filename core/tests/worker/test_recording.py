"""The worker records a forward, proves it, and replays it; or says once why it does not."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tiny import Driver, TinyArchitecture, dummy_source, limits, parts, request

from turret.contracts import GraphRecorder, ModelContext, StepBindings, Variation
from turret.nn import Decoder
from turret.worker.local import LocalWorker
from turret.worker.setup import WorkerParts
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.platform import CPUPlatform
from turret_platform_fake.platform import FakePlatform

native = pytest.mark.skipif(CPUPlatform().graphs() is None, reason="the native library was not built")
PROMPTS = [request("a", [1, 2, 3] * 6), request("b", [9]), request("c", [8, 7, 6, 5])]


class Program:
    """Counts replays; does nothing or what it is told."""

    steps = 1

    def __init__(self, inner: Any = None) -> None:
        self.replays = 0
        self._inner = inner

    def replay(self, step: StepBindings) -> None:
        self.replays += 1
        if self._inner is not None:
            self._inner.replay(step)


class Recorder:
    """Wraps another recorder, or pretends."""

    def __init__(self, inner: GraphRecorder | None = None) -> None:
        self.programs: list[Program] = []
        self._inner = inner

    def record(self, forward: Callable[[], object], step: StepBindings, variation: Variation | None = None) -> Program:
        if self._inner is None:
            forward()
        self.programs.append(Program(None if self._inner is None else self._inner.record(forward, step, variation)))
        return self.programs[-1]


class PretendingPlatform(FakePlatform):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def graphs(self) -> GraphRecorder | None:
        return self._recorder


class CountingPlatform(CPUPlatform):
    def __init__(self) -> None:
        super().__init__()
        inner = super().graphs()
        self.recorder = Recorder(inner)

    def graphs(self) -> GraphRecorder | None:
        return self.recorder


def generate(
    made: WorkerParts, told: dict[str, Any] | None = None, temperature: float = 0.0, **changes: Any
) -> dict[str, list[int]]:
    """Tokens of every prompt; `told` takes what the worker says of its ops."""
    single = changes.get("max_num_batched_tokens") == 1
    driver = Driver(LocalWorker(made, dummy_source(), limits(**changes)))
    prompts = [request(p.request_id, p.prompt_token_ids, temperature=temperature) for p in PROMPTS]
    found = driver.run(prompts[:1] if single else prompts, 12, chunk=1 if single else 5)
    if told is not None:
        told.update(driver.worker.call("ops", []))
    driver.worker.shutdown()
    return found


@native
def test_a_recorded_worker_chooses_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tiny.BLOCK", 16)
    changes = {"block_size": 16, "max_num_batched_tokens": 64, "threads": 1}
    platform = CountingPlatform()
    made = WorkerParts(platform, CPUAttention(), TinyArchitecture())
    with caplog.at_level(logging.INFO, "turret.worker.graph"):
        recorded = generate(made, told := {}, **changes)
    assert told["recorded_kernels"] == 1 and told["linear"] == {"cpu": 17}
    assert {name for name, origin in told["ops"].items() if origin != "cpu"} <= {"moe"}  # which it has no use for
    assert "proven on 3 steps" in caplog.text
    forward, head, greedy_head = platform.recorder.programs
    assert forward.replays > 10 and greedy_head.replays > 10
    proofs = head.replays
    sampled = CountingPlatform()
    generate(dataclasses.replace(made, platform=sampled), temperature=0.5, **changes)
    assert sampled.recorder.programs[1].replays > proofs + 10
    eager = CountingPlatform()
    made = dataclasses.replace(made, platform=eager)
    assert generate(made, told, **changes, enforce_eager=True) == recorded
    assert told["recorded_kernels"] is None and told["not_recorded"] == "--enforce-eager"
    assert eager.recorder.programs == []


def test_a_recording_that_does_something_else_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    expected = generate(parts())
    recorder = Recorder()
    with caplog.at_level(logging.WARNING):
        found = generate(dataclasses.replace(parts(), platform=PretendingPlatform(recorder)))
    assert found == expected
    (program,) = recorder.programs
    assert program.replays == 1
    (said,) = [line.getMessage() for line in caplog.records if "op by op" in line.getMessage()]
    assert said.startswith("tiny runs op by op") and "gives other numbers than the model" in said


@native
def test_attention_of_another_backend_splits_the_program() -> None:
    """The CPU's ops with torch's attention: one piece more than there are layers."""
    made = dataclasses.replace(parts(), platform=CPUPlatform())
    recorded = generate(made, told := {}, threads=1)
    assert told["recorded_kernels"] > 20 and told["splits"] == ["attention:torch"] * 4
    assert recorded == generate(made, threads=1, enforce_eager=True)


@native
def test_a_budget_of_one_token_is_recorded_too() -> None:
    made = dataclasses.replace(parts(), platform=CPUPlatform())
    changes = {"threads": 1, "max_num_batched_tokens": 1, "max_num_seqs": 1}
    recorded = generate(made, told := {}, **changes)
    assert told["recorded_kernels"] > 20 and len(recorded["a"]) == 12
    assert recorded == generate(made, **changes, enforce_eager=True)


class _Warped(Decoder):
    """A model of which a function that no kernel has is a part: embeddings are squashed with positions mixed in."""

    def _embed_ids(self, out: torch.Tensor, ids: torch.Tensor) -> None:
        super()._embed_ids(out, ids)
        out.add_(torch.erf(out[: ids.shape[0]]).cumsum(dim=1))


class _WarpedArchitecture(TinyArchitecture):
    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Decoder:
        return _Warped(self.spec(config), ctx)


@native
def test_a_models_own_torch_function_splits_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiny.BLOCK", 16)
    changes = {"block_size": 16, "threads": 1}
    made = WorkerParts(CPUPlatform(), CPUAttention(), _WarpedArchitecture())
    recorded = generate(made, told := {}, **changes)
    (split,) = told["splits"]
    assert "erf" in split and "cumsum" in split and told["recorded_kernels"] > 20
    assert recorded == generate(made, **changes, enforce_eager=True)
