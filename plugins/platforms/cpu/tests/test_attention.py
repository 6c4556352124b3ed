"""Paged attention: right against plain float64, and each row the same bits whatever stands beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVSpec
from turret_platform_cpu.attention import STORED, CPUAttention
from turret_platform_cpu.native import Native

BLOCK = 16
ERROR = {torch.float32: 3e-6, torch.bfloat16: 1.5e-2}
"""Of the arithmetic, relative to the largest output, for each type of activations."""


@dataclass(frozen=True)
class Shape:
    heads: int = 6
    kv_heads: int = 2
    head: int = 64
    value_head: int = 0
    block: int = BLOCK
    dtype: torch.dtype = torch.bfloat16
    cache: str = ""
    window: int | None = None
    softcap: float = 0.0
    sinks: bool = False
    alibi: bool = False
    bidirectional: bool = False
    variant: str = "mha"

    @property
    def dv(self) -> int:
        return self.value_head or self.head

    @property
    def stored(self) -> str:
        return self.cache or str(self.dtype).removeprefix("torch.")


def kept(x: Tensor, stored: str) -> Tensor:
    """What a cache of that type makes of keys or values [T, heads, D]."""
    if stored == "int8":
        scale = x.float().abs().amax(-1, keepdim=True) / 127
        inverse = torch.where(scale > 0, 1 / scale, torch.zeros(()))
        return torch.round(x.float() * inverse) * scale
    kind = getattr(torch, stored)
    if kind.itemsize == 1:
        most = torch.finfo(kind).max
        return x.float().clamp(-most, most).to(kind).float()
    return x.to(kind).float()


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
        shape, generator = self.shape, torch.Generator().manual_seed(self.seed)
        sizes = ((shape.heads, shape.head), (shape.kv_heads, shape.head), (shape.kv_heads, shape.dv))
        made = [torch.randn(self.length, *size, generator=generator) for size in sizes]
        self.q, self.k, self.v = (tensor.to(shape.dtype) for tensor in made)
        if shape.variant == "mla":
            self.v = self.k[..., : shape.dv]


class Bench:
    """A cache whose unwritten pages are no numbers, and steps over it."""

    def __init__(self, native: Native, shape: Shape, requests: list[Request], seed: int = 0) -> None:
        self.backend, self.shape, self.requests = CPUAttention(native), shape, requests
        sizes = (shape.kv_heads, shape.head, shape.dv, shape.block)
        layout = self.backend.kv_layout(KVSpec(*sizes, shape.stored, shape.variant))
        counts = [-(-r.length // shape.block) for r in requests]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)) + 1
        self.table = torch.zeros(len(requests), max(counts), dtype=torch.int32)
        taken = 0
        for row, count in enumerate(counts):
            self.table[row, :count] = order[taken : taken + count]
            taken += count
        # All ones: no number in any of the types, in the scales of int8 neither.
        bytes_ = torch.full((taken + 1, layout.page_bytes), 255, dtype=torch.uint8)
        self.kv = bytes_.view(getattr(torch, layout.dtype)).view(taken + 1, *layout.page_shape)
        self.sinks = torch.linspace(-1, 1, shape.heads) if shape.sinks else None
        self.slopes = torch.linspace(0.1, 0.5, shape.heads) if shape.alibi else None

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
            bidirectional=shape.bidirectional,
        )  # fmt: skip
        q, k, v = (torch.cat([getattr(r, n)[a:b] for r, a, b in parts]) for n in ("q", "k", "v"))
        out = torch.full((len(q), shape.heads, shape.dv), float("nan"), dtype=shape.dtype)
        scoring = (shape.head**-0.5, shape.softcap, self.sinks, self.slopes)
        self.backend.run(AttentionCall(q, k, v, self.kv, self.backend.build(batch), out, *scoring, shape.variant))
        return list(out.split([n for _, _, n in spans]))


def reference(request: Request, shape: Shape, stored: str | None = None) -> Tensor:
    """Every row of the request in float64, from the definition, over what the cache keeps of keys and values."""
    group = shape.heads // shape.kv_heads
    seen = [kept(t, stored or shape.stored) for t in (request.k, request.v)]
    if shape.variant == "mla":  # the scale of int8 is the whole key's
        seen[1] = seen[0][..., : shape.dv]
    q = request.q.double().transpose(0, 1)
    k, v = (t.double().transpose(0, 1).repeat_interleave(group, 0) for t in seen)
    scores = q @ k.transpose(1, 2) * shape.head**-0.5
    if shape.softcap:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    at = torch.arange(request.length)
    distance = at[:, None] - at[None, :]
    if shape.alibi:
        scores = scores - torch.linspace(0.1, 0.5, shape.heads).double()[:, None, None] * distance
    hidden = torch.zeros_like(distance, dtype=torch.bool) if shape.bidirectional else distance < 0
    if shape.window is not None:
        hidden = hidden | (distance.abs() >= shape.window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if shape.sinks:
        sinks = torch.linspace(-1, 1, shape.heads).double()[:, None, None].expand(-1, request.length, 1)
        weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return (weights @ v).transpose(0, 1)


WIDE = torch.float32
SHAPES = {
    "plain": Shape(),
    "float32": Shape(dtype=WIDE),
    "many heads per kv head": Shape(heads=16, kv_heads=1, head=32),
    "more heads than a tile has rows": Shape(heads=71, kv_heads=1, head=16),
    "one head each": Shape(heads=3, kv_heads=3, head=80),
    "head 256": Shape(heads=4, kv_heads=1, head=256),
    "head 16, block 32": Shape(heads=2, kv_heads=1, head=16, block=32),
    "head 8": Shape(head=8),
    "head 1": Shape(head=1, dtype=WIDE),
    "odd head": Shape(head=37),
    "odd head, float32": Shape(head=37, dtype=WIDE),
    "values wider": Shape(head=24, value_head=40),
    "values narrower": Shape(head=192, value_head=128, heads=4),
    "values narrower, odd, float32": Shape(head=20, value_head=7, dtype=WIDE),
    "window": Shape(window=20),
    "wide window": Shape(window=300, dtype=WIDE),
    "softcap": Shape(softcap=5.0),
    "sinks": Shape(sinks=True),
    "alibi": Shape(alibi=True),
    "alibi, float32": Shape(alibi=True, dtype=WIDE, heads=5, kv_heads=5),
    "all together": Shape(window=37, softcap=7.0, sinks=True),
    "all together, float32": Shape(window=37, softcap=7.0, sinks=True, alibi=True, head=30, dtype=WIDE),
}
CACHES = {
    **{f"{cache} cache": Shape(cache=cache) for cache in STORED if cache != "bfloat16"},
    **{f"{cache} cache, float32": Shape(cache=cache, dtype=WIDE) for cache in STORED if cache != "float32"},
    "int8, all together": Shape(cache="int8", window=37, softcap=7.0, sinks=True, head=72, value_head=50),
    "e4m3, all together": Shape(cache="float8_e4m3fn", window=300, alibi=True, heads=16, kv_heads=1, head=18),
    "int8, head 3": Shape(cache="int8", head=3, value_head=5, dtype=WIDE),
}
BOTH_WAYS = {
    "bidirectional": Shape(bidirectional=True),
    "bidirectional, float32": Shape(bidirectional=True, dtype=WIDE, head=12),
    "bidirectional, window": Shape(bidirectional=True, window=33),
    "bidirectional, alibi, int8": Shape(bidirectional=True, cache="int8", sinks=True),
}
LATENT = {
    "latent": Shape(variant="mla", heads=16, kv_heads=1, head=576, value_head=512),
    "latent, float32": Shape(variant="mla", heads=5, kv_heads=1, head=80, value_head=64, dtype=WIDE),
    "latent, values of odd size": Shape(variant="mla", heads=3, kv_heads=1, head=37, value_head=37, window=40),
    "latent, int8": Shape(variant="mla", heads=20, kv_heads=1, head=72, value_head=50, cache="int8", sinks=True),
    "latent, e4m3, float32": Shape(variant="mla", heads=2, kv_heads=1, head=48, value_head=32, cache="float8_e4m3fn",
                                   dtype=WIDE),
}  # fmt: skip
EVERY = SHAPES | CACHES | LATENT
LENGTHS = (1, 15, 16, 17, 40, 255, 257, 600)


@pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
def test_whole_prompts_and_decodes_against_the_definition(shape: Shape, level: str, native: Native) -> None:
    requests = [Request(shape, length, seed) for seed, length in enumerate(LENGTHS)]
    bench = Bench(native, shape, requests)
    prompts = bench.step([(i, 0, r.length - 1) for i, r in enumerate(requests) if r.length > 1])
    last = bench.step([(i, r.length - 1, 1) for i, r in enumerate(requests)])
    prompts.insert(0, prompts[0][:0])
    for request, prompt, one in zip(requests, prompts, last, strict=True):
        got, expected = torch.cat([prompt, one]).double(), reference(request, shape)
        assert float((got - expected).abs().max()) < ERROR[shape.dtype] * float(expected.abs().max())


@pytest.mark.parametrize("shape", BOTH_WAYS.values(), ids=BOTH_WAYS)
def test_encoders_against_the_definition(
    shape: Shape, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    """A request is one step; on one thread and on three, alone and beside others."""
    requests = [Request(shape, length, seed) for seed, length in enumerate(LENGTHS)]
    spans = [(i, 0, r.length) for i, r in enumerate(requests)]
    threads(1)
    outs = Bench(native, shape, requests).step(spans)
    for request, out in zip(requests, outs, strict=True):
        expected = reference(request, shape)
        assert float((out.double() - expected).abs().max()) < ERROR[shape.dtype] * float(expected.abs().max())
    threads(3)
    bench = Bench(native, shape, requests, seed=1)
    for span, out in zip(spans, outs, strict=True):
        assert torch.equal(bench.step([span])[0], out)


BOUNDS = {"bfloat16": 8e-3, "float16": 1e-3, "int8": 2e-2, "float8_e4m3fn": 8e-2, "float8_e5m2": 0.16}
"""Of a cache type against a float32 cache: error of an output relative to the largest, for random numbers."""


@pytest.mark.parametrize("stored", BOUNDS)
def test_what_a_cache_type_costs(stored: str, native: Native) -> None:
    shape = Shape(dtype=WIDE, cache=stored)
    request = Request(shape, 300, 5)
    (out,) = Bench(native, shape, [request]).step([(0, 0, 300)])
    exact = reference(request, shape, "float32")
    error = float((out.double() - exact).abs().max() / exact.abs().max())
    assert BOUNDS[stored] / 8 < error < BOUNDS[stored]


@pytest.mark.parametrize("stored", ["float16", "int8", "float8_e4m3fn", "float8_e5m2"])
def test_every_number_is_kept_as_torch_keeps_it(stored: str, level: str, native: Native) -> None:
    """Rounding, small numbers, zero, saturation: one token's values come back as its output."""
    shape = Shape(heads=1, kv_heads=1, head=2, value_head=1024, dtype=WIDE, cache=stored)
    request = Request(shape, 1, 1)
    spread = torch.logspace(-9, 6, 500) if stored != "float16" else torch.logspace(-9, 4.7, 500)
    tiny = [2.0**-9, 1.5 * 2.0**-9, 2.0**-10, 2.0**-16, 3 * 2.0**-17]
    halves = torch.tensor([0.0, 1.0625, 1.1875, 240.0, 448.0, 463.0, 57344.0, *tiny])
    request.v = torch.cat([spread, -spread, halves, -halves]).view(1, 1, 1024)
    (out,) = Bench(native, shape, [request]).step([(0, 0, 1)])
    assert torch.allclose(out, kept(request.v, stored), rtol=3e-7, atol=0)


@pytest.mark.parametrize("stored", STORED)
def test_no_numbers_stay_none(stored: str, level: str, native: Native) -> None:
    """A value that is no number shows in the rows that see it, and never in another request."""
    shape = Shape(dtype=WIDE, cache=stored, kv_heads=1, heads=1)
    requests = [Request(shape, 40, 3), Request(shape, 40, 4)]
    requests[0].v[20, 0, 7] = float("nan")
    ill, well = Bench(native, shape, requests).step([(0, 0, 40), (1, 0, 40)])
    assert bool(torch.isnan(ill[20:, 0, 7]).all()) and bool(torch.isfinite(well).all())


@pytest.mark.parametrize("shape", EVERY.values(), ids=EVERY)
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


@pytest.mark.parametrize("cache", ["bfloat16", "int8"])
def test_one_long_stream_is_shared_between_threads_without_changing_bits(
    cache: str, level: str, native: Native, threads: Callable[[int], None]
) -> None:
    shape = Shape(heads=4, kv_heads=1, cache=cache)
    request = Request(shape, 2000, 1)
    outs = []
    for count in (1, 3):
        threads(count)
        bench = Bench(native, shape, [request])
        bench.step([(0, 0, 1999)])
        outs.append(bench.step([(0, 1999, 1)])[0])
    assert torch.equal(*outs)


@pytest.mark.parametrize("cache", STORED)
def test_pages_out_of_the_window_may_be_gone(cache: str, native: Native) -> None:
    """Block 0 stands for pages that were given back."""
    shape = Shape(window=33, cache=cache)
    request = Request(shape, 200, 2)
    bench = Bench(native, shape, [request])
    bench.step([(0, 0, 199)])
    gone = (199 + 1 - 33) // shape.block
    bench.table[0, :gone] = 0
    (last,) = bench.step([(0, 199, 1)])
    expected = reference(request, shape)[-1:]
    assert float((last.double() - expected).abs().max()) < 1.5e-2 * float(expected.abs().max())


@pytest.mark.parametrize(
    ("stored", "size"), {"float32": 1024, "bfloat16": 512, "int8": 320, "float8_e5m2": 256}.items()
)
def test_bytes_of_a_page(stored: str, size: int, native: Native) -> None:
    """16 tokens of one head of 16; int8 has a scale for each key and value."""
    layout = CPUAttention(native).kv_layout(KVSpec(3, 16, 16, 32, stored))
    assert layout.page_bytes == 2 * 2 * 3 * size and layout.dtype == stored


QUERY = AttentionQuery("cpu", "bfloat16", "bfloat16", 64, 64, 8, 2, 16)


@pytest.mark.parametrize(
    "change",
    [
        {"kv_dtype": "int8"}, {"head_size": 72}, {"value_head_size": 32}, {"alibi": True, "bidirectional": True},
        {"dtype": "float32", "sliding_window": True, "sinks": True, "softcap": True}, {"block_size": 256},
        {"variant": "mla", "num_kv_heads": 1, "head_size": 576, "value_head_size": 512},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_served(change: dict[str, object], native: Native) -> None:
    assert CPUAttention(native).supports(replace(QUERY, **change)).ok


@pytest.mark.parametrize(
    "change",
    [
        {"device": "cuda:0"}, {"dtype": "float16"}, {"kv_dtype": "float64"}, {"block_size": 8}, {"variant": "linear"},
        {"variant": "mla", "head_size": 64, "value_head_size": 72},
        {"num_heads": 7}, {"head_size": 1025}, {"value_head_size": 0},
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
