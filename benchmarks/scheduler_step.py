"""What planning and committing one step costs, with nothing else around it.

Decodes of 1, 32 and 256 requests, for one full group and for a full beside a sliding one, planned one step ahead as the
engine does, with prefix caching on. All requests are in step with each other, so that every 16th step fills, hashes and
takes a block for each of them: the 95th percentile is what such a step costs, the median what the others cost. The
result a worker would send is made outside the clock. The last line is JSON: microseconds of CPU time of `plan` plus
`commit` (CPU time, so that other programs on the machine do not count).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque

from turret.kv import KVCacheManager
from turret.messages import KVCacheConfig, KVGroup, KVGroupKind, Request, RequestResult, StepPlan, StepResult
from turret.sampling import SamplingParams
from turret.scheduler import FcfsPolicy, Scheduler, SchedulerLimits

PROMPT = 40
GROUPS = {
    "full": [KVGroup(KVGroupKind.FULL, [0])],
    "full_and_sliding": [KVGroup(KVGroupKind.FULL, [0]), KVGroup(KVGroupKind.SLIDING, [1], 512)],
}


def make_scheduler(groups: list[KVGroup], num_requests: int, steps: int) -> Scheduler:
    """A scheduler that holds the requests, none of them ever short of memory."""
    tokens = steps + 16
    blocks = num_requests * len(groups) * ((PROMPT + tokens) // 16 + 2)
    kv = KVCacheManager(KVCacheConfig(num_blocks=1 + blocks, block_size=16, groups=groups))
    limits = SchedulerLimits(
        max_num_batched_tokens=256 * PROMPT, max_num_seqs=256, max_model_len=PROMPT + tokens, async_depth=2
    )
    scheduler = Scheduler(limits, kv, FcfsPolicy())
    for number in range(num_requests):
        scheduler.add(
            Request(
                request_id=f"request-{number}",
                prompt_token_ids=list(range(number, number + PROMPT)),
                sampling=SamplingParams(max_tokens=tokens),
                max_tokens=tokens,
                seed=number,
                eos_token_ids=[2],
            )
        )
    return scheduler


def answer(plan: StepPlan) -> StepResult:
    """One token for every request of the plan."""
    ids = [n.request.request_id for n in plan.new] + [r.request_id for r in plan.running]
    return StepResult(step_id=plan.step_id, results=[RequestResult(request_id=i, token_ids=[7]) for i in ids])


def measure(scheduler: Scheduler, steps: int) -> dict[str, float]:
    """Microseconds of a step, without the first."""
    in_flight: deque[StepPlan] = deque()
    spent = []
    for _ in range(steps):
        start = time.thread_time()
        plan = scheduler.plan()
        planned = time.thread_time() - start
        assert plan is not None
        in_flight.append(plan)
        if len(in_flight) < 2:
            continue
        result = answer(in_flight.popleft())
        start = time.thread_time()
        scheduler.commit(result)
        spent.append(planned + time.thread_time() - start)
    micros = [s * 1e6 for s in spent[1:]]
    return {"median": round(statistics.median(micros), 1), "p95": round(statistics.quantiles(micros, n=20)[-1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, groups in GROUPS.items():
        figures[name] = {}
        for num_requests in (1, 32, 256):
            micros = measure(make_scheduler(groups, num_requests, args.steps), args.steps)
            figures[name][str(num_requests)] = micros
            print(f"{name}, {num_requests} decodes: {micros} µs a step")
    print(json.dumps({"benchmark": "scheduler_step", "unit": "us", "plan_and_commit": figures}))


if __name__ == "__main__":
    main()
