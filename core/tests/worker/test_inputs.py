"""Inputs of a forward: steps of one token each and mixed ones describe the same geometry."""

import numpy as np
import pytest

from turret.messages import NewRequest, Request, RunningRequest, StepPlan
from turret.sampling import SamplingParams
from turret.worker.batch import Batch, BatchShape
from turret.worker.inputs import InputBuilder

BLOCK, GROUPS = 4, 2
LENGTHS = {"a": 9, "b": 4, "c": 14}


def blocks(name: str, count: int) -> list[list[int]]:
    """Each group's first blocks of a request."""
    return [[1 + 40 * group + 10 * "abc".index(name) + i for i in range(count)] for group in range(GROUPS)]


def filled() -> Batch:
    batch = Batch(BatchShape(4, 64, BLOCK, GROUPS, 100))
    new = [
        NewRequest(
            request=Request(
                request_id=name, prompt_token_ids=list(range(length)), sampling=SamplingParams(temperature=0.0),
                max_tokens=9, seed=0),
            block_ids=blocks(name, length // BLOCK + 1), num_computed_tokens=0, num_tokens=length)
        for name, length in LENGTHS.items()
    ]  # fmt: skip
    work = batch.apply(StepPlan(step_id=0, new=new))
    batch.append(work.rows, [50, 51, 52])
    return batch


@pytest.mark.parametrize("names", ["abc", "b", "bc", "ca", "cba"])
def test_a_step_of_one_token_each(names: str) -> None:
    batch = filled()
    builder = InputBuilder(batch, [None, 8], 16, "cpu")
    running = [
        RunningRequest(request_id=n, new_block_ids=[[], []], num_computed_tokens=LENGTHS[n], num_tokens=1)
        for n in names
    ]
    work = batch.apply(StepPlan(step_id=1, running=running))
    for _ in range(2):  # what the first one keeps must not show in the second
        found = builder.build(work, work.runnable())
        lengths = [LENGTHS[n] + 1 for n in names]
        assert found.ids.tolist() == [50 + "abc".index(n) for n in names]
        assert found.positions.tolist() == [LENGTHS[n] for n in names]
        assert found.sampled.tolist() == found.last_rows.tolist() == list(range(len(names)))
        assert found.rows.tolist() == work.rows.tolist() and not found.prompts
        for group, (batch_of, window) in enumerate(zip(found.attention, (None, 8), strict=True)):
            own = [blocks(n, LENGTHS[n] // BLOCK + 1)[group] for n in names]
            table = batch_of.block_table.tolist()
            assert [row[: len(o)] for row, o in zip(table, own, strict=True)] == own
            slots = [o[-1] * BLOCK + LENGTHS[n] % BLOCK for n, o in zip(names, own, strict=True)]
            assert batch_of.slot_mapping.tolist() == slots
            assert batch_of.query_start.tolist() == batch_of.query_start_list == list(range(len(names) + 1))
            assert batch_of.seq_lens.tolist() == batch_of.seq_lens_list == lengths
            assert (batch_of.num_decodes, batch_of.max_query_len, batch_of.window) == (len(names), 1, window)
            assert batch_of.max_seq_len == max(lengths)


def test_tokens_that_are_known_already_are_not_sampled_from() -> None:
    """One token of a prompt that goes on: nothing is chosen after it."""
    batch = filled()
    running = [
        RunningRequest(request_id=n, new_block_ids=[[], []], num_computed_tokens=c, num_tokens=1)
        for n, c in (("a", 3), ("b", 4), ("c", 14))
    ]
    work = batch.apply(StepPlan(step_id=1, running=running))
    found = InputBuilder(batch, [None, None], 16, "cpu").build(work, work.runnable())
    assert found.sampled.tolist() == [1, 2] and found.last_rows.tolist() == [1, 2]
    assert found.rows.tolist() == work.rows[1:].tolist()


def test_steps_of_one_token_and_mixed_ones_take_turns() -> None:
    """Their buffers do not disturb each other."""
    batch = filled()
    builder = InputBuilder(batch, [None, None], 32, "cpu")
    mixed = StepPlan(step_id=1, running=[
        RunningRequest(request_id="a", new_block_ids=[[], []], num_computed_tokens=9, num_tokens=1),
        RunningRequest(request_id="c", new_block_ids=[[], []], num_computed_tokens=10, num_tokens=5)])  # fmt: skip
    ones = StepPlan(step_id=2, running=[
        RunningRequest(request_id=n, new_block_ids=[[], []], num_computed_tokens=LENGTHS[n], num_tokens=1)
        for n in "abc"])  # fmt: skip
    for _ in range(2):
        work = batch.apply(mixed)
        assert builder.build(work, work.runnable()).attention[0].query_start.tolist() == [0, 1, 6]
        work = batch.apply(ones)
        assert builder.build(work, np.arange(3)).attention[0].query_start.tolist() == [0, 1, 2, 3]
