"""What the scheduler's cases share: small pools, requests that run free, steps as sizes."""

from __future__ import annotations

from simulated_worker import Harness, make_groups, make_request

from turret.messages import KVCacheConfig
from turret.scheduler import SchedulerLimits


def harness(num_blocks: int = 64, priority: bool = False, windows: tuple[int | None, ...] = (None,),
            **fields: object) -> Harness:
    limits = {"max_num_batched_tokens": 16, "max_num_seqs": 8, "max_model_len": 64}
    config = KVCacheConfig(num_blocks=num_blocks, block_size=4, groups=make_groups(*windows))
    return Harness(SchedulerLimits(**(limits | fields)), config, priority)


def free_running(request_id: str, length: int, max_tokens: int = 8, **fields: object):
    """A request that ends by length only, with a prompt of its own."""
    seed = int(request_id.encode().hex(), 16) % 7
    return make_request(request_id, [2 + (seed + i) % 9 for i in range(length)], max_tokens, ignore_eos=True,
                        stop_token_ids=[], **fields)


def sizes(plan: object) -> dict[str, int]:
    return {n.request.request_id: n.num_tokens for n in plan.new} | {r.request_id: r.num_tokens for r in plan.running}


def steps(h: Harness, count: int) -> list[dict[str, int]]:
    before = len(h.plans)
    for _ in range(count):
        h.step()
    return [sizes(p) for p in h.plans[before:]]


def finish(h: Harness) -> None:
    h.drain()
    for request_id in h.requests:
        h.check_answer(request_id)
    h.check_idle()


def finish_rest(h: Harness, *gone: str) -> None:
    for request_id in gone:
        del h.requests[request_id]
    finish(h)
