"""What the conformance grid does not show: how steps are cut, and that requests cannot reach each other."""

from __future__ import annotations

import pytest
import torch

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery
from turret_attention_torch.backend import TorchAttention
from turret_attention_torch.metadata import TILE, plan_step

SIZE, HEADS, DIM = 4, 2, 8


def batch(spans: list[tuple[int, int]], window: int | None = None, bidirectional: bool = False) -> AttentionBatch:
    """Requests as (cached, new), each on pages of its own from 1 up."""
    starts, lengths, tables, slots, page = [0], [], [], [], 1
    for cached, new in spans:
        blocks = -(-(cached + new) // SIZE)
        table = list(range(page, page + blocks))
        page += blocks
        starts.append(starts[-1] + new)
        lengths.append(cached + new)
        tables.append(table)
        slots += [table[p // SIZE] * SIZE + p % SIZE for p in range(cached, cached + new)]
    widest = max(map(len, tables))
    return AttentionBatch(
        query_start=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        block_table=torch.tensor([t + [0] * (widest - len(t)) for t in tables], dtype=torch.int32),
        slot_mapping=torch.tensor(slots),
        query_start_list=starts,
        seq_lens_list=lengths,
        max_query_len=max(new for _, new in spans),
        max_seq_len=max(lengths),
        num_decodes=sum(new == 1 for _, new in spans),
        block_size=SIZE,
        window=window,
        bidirectional=bidirectional,
    )


def call(step: AttentionBatch, kv: torch.Tensor, seed: int = 0) -> AttentionCall:
    tokens = step.query_start_list[-1]
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(tokens, HEADS, DIM, generator=generator) for _ in range(3))
    return AttentionCall(q, k, v, kv, TorchAttention().build(step), torch.empty(tokens, HEADS, DIM), DIM**-0.5)


def pool(pages: int, fill: float = float("nan")) -> torch.Tensor:
    return torch.full((pages, SIZE, HEADS, 2 * DIM), fill)


def test_a_long_request_does_not_widen_the_gather_of_short_ones() -> None:
    groups = plan_step(batch([(400, 1), (10, 1), (9, 1), (390, 1)])).decodes
    assert [(group.rows.tolist(), group.pages.shape[1]) for group in groups] == [([0, 3], 101), ([1, 2], 3)]


def test_padding_repeats_the_requests_own_page() -> None:
    step = batch([(10, 1), (5, 1)])
    (group,) = plan_step(step).decodes
    assert group.pages.tolist() == [[1, 2, 3], [4, 5, 5]]
    assert group.sight.visible[1, 0].tolist() == [True] * 6 + [False] * 6


def test_a_window_gathers_only_its_pages() -> None:
    (group,) = plan_step(batch([(99, 1)], window=6)).decodes
    assert group.pages.shape == (1, 2)
    assert int(group.sight.visible.sum()) == 6


def test_prefills_are_cut_into_tiles_that_see_no_further_than_they_must() -> None:
    tiles = plan_step(batch([(6, TILE + 10)])).prefills
    assert [(tile.start, tile.stop, len(tile.pages) * SIZE) for tile in tiles] == [
        (0, TILE, TILE + 8),
        (TILE, TILE + 10, TILE + 16),
    ]


def test_a_reused_page_that_holds_no_numbers_is_cleared() -> None:
    step = batch([(0, 5), (0, 1)][::-1])
    clean, dirty = call(step, pool(8, 0.0)), call(step, pool(8))
    TorchAttention().run(clean)
    TorchAttention().run(dirty)
    assert torch.equal(clean.out, dirty.out) and not clean.out.isnan().any()


def test_a_request_gone_bad_stays_alone() -> None:
    first, kv = batch([(0, 6), (0, 6)]), pool(8)
    bad = call(first, kv)
    bad.k[:6], bad.v[:6] = float("nan"), float("inf")
    TorchAttention().run(bad)
    assert bad.out[:6].isnan().any() and not bad.out[6:].isnan().any()
    later = call(batch([(6, 1), (6, 1)]), kv, seed=1)
    TorchAttention().run(later)
    assert later.out[0].isnan().any() and not later.out[1].isnan().any()


@pytest.mark.parametrize("chunk", [1, 3, 5])
def test_chunks_agree_with_one_shot(chunk: int) -> None:
    whole = call(batch([(0, 15)], window=7), pool(8))
    TorchAttention().run(whole)
    kv, parts = pool(8), []
    for start in range(0, 15, chunk):
        part = call(batch([(start, min(chunk, 15 - start))], window=7), kv)
        part.q, part.k, part.v = (t[start : start + chunk] for t in (whole.q, whole.k, whole.v))
        TorchAttention().run(part)
        parts.append(part.out)
    torch.testing.assert_close(torch.cat(parts), whole.out)


def test_refusals_say_why() -> None:
    query = AttentionQuery("cpu", "float8_e4m3fn", "int16", 64, 64, 6, 4, 16, variant="mla")
    reasons = TorchAttention().supports(query).reasons
    assert [reason.split()[0] for reason in reasons] == ["variant", "dtype", "KV", "6"]
