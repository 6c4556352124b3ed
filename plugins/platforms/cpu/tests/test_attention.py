"""Paged attention: right against plain float64, and each row the same bits whatever stands beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVSpec
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.native import Native

BLOCK = 16
ERROR = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}


@dataclass(frozen=True)
class Shape:
    heads: int = 6
    kv_heads: int = 2
    head: int = 64
    block: int = BLOCK
    dtype: torch.dtype = torch.bfloat16
    window: int | None = None
    softcap: float = 0.0
    sinks: bool = False


@dataclass
class Request:
    """All of a request's numbers, of which steps take slices."""

    shape: Shape
    length: int
    seed: int
    q: Tensor = field(init=False)
    k: Tensor = field(init=False)
    v: Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        sizes = (self.shape.heads, self.shape.kv_heads, self.shape.kv_heads)
        made = [torch.randn(self.length, n, self.shape.head, generator=generator) for n in sizes]
        self.q, self.k, self.v = (tensor.to(self.shape.dtype) for tensor in made)


class Bench:
    """A cache whose unwritten pages are no numbers, and steps over it."""

    def __init__(self, native: Native, shape: Shape, requests: list[Request], seed: int = 0) -> None:
        self.backend, self.shape, self.requests = CPUAttention(native), shape, requests
        name = str(shape.dtype).removeprefix("torch.")
        layout = self.backend.kv_layout(KVSpec(shape.kv_heads, shape.head, shape.head, shape.block, name))
        counts = [-(-r.length // shape.block) for r in requests]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)) + 1
        self.table = torch.zeros(len(requests), max(counts), dtype=torch.int32)
        taken = 0
        for row, count in enumerate(counts):
            self.table[row, :count] = order[taken : taken + count]
            taken += count
        self.kv = torch.full((taken + 1, *layout.page_shape), float("nan"), dtype=shape.dtype)
        assert self.kv[0].nbytes == layout.page_bytes
        self.sinks = torch.linspace(-1, 1, shape.heads) if shape.sinks else None

    def step(self, spans: list[tuple[int, int, int]]) -> list[Tensor]:
        """Output of each (request, cached, new)."""
        shape = self.shape
        parts = [(self.requests[i], cached, cached + new) for i, cached, new in spans]
        rows = torch.tensor([i for i, _, _ in spans])
        starts = [0]
        slots = []
        for i, cached, new in spans:
            starts.append(starts[-1] + new)
            at = torch.arange(cached, cached + new)
            slots.append(self.table[i, at // shape.block].long() * shape.block + at % shape.block)
        lengths = [cached + new for _, cached, new in spans]
        batch = AttentionBatch(
            query_start=torch.tensor(starts, dtype=torch.int32), seq_lens=torch.tensor(lengths, dtype=torch.int32),
            block_table=self.table[rows].contiguous(), slot_mapping=torch.cat(slots), query_start_list=starts,
            seq_lens_list=lengths, max_query_len=max(n for _, _, n in spans), max_seq_len=max(lengths),
            num_decodes=sum(n == 1 for _, _, n in spans), block_size=shape.block, window=shape.window,
        )  # fmt: skip
        q, k, v = (torch.cat([getattr(r, n)[a:b] for r, a, b in parts]) for n in ("q", "k", "v"))
        out = torch.full_like(q, float("nan"))
        scale = shape.head**-0.5
        self.backend.run(
            AttentionCall(q, k, v, self.kv, self.backend.build(batch), out, scale, shape.softcap, self.sinks)
        )
        return list(out.split([n for _, _, n in spans]))


def reference(request: Request, shape: Shape) -> Tensor:
    """Every row of the request in float64, from the definition."""
    group = shape.heads // shape.kv_heads
    q = request.q.double().transpose(0, 1)
    k, v = (t.double().transpose(0, 1).repeat_interleave(group, 0) for t in (request.k, request.v))
    scores = q @ k.transpose(1, 2) * shape.head**-0.5
    if shape.softcap:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    at = torch.arange(request.length)
    distance = at[:, None] - at[None, :]
    hidden = distance < 0
    if shape.window is not None:
        hidden |= distance >= shape.window
    scores = scores.masked_fill(hidden, float("-inf"))
    if shape.sinks:
        sinks = torch.linspace(-1, 1, shape.heads).double()[:, None, None].expand(-1, request.length, 1)
        weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return (weights @ v).transpose(0, 1)


SHAPES = {
    "plain": Shape(),
    "float32": Shape(dtype=torch.float32),
    "many heads per kv head": Shape(heads=16, kv_heads=1, head=32),
    "one head each": Shape(heads=3, kv_heads=3, head=80),
    "head 256": Shape(heads=4, kv_heads=1, head=256),
    "head 16, block 32": Shape(heads=2, kv_heads=1, head=16, block=32),
    "window": Shape(window=20),
    "wide window": Shape(window=300, dtype=torch.float32),
    "softcap": Shape(softcap=5.0),
    "sinks": Shape(sinks=True),
    "everything": Shape(window=37, softcap=7.0, sinks=True, dtype=torch.float32),
}
LENGTHS = (1, 15, 16, 17, 40, 255, 257, 600)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_whole_prompts_and_decodes_against_the_definition(shape: Shape, level: str, native: Native) -> None:
    requests = [Request(shape, length, seed) for seed, length in enumerate(LENGTHS)]
    bench = Bench(native, shape, requests)
    prompts = bench.step([(i, 0, r.length - 1) for i, r in enumerate(requests) if r.length > 1])
    last = bench.step([(i, r.length - 1, 1) for i, r in enumerate(requests)])
    prompts.insert(0, prompts[0][:0])
    for request, prompt, one in zip(requests, prompts, last, strict=True):
        got, expected = torch.cat([prompt, one]).double(), reference(request, shape)
        assert float((got - expected).abs().max()) < ERROR[shape.dtype] * float(expected.abs().max())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_row_has_the_same_bits_however_the_work_is_cut(
    shape: Shape, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    """Alone or in a batch, in one chunk or in many, on one thread or on three, on whatever pages."""
    lengths = (300, 530, 7)
    requests = [Request(shape, length, seed) for seed, length in enumerate(lengths)]
    threads(1)
    whole = Bench(native, shape, requests).step([(i, 0, n) for i, n in enumerate(lengths)])
    for count in (1, 2, 3):
        threads(count)
        bench = Bench(native, shape, requests, seed=count)
        pieces: list[list[Tensor]] = [[], [], []]
        at = [0, 0, 0]
        for chunk in (5, 1, 250, 1, 11, 33, 1, 400):
            spans = [(i, at[i], min(chunk, lengths[i] - at[i])) for i in range(3) if at[i] < lengths[i]]
            for (i, _, new), out in zip(spans, bench.step(spans), strict=True):
                pieces[i].append(out)
                at[i] += new
        for i in range(3):
            assert torch.equal(torch.cat(pieces[i]), whole[i][: at[i]]), f"request {i}, {count} threads"


def test_one_long_stream_is_shared_between_threads_without_changing_bits(
    level: str, native: Native, threads: Callable[[int], None]
) -> None:
    shape = Shape(heads=4, kv_heads=1)
    request = Request(shape, 2000, 1)
    outs = []
    for count in (1, 3):
        threads(count)
        bench = Bench(native, shape, [request])
        bench.step([(0, 0, 1999)])
        outs.append(bench.step([(0, 1999, 1)])[0])
    assert torch.equal(*outs)


def test_pages_out_of_the_window_may_be_gone(native: Native) -> None:
    """Block 0 stands for pages that were given back."""
    shape = Shape(window=33)
    request = Request(shape, 200, 2)
    bench = Bench(native, shape, [request])
    bench.step([(0, 0, 199)])
    gone = (199 + 1 - 33) // shape.block
    bench.table[0, :gone] = 0
    (last,) = bench.step([(0, 199, 1)])
    expected = reference(request, shape)[-1:]
    assert float((last.double() - expected).abs().max()) < 1.5e-2 * float(expected.abs().max())


QUERY = AttentionQuery("cpu", "bfloat16", "bfloat16", 64, 64, 8, 2, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"device": "cuda:0"}, {"dtype": "float16", "kv_dtype": "float16"}, {"kv_dtype": "float32"}, {"head_size": 72},
        {"value_head_size": 32}, {"block_size": 8}, {"alibi": True}, {"bidirectional": True}, {"variant": "mla"},
        {"num_heads": 7}, {"head_size": 1024, "value_head_size": 1024},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_served_is_refused(change: dict[str, object], native: Native) -> None:
    assert CPUAttention(native).supports(QUERY).ok
    verdict = CPUAttention(native).supports(replace(QUERY, **change))
    assert not verdict.ok and verdict.reasons


def test_without_the_library_the_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret_platform_cpu.attention.load", lambda: None)
    verdict = CPUAttention().supports(QUERY)
    assert "C++ compiler" in " ".join(verdict.reasons)
