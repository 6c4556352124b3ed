"""The free list and the index of a pool, against a plain model."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turret.errors import EngineError
from turret.kv import BlockPool

NUM_BLOCKS = 8


class PoolModel(RuleBasedStateMachine):
    """The pool does what a list of free ids and two dicts would."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS, 2)
        self.free = list(range(1, NUM_BLOCKS))
        self.refs = dict.fromkeys(self.free, 0)
        self.names: dict[int, tuple[int, bytes]] = {}

    def held(self) -> list[int]:
        return [b for b, refs in self.refs.items() if refs]

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.free)))
        expected, self.free = self.free[:count], self.free[count:]
        assert self.pool.take(count) == expected
        for block in expected:
            self.refs[block] = 1
            self.names.pop(block, None)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.pool.release(block)
        self.refs[block] -= 1
        if self.refs[block] == 0:
            self.free.insert(len(self.free) if block in self.names else 0, block)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def hold_named(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.names)))
        self.pool.hold(block)
        self.refs[block] += 1
        if block in self.free:
            self.free.remove(block)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), group=st.integers(0, 1), digest=st.sampled_from([b"a", b"b", b"c"]))
    def name(self, data: st.DataObject, group: int, digest: bytes) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.pool.name(block, group, digest)
        if block not in self.names and (group, digest) not in self.names.values():
            self.names[block] = (group, digest)

    @precondition(lambda self: not self.held())
    @rule()
    def forget_all(self) -> None:
        self.pool.forget_all()
        self.names.clear()

    @invariant()
    def agrees(self) -> None:
        assert list(self.pool.free_order()) == self.free
        assert (self.pool.num_free, self.pool.num_used) == (len(self.free), NUM_BLOCKS - 1 - len(self.free))
        found = {b: (g, d) for g in range(2) for d, b in self.pool.index(g).items()}
        assert found == self.names


PoolModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TestPoolModel(PoolModel.TestCase):
    """Random operations."""


def test_releasing_too_often_is_named() -> None:
    pool = BlockPool(4, 1)
    (block,) = pool.take(1)
    pool.release(block)
    with pytest.raises(EngineError, match=f"KV block {block} was released more often"):
        pool.release(block)


def test_taking_too_many_is_named() -> None:
    with pytest.raises(EngineError, match=r"4 KV blocks .* 3 free"):
        BlockPool(4, 1).take(4)
