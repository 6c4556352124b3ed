"""Cases of scheduler policies: keys that order, a victim that runs, and one that may give way.

Owns these checks. Knows no policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from turret.contracts import DisplacingPolicy, RequestView
from turret.testing.cases import Case, Subject

__all__ = ["build"]


def build(subject: Subject) -> Iterator[Case]:
    yield subject.case("semantic", "sort_key_orders", _sort_key, subject)
    yield subject.case("semantic", "victim_runs", _victim, subject)
    yield subject.case("semantic", "displaced_may_yield", _displaced, subject)


def _views() -> list[RequestView]:
    return [
        RequestView(
            request_id=f"r{number}",
            order=number,
            arrival_time=100.0 + number // 2,
            priority=(number * 7) % 3,
            tenant=f"t{number % 2}",
            num_prompt_tokens=10 * number + 1,
            num_computed_tokens=5 * number,
            num_output_tokens=number,
            tenant_start=float(number * 5 % 7),
            may_yield=number % 3 != 0,
        )
        for number in range(8)
    ]


def _sort_key(subject: Subject) -> None:
    """Keys compare with each other, do not change, and tell any two requests apart."""
    policy, views = subject.load(), _views()
    keys = [policy.sort_key(view) for view in views]
    assert sorted(keys) == sorted(policy.sort_key(view) for view in reversed(views)), "keys change"
    assert len(set(keys)) == len(views), "two requests share a key: their order is left to chance"


def _victim(subject: Subject) -> None:
    """The victim is one of those that run, and the same whatever order they are listed in."""
    policy, views = subject.load(), _views()
    for count in range(1, len(views) + 1):
        running = views[:count]
        victim = policy.pick_victim(running)
        assert victim in {view.request_id for view in running}
        assert victim == policy.pick_victim(running[::-1])


def _displaced(subject: Subject) -> None:
    """A policy that lets requests give way names one that runs and may yield, in whatever order they are listed."""
    policy, views = subject.load(), _views()
    if not isinstance(policy, DisplacingPolicy):
        return
    for count in range(1, len(views)):
        running, waiting = views[:count], views[count]
        chosen = policy.pick_displaced(waiting, running)
        assert chosen is None or chosen in {view.request_id for view in running if view.may_yield}
        assert chosen == policy.pick_displaced(waiting, running[::-1])
