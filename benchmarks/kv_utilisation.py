"""How much of the KV cache that is in use holds live tokens.

Runs the scheduler and block manager as the engine does (planning one step ahead) over a fixed pool that mixed lengths
overfill, without a model: what a token is does not matter here. After each plan it compares slots of blocks in use with
tokens that lie in them. The last line is JSON: utilisation at the step with most blocks in use (`at_peak`), averaged
over all steps at full load (`mean`), and the same with a sliding-window group beside the full one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import deque

from turret.kv import KVCacheManager
from turret.messages import (
    KVCacheConfig,
    KVGroup,
    KVGroupKind,
    Request,
    RequestResult,
    StepPlan,
    StepResult,
)
from turret.sampling import SamplingParams
from turret.scheduler import FcfsPolicy, Scheduler, SchedulerLimits

MAX_MODEL_LEN = 4096


def make_requests(count: int, seed: int) -> list[Request]:
    """Prompts of 16 to 1024 and answers of 16 to 512 tokens, short ones more often; nothing shared."""
    draw = random.Random(seed)
    requests = []
    for number in range(count):
        prompt = int(16 * 64 ** draw.random())
        output = int(16 * 32 ** draw.random())
        requests.append(
            Request(
                request_id=f"r{number}",
                prompt_token_ids=[draw.randrange(32_000) for _ in range(prompt)],
                sampling=SamplingParams(max_tokens=output),
                max_tokens=output,
                seed=number,
            )
        )
    return requests


class Meter:
    """Live tokens per request, and slots in use, after each plan."""

    def __init__(self, config: KVCacheConfig, kv: KVCacheManager) -> None:
        self.windows = [g.window for g in config.groups]
        self.kv = kv
        self.live: dict[str, int] = {}
        self.samples: list[tuple[int, float]] = []

    def planned(self, plan: StepPlan) -> None:
        """Take in what a plan computes, and measure."""
        for gone in plan.removed:
            self.live.pop(gone, None)
        for new in plan.new:
            self.live[new.request.request_id] = new.num_computed_tokens + new.num_tokens
        for run in plan.running:
            self.live[run.request_id] = run.num_computed_tokens + run.num_tokens
        blocks = self.kv.num_usable_blocks - self.kv.num_free
        # The next query of a group with window w sees itself and w - 1 tokens in the cache.
        tokens = sum(n if w is None else min(n, w - 1) for n in self.live.values() for w in self.windows)
        self.samples.append((blocks, tokens / (blocks * self.kv.block_size)))

    def report(self) -> dict[str, float]:
        """`at_peak`, `mean` over steps with at least 90% of the peak's blocks, `peak_usage` of the pool."""
        blocks, at_peak = max(self.samples)
        full_load = [share for used, share in self.samples if used >= 0.9 * blocks]
        return {
            "at_peak": round(at_peak, 4),
            "mean": round(sum(full_load) / len(full_load), 4),
            "peak_usage": round(blocks / self.kv.num_usable_blocks, 4),
        }


def measure(groups: list[KVGroup], num_blocks: int, requests: list[Request]) -> dict[str, float]:
    """Run all requests through; figures of the run."""
    config = KVCacheConfig(num_blocks=num_blocks, block_size=16, groups=groups)
    kv = KVCacheManager(config)
    limits = SchedulerLimits(
        max_num_batched_tokens=2048, max_num_seqs=256, max_model_len=MAX_MODEL_LEN, async_depth=2
    )
    scheduler, meter = Scheduler(limits, kv, FcfsPolicy()), Meter(config, kv)
    known: dict[str, int] = {}
    for request in requests:
        scheduler.add(request)
    in_flight: deque[StepPlan] = deque()
    while scheduler.has_unfinished or in_flight:
        plan = scheduler.plan()
        if plan is not None:
            meter.planned(plan)
            in_flight.append(plan)
            continue
        for event in scheduler.commit(answer(in_flight.popleft(), known)):
            if event.finish_reason is not None:
                meter.live.pop(event.request_id, None)
    return {**meter.report(), "preemptions": scheduler.stats().preemptions_total}


def answer(plan: StepPlan, known: dict[str, int]) -> StepResult:
    """What a worker would say: a token for each request whose step reached the `known` length it entered with."""
    ends = [(n.request.request_id, n.num_computed_tokens + n.num_tokens) for n in plan.new]
    ends += [(r.request_id, r.num_computed_tokens + r.num_tokens) for r in plan.running]
    for new in plan.new:
        known[new.request.request_id] = len(new.request.prompt_token_ids) + len(new.output_token_ids)
    return StepResult(
        step_id=plan.step_id,
        results=[RequestResult(request_id=i, token_ids=[7] if end >= known[i] else []) for i, end in ends],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=2048)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    requests = make_requests(args.requests, args.seed)
    full = KVGroup(KVGroupKind.FULL, [0])
    sliding = KVGroup(KVGroupKind.SLIDING, [1], 512)
    figures = {
        "benchmark": "kv_utilisation",
        "block_size": 16,
        "num_blocks": args.blocks,
        "full": measure([full], args.blocks, requests),
        "full_and_sliding": measure([full, sliding], args.blocks, requests),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
