"""An engine whose model is a hash: real scheduler, real KV manager, no tensors.

Owns: `NullWorker`, whose next token is a function of a request's whole history, and a factory that builds an engine
around it. Knows nothing of torch.

For tests of what lies around a model: a token depends on the prompt and everything sampled since, and on nothing else,
so a wrong chunk, a lost preemption or a mixed-up request shows as a wrong token (`null_tokens` says which is right).
Time and faults are dialled in `NullConfig`. A worker with a `Speech` says what that has written for a request instead,
each token certain, and then the end of the sequence.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from turret.contracts import Worker
from turret.engine import EngineCore, Progress
from turret.errors import ConfigError, EngineDeadError, EngineError, LoadError
from turret.kv import KVCacheManager
from turret.messages import (
    EngineReady,
    KVCacheConfig,
    KVGroup,
    KVGroupKind,
    Request,
    RequestResult,
    StepPlan,
    StepResult,
    TokenLogprobs,
    WorkerFacts,
)
from turret.scheduler import FairPolicy, FcfsPolicy, PriorityPolicy, Scheduler, SchedulerLimits
from turret.worker.remote import RemoteWorker, WorkerSpawn

__all__ = ["NullConfig", "NullWorker", "Speech", "build_null_engine", "null_tokens", "null_worker"]

Speech = Callable[[Request], Sequence[int]]
"""The tokens that answer a request. Raises EngineError for one it has no answer to, which fails that request."""

_MASK = 2**64 - 1
_MULTIPLIER = 6364136223846793005
_POLICIES = MappingProxyType({policy.name: policy for policy in (FcfsPolicy, PriorityPolicy, FairPolicy)})
_FAULTS = ("", "load", "raise", "dead", "kill", "request")


class NullConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Size, pace and faults of a null engine.

    A step takes `step_seconds` plus `token_seconds` for each of its tokens; loading takes `load_seconds`. `fault`
    happens in step `fault_step`: "raise" is an unexpected exception, "dead" a worker that says it is gone, "kill"
    a process killed by the kernel, "request" the failure of the first request of that step; "load" stops the loading.
    With `remote` the worker runs in a process of its own. `policy` is one of those that core ships.
    """

    num_blocks: int = 4096
    block_size: int = 16
    vocab_size: int = 1000
    max_model_len: int = 8192
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    async_depth: int = 2
    policy: str = "fcfs"
    remote: bool = False
    load_seconds: float = 0.0
    step_seconds: float = 0.0
    token_seconds: float = 0.0
    fault: str = ""
    fault_step: int = 1

    def __post_init__(self) -> None:
        if self.fault not in _FAULTS:
            raise ConfigError(f"fault must be one of {_FAULTS}, got {self.fault!r}")
        if self.policy not in _POLICIES:
            raise ConfigError(f"policy must be one of {', '.join(_POLICIES)}, got {self.policy!r}")


def _fold(state: int, tokens: Iterable[int]) -> int:
    for token in tokens:
        state = (state * _MULTIPLIER + token + 1) & _MASK
    return state


def null_tokens(prompt: list[int], count: int, vocab_size: int = NullConfig().vocab_size) -> list[int]:
    """The first `count` tokens that a null engine answers to `prompt`."""
    state = _fold(0, prompt)
    tokens = []
    for _ in range(count):
        token = (state >> 33) % vocab_size
        tokens.append(token)
        state = _fold(state, (token,))
    return tokens


class _History:
    """What the worker knows of one request: its tokens, and the hash of those computed so far."""

    __slots__ = ("num_computed", "request", "said", "state", "tokens")

    def __init__(self, request: Request, tokens: list[int], num_computed: int) -> None:
        self.request = request
        self.said: Sequence[int] | None = None
        self.tokens = tokens
        self.num_computed = num_computed
        self.state = _fold(0, tokens[:num_computed])


class NullWorker:
    """A worker after `turret.contracts.Worker`: steps are computed when submitted, and due after their time."""

    def __init__(self, config: NullConfig, speech: Speech | None = None) -> None:
        self._config = config
        self._speech = speech
        self._histories: dict[str, _History] = {}
        self._results: queue.SimpleQueue[tuple[float, StepResult | Exception]] = queue.SimpleQueue()
        self._next: tuple[float, StepResult | Exception] | None = None
        self._last_due = 0.0

    def start(self, progress: Callable[[str, float], None] | None = None) -> WorkerFacts:
        """Take `load_seconds`, telling how far it is."""
        config = self._config
        began = time.monotonic()
        while True:
            elapsed = time.monotonic() - began
            if progress is not None:
                progress("loading weights", min(1.0, elapsed / config.load_seconds) if config.load_seconds else 1.0)
            if elapsed >= config.load_seconds:
                break
            time.sleep(min(0.05, config.load_seconds - elapsed))
        if config.fault == "load":
            raise LoadError("null.safetensors is truncated: tensor 'embed' ends after the file")
        return WorkerFacts(
            kv_bytes=config.num_blocks, page_bytes=1, block_size=config.block_size,
            groups=[KVGroup(KVGroupKind.FULL, [0])], vocab_size=config.vocab_size, max_position=config.max_model_len,
            weight_bytes=0, device="null", attention_backend="null",
        )

    def allocate(self, config: KVCacheConfig) -> None:
        """Nothing to allocate."""

    def submit(self, plan: StepPlan) -> None:
        """Compute the step; `collect` gives it out when its time has passed."""
        config = self._config
        started = max(time.monotonic(), self._last_due)
        self._last_due = started + config.step_seconds + config.token_seconds * plan.num_tokens
        self._results.put((self._last_due, self._outcome(plan)))

    def collect(self, timeout: float | None = None) -> StepResult | None:
        """The oldest step's result, when it is due; None after `timeout` seconds without one."""
        limit = math.inf if timeout is None else time.monotonic() + timeout
        if self._next is None:
            try:
                self._next = self._results.get(timeout=timeout)
            except queue.Empty:
                return None
        due, outcome = self._next
        time.sleep(max(0.0, min(due, limit) - time.monotonic()))
        if due > limit:
            return None
        self._next = None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def call(self, method: str, args: list[Any]) -> Any:
        """`health` is true, `pid` the process, `echo` gives its arguments back, `requests` the ids in the batch."""
        if method == "health":
            return True
        if method == "pid":
            return os.getpid()
        if method == "echo":
            return args
        if method == "requests":
            return sorted(self._histories)
        raise EngineError(f"the null worker has no method {method!r}")

    def shutdown(self) -> None:
        """Forget everything; whoever waits for a result is told."""
        self._histories.clear()
        self._results.put((0.0, EngineDeadError("the worker was shut down")))

    def _outcome(self, plan: StepPlan) -> StepResult | Exception:
        config = self._config
        at_fault = plan.step_id == config.fault_step
        if at_fault and config.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        results = self._run(plan)
        if at_fault and config.fault == "raise":
            return ZeroDivisionError("division by zero in a kernel")
        if at_fault and config.fault == "dead":
            return EngineDeadError("worker 0 was killed by SIGKILL")
        if at_fault and config.fault == "request" and results:
            results[0] = RequestResult(request_id=results[0].request_id, error="out of memory for this request")
        return StepResult(step_id=plan.step_id, results=results)

    def _run(self, plan: StepPlan) -> list[RequestResult]:
        histories = self._histories
        for request_id in plan.removed:
            histories.pop(request_id, None)
        results = []
        for new in plan.new:
            tokens = [*new.request.prompt_token_ids, *new.output_token_ids]
            history = _History(new.request, tokens, new.num_computed_tokens)
            histories[new.request.request_id] = history
            results.append(self._advance(new.request.request_id, history, new.num_computed_tokens, new.num_tokens))
        for running in plan.running:
            request_id = running.request_id
            results.append(
                self._advance(request_id, histories[request_id], running.num_computed_tokens, running.num_tokens)
            )
        return results

    def _advance(self, request_id: str, history: _History, start: int, count: int) -> RequestResult:
        if start != history.num_computed:
            raise EngineError(f"request {request_id} was computed up to {history.num_computed}, the plan says {start}")
        end = start + count
        history.state = _fold(history.state, history.tokens[start:end])
        history.num_computed = end
        if end < len(history.tokens):
            return RequestResult(request_id=request_id)
        if self._speech is not None:
            return self._say(history, self._speech)
        token = (history.state >> 33) % self._config.vocab_size
        history.tokens.append(token)
        return RequestResult(request_id=request_id, token_ids=[token])

    def _say(self, history: _History, speech: Speech) -> RequestResult:
        request = history.request
        try:
            if request.sampling.prompt_logprobs is not None:
                raise EngineError("what is said here was written down: there are no log-probabilities of the prompt")
            if history.said is None:
                history.said = speech(request)
            place = len(history.tokens) - len(request.prompt_token_ids)
            token = history.said[place] if place < len(history.said) else _end_of(request)
        except EngineError as error:
            return RequestResult(request_id=request.request_id, error=str(error))
        history.tokens.append(token)
        count = request.sampling.logprobs
        entry = None if count is None else [TokenLogprobs(token, 0.0, 1, [token][:count], [0.0][:count])]
        return RequestResult(request_id=request.request_id, token_ids=[token], logprobs=entry)


def _end_of(request: Request) -> int:
    if not request.eos_token_ids:
        raise EngineError("the speech is over, and this model has no token for the end of a sequence")
    return request.eos_token_ids[0]


def null_worker(config_json: str) -> NullWorker:
    """The entry of a worker's process."""
    return NullWorker(msgspec.json.decode(config_json, type=NullConfig))


def build_null_engine(config_json: str, progress: Progress) -> EngineCore:
    """An engine factory: `turret.testing.null_engine:build_null_engine` with the JSON of a `NullConfig`."""
    config = msgspec.json.decode(config_json, type=NullConfig)
    worker: Worker
    if config.remote:
        worker = RemoteWorker(WorkerSpawn(f"{__name__}:{null_worker.__name__}", config_json))
    else:
        worker = NullWorker(config)
    facts = worker.start(progress)
    shape = KVCacheConfig(
        num_blocks=config.num_blocks, block_size=config.block_size, groups=facts.groups,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    worker.allocate(shape)
    limits = SchedulerLimits(
        max_num_batched_tokens=config.max_num_batched_tokens, max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len, async_depth=config.async_depth,
    )
    ready = EngineReady(
        num_blocks=config.num_blocks, block_size=config.block_size, vocab_size=config.vocab_size,
        max_model_len=config.max_model_len, facts={"device": facts.device},
    )
    scheduler = Scheduler(limits, KVCacheManager(shape), _POLICIES[config.policy]())
    return EngineCore(scheduler, worker, ready, config.async_depth)
