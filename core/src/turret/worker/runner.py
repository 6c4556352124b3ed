"""Steps: plans in, results out, and the worker survives whatever a step does.

Owns: the persistent batch, the forward, retries, the answer to every request of a plan. Knows nothing of threads or
processes.

State changes only after a forward has fully succeeded (the cache's new pages may be written twice with the same
values), so a failed forward is tried again request by request and only the culprit gets an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.contracts import KVLayout, OpProvider, ProfilingPlatform, RecordingPlatform
from turret.errors import ConfigError, EngineError, NotSupportedError, PluginError
from turret.messages import (
    KVCacheConfig,
    RequestResult,
    StepPlan,
    StepResult,
    TokenLogprobs,
    WorkerFacts,
)
from turret.nn import LayerFactory, OpTable
from turret.worker.batch import Batch, BatchShape, StepWork
from turret.worker.forward import Forward
from turret.worker.grammars import Grammars
from turret.worker.inputs import InputBuilder
from turret.worker.kv_cache import common_layout, make_kv_cache
from turret.worker.loader import LoadTarget, load_model
from turret.worker.memory import MemoryDemand, kv_bytes
from turret.worker.sampler import Sampled, Sampler
from turret.worker.setup import ModelSource, WorkerLimits, WorkerParts
from turret.worker.stages import Stages, lap
from turret.worker.trials import TrialRequest, TrialSteps, trial_plan

__all__ = ["Runner"]

logger = logging.getLogger(__name__)

_TRIAL_BLOCKS = 2
_RESERVE_BYTES = 64 << 20
"""Kept free for what backends allocate within a call."""
_SMALLEST_PIECE = 16
"""Tokens below which a request that does not fit in memory is not cut any further."""


class Runner:
    """The device side of one worker. `load`, then `allocate`, then any number of `step`s, all on one thread."""

    def __init__(self, parts: WorkerParts, source: ModelSource, limits: WorkerLimits) -> None:
        self._parts = parts
        self._source = source
        self._limits = limits
        self._device = parts.platform.torch_device(limits.device_index)
        self._forward: Forward | None = None
        self._not_recorded: str | None = None
        self._layout: KVLayout | None = None
        self._batch: Batch | None = None
        self._inputs: InputBuilder | None = None
        self._sampler: Sampler | None = None
        self._stages: Stages | None = None
        self._grammars = None if parts.grammars is None else Grammars(parts.grammars)

    def load(self, progress: Callable[[str, float], None] | None = None) -> WorkerFacts:
        """Load the model, try it once and say what was found."""
        parts, limits = self._parts, self._limits
        own = parts.platform.ops()
        providers: list[OpProvider] = [*parts.providers, *([] if own is None else [own])]
        target = LoadTarget(self._device, OpTable.resolve(providers), limits.max_model_len)
        loaded = load_model(parts, self._source, target, progress)
        kv_dtype = limits.kv_dtype or self._source.dtype
        self._check_attention(loaded.factory, kv_dtype)
        self._layout = common_layout(
            [parts.attention.kv_layout(spec) for spec in loaded.factory.kv_specs(limits.block_size, kv_dtype)])
        self._forward = Forward(loaded, parts.attention, limits, self._device)
        vocab_size = self._use_cache(_TRIAL_BLOCKS, vocab_size=1)
        slots = max(len(group.layers) for group in self._forward.groups)
        demand = MemoryDemand(
            loaded.factory.weight_bytes, self._activation_bytes(vocab_size), self._layout.page_bytes * slots)
        return WorkerFacts(
            kv_bytes=kv_bytes(limits, parts.platform.memory(limits.device_index), demand),
            page_bytes=self._layout.page_bytes, block_size=limits.block_size, groups=self._forward.groups,
            vocab_size=vocab_size, max_position=limits.max_model_len, weight_bytes=demand.weights,
            device=self._device, attention_backend=parts.attention.name, load_seconds=loaded.seconds)

    def allocate(self, config: KVCacheConfig) -> None:
        """Make the cache, run once over it, and record the forward where the platform can."""
        if self._forward is None or config.groups != self._forward.groups:
            raise EngineError("allocate needs a loaded model and the groups that its facts named")
        if config.block_size != self._limits.block_size:
            raise ConfigError(f"the cache's blocks hold {config.block_size} tokens, the worker was started for "
                              f"{self._limits.block_size}", "block-size")
        assert self._sampler is not None
        self._use_cache(config.num_blocks, self._sampler.vocab_size)
        self._record(config.num_blocks)

    def step(self, plan: StepPlan) -> StepResult:
        """Run a plan; every request of it gets exactly one result, in plan order."""
        if self._batch is None or self._sampler is None:
            raise EngineError("a step needs a cache: call allocate first")
        lap(self._stages, "waiting for a plan")
        began = time.perf_counter()
        work = self._batch.apply(plan)
        lap(self._stages, "batch")
        answers = _Answers(work)
        places = work.runnable()
        if len(places):
            try:
                self._run(work, places, answers)
            except Exception as error:
                logger.warning("step %d failed, trying its requests one by one: %s", plan.step_id, _describe(error))
                for place in places.tolist():
                    self._run_alone(work, place, answers)
        result = StepResult(step_id=plan.step_id, results=answers.results(), forward_time=time.perf_counter() - began)
        if self._stages is not None:
            self._stages.lap("results")
            self._stages.steps += 1
        return result

    def call(self, method: str, args: list[Any]) -> Any:
        """A named method: `grammars` (load what follows grammars, without waiting), `health`, `memory`, `ops`,
        `profile` ("start" or "stop"), `reset`."""
        if method == "grammars":
            if self._grammars is not None:
                self._grammars.prepare()
            return None
        if method == "health":
            return {"ok": True, "requests": 0 if self._batch is None else len(self._batch)}
        if method == "memory":
            info = self._parts.platform.memory(self._limits.device_index)
            return {"total": info.total, "free": info.free, "used_here": info.used_here}
        if method == "ops":
            return None if self._forward is None else {**self._forward.explain(), "not_recorded": self._not_recorded}
        if method == "profile":
            return self._profile(args == ["start"])
        if method == "reset":
            if self._batch is not None:
                self._batch.clear()
            return None
        raise EngineError(
            f"a worker has no method {method!r}; it has grammars, health, memory, ops, pid, profile, reset")

    def _profile(self, start: bool) -> dict[str, Any] | None:
        """Begin to count, or what was counted since: `steps`, seconds of `stages`, and `kernels`."""
        platform, stages = self._parts.platform, self._stages
        if start:
            if isinstance(platform, ProfilingPlatform):
                platform.start_profile()
            self._stages = Stages()
            return None
        self._stages = None
        kernels = platform.stop_profile() if isinstance(platform, ProfilingPlatform) else ()
        return None if stages is None else {
            "steps": stages.steps, "stages": dict(stages.seconds), "kernels": [asdict(one) for one in kernels]}

    def close(self) -> None:
        """Let go of everything."""
        if self._grammars is not None:
            self._grammars.close()
        self._forward = self._batch = self._inputs = self._sampler = None

    def _check_attention(self, factory: LayerFactory, kv_dtype: str) -> None:
        for query in factory.attention_queries(self._limits.block_size, kv_dtype):
            verdict = self._parts.attention.supports(query)
            if not verdict.ok:
                raise PluginError(
                    f"attention backend {self._parts.attention.name!r} cannot serve this model: "
                    f"{'; '.join(verdict.reasons)}; choose another with --attention-backend",
                    plugin=f"attention:{self._parts.attention.name}", stage="supports")

    def _activation_bytes(self, vocab_size: int) -> int:
        """Scratch for the largest step, as the trial run took it, half as much again for what is made in between, and
        logits of every sampled row."""
        assert self._forward is not None
        logits = 2 * 4 * self._limits.max_num_seqs * vocab_size
        return self._forward.scratch_bytes * 3 // 2 + logits + _RESERVE_BYTES

    def _use_cache(self, num_blocks: int, vocab_size: int) -> int:
        """Make cache, batch and inputs, and run token 0 over the null block; returns how many logits there are."""
        assert self._forward is not None and self._layout is not None
        limits, groups = self._limits, self._forward.groups
        self._forward.use_cache([])
        self._forward.use_cache(make_kv_cache(self._layout, groups, num_blocks, self._device))
        shape = BatchShape(limits.max_num_seqs, limits.max_model_len, limits.block_size, len(groups), vocab_size)
        self._batch = Batch(shape, self._grammars)
        self._inputs = InputBuilder(
            self._batch, [group.window for group in groups], limits.max_num_batched_tokens, self._device)
        work = self._batch.apply(trial_plan([TrialRequest([0], 0, [0] * len(groups))]))
        found = self._forward.vocab_size(self._inputs.build(work, work.runnable()))
        self._batch.clear()
        self._sampler = Sampler(found, limits.logprobs_mode, self._forward.sample_op)
        return found

    def _record(self, num_blocks: int) -> None:
        """Replay the forward from here on, if it can be recorded; of a model that cannot it is said once."""
        assert self._forward is not None and self._batch is not None and self._inputs is not None
        platform = self._parts.platform
        recorder = platform.graphs() if isinstance(platform, RecordingPlatform) else None
        if recorder is None or self._limits.enforce_eager:
            self._not_recorded = "the platform records nothing" if recorder is None else "--enforce-eager"
            return
        steps = TrialSteps(self._batch, self._inputs, self._limits.max_num_batched_tokens, num_blocks)
        try:
            self._forward.record(recorder, steps)
        except NotSupportedError as error:
            self._not_recorded = str(error)
            logger.warning("%s runs op by op, slower than recorded: %s", self._source.checkpoint.name, error)

    def _run(self, work: StepWork, places: NDArray[np.int64], answers: _Answers) -> None:
        """One forward over the requests at `places`. Raises before anything is changed, or not at all."""
        assert self._batch is not None and self._inputs is not None and self._forward is not None
        assert self._sampler is not None
        inputs = self._inputs.build(work, places)
        lap(self._stages, "inputs")
        output = self._forward.run(inputs, self._sampler, self._batch.sampling, self._stages)
        for place, entries in output.prompts.items():
            answers.prompts.setdefault(place, []).extend(entries)  # a request may come in pieces
        rows, tokens = [], []
        for place, row, sampled in zip(inputs.sampled.tolist(), inputs.rows.tolist(), output.sampled, strict=True):
            answers.sampled[place] = sampled
            if sampled.token is None:
                self._batch.fail(row, sampled.error or "no token was chosen")
            else:
                rows.append(row)
                tokens.append(sampled.token)
        if rows:
            self._batch.append(np.array(rows, dtype=np.int64), tokens)

    def _run_alone(self, work: StepWork, place: int, answers: _Answers) -> None:
        """One request by itself; in ever smaller pieces while memory is what it lacks; else its error."""
        assert self._batch is not None
        count = piece = int(work.counts[place])
        while True:
            try:
                for start in range(0, count, piece):
                    part = _part_of(work, place, start, min(piece, count - start))
                    self._run(part, np.array([place]), answers)
                return
            except Exception as error:
                answers.prompts.pop(place, None)
                if not _out_of_memory(error) or piece <= _SMALLEST_PIECE:
                    logger.warning("request %s failed: %s", work.request_ids[place], _describe(error))
                    sentence = f"the model failed on this request: {_describe(error)}"
                    answers.sampled[place] = Sampled(None, error=sentence)
                    self._batch.fail(int(work.rows[place]), sentence)
                    return
                piece = max(_SMALLEST_PIECE, piece // 2)


class _Answers:
    """What is known of each request of a step, by its place in the plan."""

    def __init__(self, work: StepWork) -> None:
        self._work = work
        self.sampled: dict[int, Sampled] = {place: Sampled(None, error=e) for place, e in work.errors.items()}
        self.prompts: dict[int, list[TokenLogprobs]] = {}

    def results(self) -> list[RequestResult]:
        """One per request of the plan."""
        found = []
        for place, request_id in enumerate(self._work.request_ids):
            sampled = self.sampled.get(place)
            if sampled is None:
                result = RequestResult(request_id=request_id, prompt_logprobs=self.prompts.get(place))
            elif sampled.token is None:
                result = RequestResult(request_id=request_id, error=sampled.error)
            else:
                logprobs = None if sampled.logprobs is None else [sampled.logprobs]
                result = RequestResult(request_id=request_id, token_ids=[sampled.token], logprobs=logprobs,
                                       prompt_logprobs=self.prompts.get(place))
            found.append(result)
        return found


def _part_of(work: StepWork, place: int, start: int, count: int) -> StepWork:
    """The same step with only tokens [start, start + count) of one request."""
    computed, counts = work.computed.copy(), work.counts.copy()
    computed[place] += start
    counts[place] = count
    return StepWork(work.request_ids, work.rows, computed, counts, work.errors)


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
