"""A worker without tensors, and a harness that runs a scheduler against it.

A page's slot holds a number that depends on every token up to its position, on the group and on what salts the cache:
just what a real page's keys and values depend on. So each read can be checked against the truth, and the next token is
a function of what was read: an answer is right only if every page it stood on was.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from turret.contracts import SchedulerPolicy
from turret.kv import NULL_BLOCK, KVCacheManager
from turret.messages import (
    FinishReason,
    KVCacheConfig,
    KVGroup,
    KVGroupKind,
    Request,
    RequestResult,
    StepPlan,
    StepResult,
    TokenEvent,
)
from turret.sampling import SamplingParams
from turret.scheduler import FcfsPolicy, PriorityPolicy, Scheduler, SchedulerLimits

VOCAB = 11
EOS = 0
STOP = 1


def values(tokens: list[int], request: Request) -> list[int]:
    """What a right page holds at each position."""
    chain, out = hash((request.adapter, request.cache_salt)), []
    for token in tokens:
        chain = hash((chain, token))
        out.append(chain)
    return out


def next_token(value: int, request: Request) -> int:
    return hash((value, request.seed)) % VOCAB


def expected_answer(request: Request, max_model_len: int) -> tuple[list[int], FinishReason, int | None]:
    """The answer of a request that runs alone, by the definition of its stop rules."""
    tokens = list(request.prompt_token_ids)
    limit = min(request.max_tokens, max_model_len - len(tokens))
    for count in range(1, limit + 1):
        token = next_token(values(tokens, request)[-1], request)
        tokens.append(token)
        answer = tokens[len(request.prompt_token_ids) :]
        if token in request.eos_token_ids and not request.sampling.ignore_eos:
            return answer, FinishReason.STOP, None
        if token in request.stop_token_ids:
            return answer, FinishReason.STOP, token
        if count == limit:
            return answer, FinishReason.LENGTH, None
    raise AssertionError("unreachable")


def make_request(request_id: str, prompt: list[int], max_tokens: int, **fields: object) -> Request:
    ignore_eos = bool(fields.pop("ignore_eos", False))
    skip = fields.pop("skip_cache", None)
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, skip_reading_prefix_cache=skip)
    defaults: dict[str, object] = {"eos_token_ids": [EOS], "stop_token_ids": [STOP], "seed": 0}
    return Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling, max_tokens=max_tokens,
                   **(defaults | fields))


def make_groups(*windows: int | None) -> list[KVGroup]:
    return [
        KVGroup(KVGroupKind.FULL if w is None else KVGroupKind.SLIDING, [layer], w) for layer, w in enumerate(windows)
    ]


@dataclass
class Row:
    request: Request
    tokens: list[int]
    tables: list[list[int]]
    computed: int
    failed: bool = False


class SimulatedWorker:
    """Executes plans strictly in order, each only when it is collected: as late as a real worker could."""

    def __init__(self, config: KVCacheConfig) -> None:
        self.config = config
        self.pages: dict[int, list[object]] = {b: [None] * config.block_size for b in range(config.num_blocks)}
        self.rows: dict[str, Row] = {}
        self.queue: deque[StepPlan] = deque()
        self.failing: set[str] = set()

    def submit(self, plan: StepPlan) -> None:
        self.queue.append(plan)

    def collect(self) -> StepResult:
        plan = self.queue.popleft()
        for request_id in plan.removed:
            del self.rows[request_id]
        parts = [self._enter(new) for new in plan.new] + [self._continue(run) for run in plan.running]
        written: set[tuple[int, int]] = set()
        alive = [part for part in parts if not part[0].failed]
        for row, start, end in alive:
            self._write(row, start, end, written)
        for row, start, end in alive:
            self._read(row, start, end)
        return StepResult(step_id=plan.step_id, results=[self._sample(row, end) for row, _, end in parts])

    def _enter(self, new: object) -> tuple[Row, int, int]:
        request = new.request
        assert request.request_id not in self.rows, "a request entered twice"
        row = Row(request, request.prompt_token_ids + new.output_token_ids, [list(t) for t in new.block_ids],
                  new.num_computed_tokens)
        self.rows[request.request_id] = row
        return self._part(row, new.num_computed_tokens, new.num_tokens)

    def _continue(self, run: object) -> tuple[Row, int, int]:
        row = self.rows[run.request_id]
        assert row.computed == run.num_computed_tokens
        for table, ids in zip(row.tables, run.new_block_ids, strict=True):
            table.extend(ids)
        return self._part(row, run.num_computed_tokens, run.num_tokens)

    def _part(self, row: Row, start: int, size: int) -> tuple[Row, int, int]:
        end = start + size
        assert size >= 1 and (end <= len(row.tokens) or row.failed), "a step goes past what is known of a request"
        row.computed = end
        for table in row.tables:
            assert len(table) == -(-end // self.config.block_size), "a table does not cover its tokens exactly"
        return row, start, end

    def _write(self, row: Row, start: int, end: int, written: set[tuple[int, int]]) -> None:
        truth = values(row.tokens[:end], row.request)
        for group, table in enumerate(row.tables):
            for position in range(start, end):
                block, slot = table[position // self.config.block_size], position % self.config.block_size
                assert block != NULL_BLOCK and (block, slot) not in written
                written.add((block, slot))
                self.pages[block][slot] = (group, truth[position])

    def _read(self, row: Row, start: int, end: int) -> None:
        truth = values(row.tokens[:end], row.request)
        for group, (table, shape) in enumerate(zip(row.tables, self.config.groups, strict=True)):
            oldest = 0 if shape.window is None else max(0, start - shape.window + 1)
            for position in range(oldest, end):
                found = self.pages[table[position // self.config.block_size]][position % self.config.block_size]
                assert found == (group, truth[position]), f"{row.request.request_id} reads a foreign page at {position}"

    def _sample(self, row: Row, end: int) -> RequestResult:
        request = row.request
        if request.request_id in self.failing:
            row.failed = True  # steps planned before this was known still name it; nothing is done for it there
            return RequestResult(request_id=request.request_id, error="out of luck")
        if end < len(row.tokens):
            return RequestResult(request_id=request.request_id)
        token = next_token(values(row.tokens, request)[-1], request)
        row.tokens.append(token)
        return RequestResult(request_id=request.request_id, token_ids=[token])


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    end: TokenEvent | None = None


class Harness:
    """A scheduler, a pool and a simulated worker, with every promise checked at every step."""

    def __init__(self, limits: SchedulerLimits, config: KVCacheConfig, priority: bool = False,
                 policy: SchedulerPolicy | None = None) -> None:
        self.limits = limits
        self.config = config
        self.kv = KVCacheManager(config)
        self.priority = priority
        self.scheduler = Scheduler(limits, self.kv, policy or (PriorityPolicy() if priority else FcfsPolicy()))
        self.worker = SimulatedWorker(config)
        self.requests: dict[str, Request] = {}
        self.answers: dict[str, Answer] = {}
        self.contents: dict[bytes, list[int]] = {}
        self.plans: list[StepPlan] = []

    def add(self, request: Request) -> None:
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        self.answers[request.request_id] = Answer()
        self._learn_contents(request)

    def live(self) -> list[str]:
        return [i for i, a in self.answers.items() if a.end is None]

    def plan(self) -> bool:
        preempted = self.scheduler._preemptions
        plan = self.scheduler.plan()
        if plan is None:
            return False
        assert not plan.new or self.scheduler._preemptions == preempted, "admitted after a preemption"
        self._check_plan(plan)
        self.plans.append(plan)
        self.worker.submit(plan)
        return True

    def commit(self) -> bool:
        if not self.worker.queue:
            return False
        self.take(self.scheduler.commit(self.worker.collect()))
        return True

    def abort(self, request_ids: list[str]) -> None:
        self.take(self.scheduler.abort(request_ids))

    def step(self) -> bool:
        """One turn of an engine: keep `async_depth` steps in flight, then take the oldest result."""
        while self.plan():
            pass
        moved = self.commit()
        assert moved or not self.scheduler.has_unfinished, "requests wait, but nothing is planned or in flight: a hang"
        return moved

    def drain(self, max_steps: int = 20_000) -> None:
        for _ in range(max_steps):
            if not self.step():
                break
        assert not self.scheduler.has_unfinished and self.scheduler.counts() == (0, 0)

    def take(self, events: list[TokenEvent]) -> None:
        for event in events:
            answer = self.answers[event.request_id]
            assert answer.end is None, "an event after the last"
            answer.tokens.extend(event.token_ids)
            if event.finish_reason is not None:
                answer.end = event

    def check_answer(self, request_id: str) -> None:
        """The answer equals that of the request alone; of an aborted or failed one, its beginning."""
        answer, request = self.answers[request_id], self.requests[request_id]
        tokens, reason, stop_reason = expected_answer(request, self.limits.max_model_len)
        assert answer.end is not None
        if answer.end.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
            assert answer.tokens == tokens[: len(answer.tokens)]
            return
        assert (answer.tokens, answer.end.finish_reason, answer.end.stop_reason) == (tokens, reason, stop_reason)

    def check_blocks(self) -> None:
        """Counts of holders equal tables; free and held blocks are all blocks; the index says the truth."""
        pool = self.kv._pool
        holders = Counter(
            b for s in self.kv._sequences.values() for t in s.tables for b in t if b != NULL_BLOCK
        )
        free = list(pool.free_order())
        assert len(free) == len(set(free)) == pool.num_free
        assert all(pool.references(b) == holders[b] for b in range(1, pool.num_blocks))
        assert set(free) | set(holders) == set(range(1, pool.num_blocks)) and not set(free) & set(holders)
        named = Counter()
        for group in range(len(self.config.groups)):
            for digest, block in pool.index(group).items():
                named[block] += 1
                assert self.worker.pages[block] == [(group, v) for v in self.contents[digest]], "the index lies"
        assert all(count == 1 for count in named.values())

    def check_idle(self) -> None:
        """Nothing leaked once all requests ended."""
        self.check_blocks()
        assert self.kv.num_free == self.kv.num_usable_blocks and self.kv.usage == 0 and not self.kv._sequences
        assert self.kv.reset_prefix_cache()

    def _check_plan(self, plan: StepPlan) -> None:
        ids = [n.request.request_id for n in plan.new] + [r.request_id for r in plan.running]
        assert ids and len(ids) == len(set(ids)) <= self.limits.max_num_seqs
        assert 1 <= plan.num_tokens <= self.limits.max_num_batched_tokens
        ends = [n.num_computed_tokens + n.num_tokens for n in plan.new]
        ends += [r.num_computed_tokens + r.num_tokens for r in plan.running]
        for request_id, end in zip(ids, ends, strict=True):
            request = self.requests[request_id]
            assert end < min(len(request.prompt_token_ids) + request.max_tokens, self.limits.max_model_len)
        if not self.limits.enable_chunked_prefill:
            for new in plan.new:
                assert new.num_computed_tokens + new.num_tokens >= len(new.request.prompt_token_ids)

    def _learn_contents(self, request: Request) -> None:
        """What each full block of the request and its answer may be called, and what it then must hold."""
        answer, _, _ = expected_answer(request, self.limits.max_model_len)
        tokens = request.prompt_token_ids + answer
        truth, hasher, size = values(tokens, request), self.kv._hasher, self.config.block_size
        digest, extra = hasher.root, hasher.extra((request.adapter, request.cache_salt))
        for start in range(0, len(tokens) - size + 1, size):
            digest = hasher.chain(digest, tokens[start : start + size], extra)
            self.contents[digest] = truth[start : start + size]
