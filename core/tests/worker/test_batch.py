"""The persistent batch and the geometry built from it, against a plain model of what each request holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from turret.messages import NewRequest, Request, RunningRequest, StepPlan
from turret.sampling import SamplingParams
from turret.worker.batch import Batch, BatchShape
from turret.worker.inputs import InputBuilder

BLOCK = 4
SHAPE = BatchShape(max_num_seqs=4, max_model_len=64, block_size=BLOCK, num_groups=2, vocab_size=300)


def make_request(name: str, prompt: list[int], **sampling) -> Request:
    return Request(request_id=name, prompt_token_ids=prompt, max_tokens=50, seed=1,
                   sampling=SamplingParams(temperature=0.0, max_tokens=None, **sampling))


def enter(name: str, prompt: list[int], count: int, computed: int = 0, outputs=(), first_block: int = 1, **sampling):
    blocks = list(range(first_block, first_block + -(-(computed + count) // BLOCK)))
    return NewRequest(request=make_request(name, prompt, **sampling), block_ids=[blocks, [b + 100 for b in blocks]],
                      num_computed_tokens=computed, num_tokens=count, output_token_ids=list(outputs))


def setup() -> tuple[Batch, InputBuilder]:
    batch = Batch(SHAPE)
    return batch, InputBuilder(batch, [None, 8], 64, "cpu")


def test_mixed_step_puts_single_tokens_first_and_keeps_plan_order_of_results():
    batch, builder = setup()
    first = [enter("a", [1, 2, 3], 3), enter("b", [4, 5, 6, 7, 8], 3, first_block=9)]
    work = batch.apply(StepPlan(step_id=0, new=first))
    inputs = builder.build(work, work.runnable())
    assert inputs.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert inputs.sampled.tolist() == [0] and inputs.last_rows.tolist() == [2]
    batch.append(inputs.rows, [50])
    work = batch.apply(StepPlan(step_id=1, new=[enter("c", [70, 71], 2, first_block=20)], running=[
        RunningRequest("a", 3, 1, []), RunningRequest("b", 3, 2, [[11], [111]])]))
    inputs = builder.build(work, work.runnable())
    assert inputs.ids.tolist() == [50, 70, 71, 7, 8]
    assert inputs.positions.tolist() == [3, 0, 1, 3, 4]
    assert inputs.sampled.tolist() == [1, 0, 2] and inputs.last_rows.tolist() == [0, 2, 4]
    full, sliding = inputs.attention
    assert full.query_start.tolist() == full.query_start_list == [0, 1, 3, 5]
    assert full.seq_lens.tolist() == full.seq_lens_list == [4, 2, 5]
    assert (full.num_decodes, full.max_query_len, full.max_seq_len) == (1, 2, 5)
    assert full.block_table[:, 0].tolist() == [1, 20, 9] and full.block_table[2, 1] == 11
    assert full.slot_mapping.tolist() == [1 * 4 + 3, 80, 81, 9 * 4 + 3, 11 * 4]
    assert sliding.slot_mapping.tolist() == [101 * 4 + 3, 480, 481, 109 * 4 + 3, 111 * 4]
    assert (full.window, sliding.window) == (None, 8)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sequence_of_steps_sees_each_request_as_a_plain_list_does(data):
    """Random arrivals, chunks, decodes, removals and returns: ids, positions and slots match a list per request."""
    batch, builder = setup()
    model: dict[str, dict] = {}
    next_block, names = 1, 0
    for step in range(data.draw(st.integers(1, 12))):
        removed = [n for n in model if data.draw(st.integers(0, 5)) == 0]
        gone = {n: model.pop(n) for n in removed}
        new, running, expected = [], [], []
        for name, r in gone.items():
            if data.draw(st.booleans()) and len(model) < 4:
                r["done"], r["blocks"] = 0, []
                model[name] = r
                r["fresh"] = True
        while len(model) < 4 and data.draw(st.booleans()):
            names += 1
            model[f"r{names}"] = {"prompt": data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=9)),
                                  "out": [], "done": 0, "blocks": [], "fresh": True}
        order = list(model)
        for name in order:
            r = model[name]
            tokens = r["prompt"] + r["out"]
            left = len(tokens) - r["done"]
            if not r["fresh"] and data.draw(st.integers(0, 3)) == 0:
                continue  # not scheduled in this step
            count = data.draw(st.integers(1, left))
            need = -(-(r["done"] + count) // BLOCK) - len(r["blocks"])
            fresh = list(range(next_block, next_block + need))
            next_block += need
            r["blocks"] += fresh
            ids = [fresh, [b + 1000 for b in fresh]] if need else []
            if r["fresh"]:
                new.append(NewRequest(request=make_request(name, r["prompt"]), block_ids=ids or [[], []],
                                      num_computed_tokens=0, num_tokens=count, output_token_ids=list(r["out"])))
            else:
                running.append(RunningRequest(name, r["done"], count, ids))
            expected.append((name, r["fresh"], tokens[r["done"] : r["done"] + count],
                             list(range(r["done"], r["done"] + count)), count == left))
            r["fresh"] = False
            r["done"] += count
        expected.sort(key=lambda e: not e[1])
        work = batch.apply(StepPlan(step_id=step, new=new, running=running, removed=removed))
        assert len(batch) == len(model)
        if not expected:
            continue
        inputs = builder.build(work, work.runnable())
        full, other = inputs.attention
        order = sorted(range(len(expected)), key=lambda i: len(expected[i][2]) != 1)
        assert inputs.ids.tolist() == [t for i in order for t in expected[i][2]]
        assert inputs.positions.tolist() == [p for i in order for p in expected[i][3]]
        slots = [model[expected[i][0]]["blocks"][p // BLOCK] * BLOCK + p % BLOCK for i in order for p in expected[i][3]]
        assert full.slot_mapping.tolist() == slots
        assert other.slot_mapping.tolist() == [s + 1000 * BLOCK for s in slots]
        assert inputs.sampled.tolist() == [i for i in order if expected[i][4]]
        chosen = [int(t) for t in np.arange(len(inputs.sampled)) + 200 + step]
        batch.append(inputs.rows, chosen)
        for place, token in zip(inputs.sampled.tolist(), chosen, strict=True):
            model[expected[place][0]]["out"].append(token)


def test_a_failed_request_stays_failed_until_removed():
    batch, _ = setup()
    work = batch.apply(StepPlan(step_id=0, new=[enter("a", [1, 2], 2), enter("b", [3], 1, first_block=5)]))
    batch.fail(int(work.rows[0]), "broken")
    work = batch.apply(StepPlan(step_id=1, running=[RunningRequest("a", 2, 1, []), RunningRequest("zz", 1, 1, [])]))
    assert work.errors[0] == "broken" and "not in the worker's batch" in work.errors[1]
    assert work.runnable().tolist() == []
    work = batch.apply(StepPlan(step_id=2, removed=["a"], new=[enter("a", [1, 2], 2)]))
    assert not work.errors


def test_a_plan_past_what_is_known_is_an_error_of_that_request():
    batch, _ = setup()
    work = batch.apply(StepPlan(step_id=0, new=[enter("a", [1, 2], 2)]))
    work = batch.apply(StepPlan(step_id=1, running=[RunningRequest("a", 2, 1, [])]))
    assert "1 tokens after 2, of 2 known" in work.errors[0]


def test_prompt_logprob_rows_cover_every_prompt_token_but_the_first_once():
    batch, builder = setup()
    prompt, seen = [5, 6, 7, 8, 9], []
    work = batch.apply(StepPlan(step_id=0, new=[enter("a", prompt, 2, prompt_logprobs=3)]))
    for computed, count in ((0, 2), (2, 2), (4, 1)):
        if computed:
            blocks = [[7], [107]] if computed == 4 else []
            work = batch.apply(StepPlan(step_id=computed, running=[RunningRequest("a", computed, count, blocks)]))
        for rows in builder.build(work, work.runnable()).prompts:
            assert rows.stop - rows.start == len(rows.targets) and rows.count == 3
            seen += rows.targets
    assert seen == prompt[1:]
    work = batch.apply(StepPlan(step_id=9, removed=["a"], new=[enter("a", prompt, 6, outputs=[1], prompt_logprobs=3)]))
    assert builder.build(work, work.runnable()).prompts == []


def test_token_ids_outside_the_vocabulary_are_an_error_of_that_request():
    batch, _ = setup()
    wrong = [enter("a", [1, 300], 2), enter("b", [-1], 1), enter("c", [0, 299], 2, first_block=9)]
    work = batch.apply(StepPlan(step_id=0, new=wrong))
    assert list(work.errors) == [0, 1] and "outside the vocabulary of 300" in work.errors[0]


def test_more_than_fits_is_an_error_of_that_request():
    batch, builder = setup()
    work = batch.apply(StepPlan(step_id=0, new=[enter("a", [1] * 80, 4), enter("b", [1, 2], 2)]))
    assert "80 tokens of at most 64" in work.errors[0] and work.runnable().tolist() == [1]
    assert builder.build(work, work.runnable()).ids.tolist() == [1, 2]
    work = batch.apply(StepPlan(step_id=1, new=[enter(f"c{i}", [1], 1) for i in range(4)]))
    assert list(work.errors) == [3] and "4 requests of at most 4" in work.errors[3]
