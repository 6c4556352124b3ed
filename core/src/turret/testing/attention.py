"""Numeric and honesty cases of attention backends.

Owns the comparison with the reference over the declared grid: what is declared must run and be right, what is not must
be refused. Knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from turret.contracts import AttentionBatch, AttentionCall, AttentionQuery, KVSpec
from turret.testing.batches import Pages, make_batch, moved
from turret.testing.cases import Case, NotApplicable, Subject
from turret.testing.grid import declared, inside, outside
from turret.testing.reference import Mask, attend
from turret.testing.tiny import Setting, tiny_decoder

__all__ = ["build"]

STEPS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 1), (0, 1), (0, 7), (0, 21), (0, 40)),
    ((1, 1), (1, 1), (7, 5), (21, 3), (40, 24)),
    ((2, 1), (2, 1), (12, 1), (24, 1), (64, 1)),
)
"""Three steps of five requests as (cached, new): all prefill, decodes mixed with chunks, all decode."""

WINDOW = 9
TOLERANCE = {"float32": (2e-5, 2e-5), "float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2)}
"""(absolute, relative), for values of order one."""


def build(subject: Subject) -> Iterator[Case]:
    capabilities = subject.capabilities
    device = _device(declared(capabilities, "device"))
    if device is None:
        yield subject.case("numeric", "grid", _no_device, declared(capabilities, "device"))
        return
    points = list(dict.fromkeys(inside(capabilities, device)))
    for point in points:
        yield subject.case("numeric", _title(point), _numeric, subject, point)
    yield subject.case("honesty", "declared_is_served", _served, subject, points)
    for title, point in outside(capabilities, points[0]):
        yield subject.case("honesty", f"undeclared_{title}_is_refused", _refused, subject, point)
    yield subject.case("end_to_end", "tiny_model_same_logits", _tiny, subject, device)
    yield subject.case("honesty", "only_its_own_slots_are_written", _writes, subject, points[0])


def _device(said: Any) -> str | None:
    """A declared device that is here."""
    for device in ("cpu", "cuda"):
        if (said is None or said == "*" or device in said) and (device == "cpu" or torch.cuda.is_available()):
            return device
    return None


def _no_device(said: Any) -> None:
    raise NotApplicable(f"none of its devices ({said}) is here")


def _title(query: AttentionQuery) -> str:
    flags = [name for name in ("sliding_window", "softcap", "sinks", "alibi", "bidirectional") if getattr(query, name)]
    sizes = f"d{query.head_size}" + (f"v{query.value_head_size}" if query.value_head_size != query.head_size else "")
    heads = f"h{query.num_heads}of{query.num_kv_heads}"
    cache = [] if query.kv_dtype == query.dtype else [f"kv_{query.kv_dtype}"]
    variant = [] if query.variant == "mha" else [query.variant]
    return "-".join([query.dtype, *variant, *cache, sizes, heads, f"b{query.block_size}", *flags])


class _Bench:
    """One backend with a cache, driven through the steps; keeps every request's keys and values to compare with."""

    def __init__(self, backend: Any, query: AttentionQuery) -> None:
        self.backend = backend
        self.query = query
        self._generator = torch.Generator().manual_seed(7)
        longest = [cached + new for cached, new in STEPS[-1]]
        self.pages = Pages.scattered(longest, query.block_size)
        sizes = (query.num_kv_heads, query.head_size, query.value_head_size, query.block_size)
        spec = KVSpec(*sizes, query.kv_dtype, query.variant)
        layout = backend.kv_layout(spec)
        dtype = getattr(torch, layout.dtype)
        shape = (self.pages.num_blocks, *layout.page_shape)
        # A fresh cache holds whatever the memory held, so pages that nobody wrote are no numbers: all bits set are none
        # in any floating type.
        raw = torch.full((*shape[:-1], shape[-1] * dtype.itemsize), 255, dtype=torch.uint8, device=query.device)
        self.kv = raw.view(dtype)
        per_page = self.kv[0].numel() * self.kv.element_size()
        assert layout.page_bytes == per_page, f"kv_layout: page_bytes {layout.page_bytes}, its shape has {per_page}"
        self._keys: list[list[Tensor]] = [[] for _ in longest]
        self._values: list[list[Tensor]] = [[] for _ in longest]

    def _random(self, *shape: int, dtype: str = "") -> Tensor:
        made = torch.randn(*shape, generator=self._generator)
        return made.to(getattr(torch, dtype or self.query.dtype)).to(self.query.device)

    def step(self, spans: tuple[tuple[int, int], ...]) -> tuple[Tensor, Tensor]:
        """(what the backend computed, what the reference does), both [T, Hq, Dv] on the CPU."""
        query = self.query
        window = WINDOW if query.sliding_window else None
        batch = moved(make_batch(self.pages, spans, window, bidirectional=query.bidirectional), query.device)
        tokens = batch.query_start_list[-1]
        k = self._random(tokens, query.num_kv_heads, query.head_size)
        v = self._random(tokens, query.num_kv_heads, query.value_head_size)
        if query.variant == "mla":
            v = k[..., : query.value_head_size]
        call = AttentionCall(
            q=self._random(tokens, query.num_heads, query.head_size),
            k=k,
            v=v,
            kv=self.kv,
            metadata=self.backend.build(batch),
            out=torch.full((tokens, query.num_heads, query.value_head_size), float("nan"), device=query.device).to(
                getattr(torch, query.dtype)
            ),
            scale=query.head_size**-0.5,
            softcap=5.0 if query.softcap else 0.0,
            sinks=self._random(query.num_heads, dtype="float32") if query.sinks else None,
            alibi_slopes=_slopes(query) if query.alibi else None,
            variant=query.variant,
        )
        expected = self._expected(call, batch)
        self.backend.run(call)
        return call.out.cpu(), expected

    def _expected(self, call: AttentionCall, batch: AttentionBatch) -> Tensor:
        stored = self.query.kv_dtype
        parts = []
        for request in range(len(batch.seq_lens_list)):
            first, last = batch.query_start_list[request], batch.query_start_list[request + 1]
            self._keys[request].append(_kept(call.k[first:last], stored).cpu())
            self._values[request].append(_kept(call.v[first:last], stored).cpu())
            seen = (torch.cat(self._keys[request]), torch.cat(self._values[request]))
            parts.append(attend(call, call.q[first:last].cpu(), seen, Mask(batch.window, batch.bidirectional)))
        return torch.cat(parts)


def _kept(x: Tensor, stored: str) -> Tensor:
    """What a cache of the type `stored` keeps of keys or values [T, Hkv, D]. int8: multiples of a 127th of the largest
    of each token and head; fp8: the nearest, never beyond the type's range."""
    if stored == "int8":
        scale = x.float().abs().amax(-1, keepdim=True) / 127
        return torch.round(x.float() / scale.clamp_min(1e-30)) * scale
    dtype = getattr(torch, stored)
    if dtype.itemsize == 1:
        return x.float().clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype).float()
    return x.to(dtype)


def _slopes(query: AttentionQuery) -> Tensor:
    return torch.tensor([2.0 ** -(head + 1) for head in range(query.num_heads)], device=query.device)


def _steps(query: AttentionQuery) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Bidirectional attention has no cache to speak of: a request is one step."""
    return STEPS[:1] if query.bidirectional else STEPS


def _numeric(subject: Subject, query: AttentionQuery) -> None:
    """Every step's output within the dtype's tolerance of the reference."""
    bench = _Bench(subject.load(), query)
    absolute, relative = TOLERANCE[query.dtype]
    for number, spans in enumerate(_steps(query)):
        got, expected = bench.step(spans)
        assert bool(torch.isfinite(got).all()), f"step {number}: the output has numbers that are none"
        difference = (got.double() - expected).abs()
        limit = absolute + relative * expected.abs()
        assert bool((difference <= limit).all()), f"step {number}: off by {float(difference.max()):.3g}"


def _served(subject: Subject, points: list[AttentionQuery]) -> None:
    """Inside the declared capabilities the plugin must not refuse."""
    refused = []
    for point in points:
        ok, reasons = subject.judged_ok(point)
        refused.extend([] if ok else [f"{_title(point)}: {reasons}"])
    assert not refused, f"declared, but refused: {refused}"


def _refused(subject: Subject, query: AttentionQuery) -> None:
    """Outside them the plugin itself must refuse: it may be asked without its manifest."""
    verdict = subject.load().supports(query)
    assert not verdict.ok, "supports() accepts what the manifest does not declare"
    assert verdict.reasons, "a refusal needs reasons"


def _tiny(subject: Subject, device: str) -> None:
    """A tiny model over this backend gives the reference's logits, in chunks too."""
    window = 6 if declared(subject.capabilities, "sliding_window") is True else None
    query = next(iter(inside(subject.capabilities, device)))
    sized = replace(query, dtype="float32", kv_dtype="float32", head_size=16, value_head_size=16, block_size=8)
    ok, reasons = subject.judged_ok(sized)
    if not ok:
        raise NotApplicable(f"it does not serve the tiny model's layers: {reasons}")
    prompts = [[5, 17, 80, 2, 9, 41, 7, 33, 12], [3], [60, 61]]
    expected = tiny_decoder(Setting(), window=window).logits(prompts, chunk=64)
    for chunk in (64, 4, 1):
        got = tiny_decoder(Setting(backend=subject.load(), device=device), window=window).logits(prompts, chunk)
        worst = max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True))
        assert worst <= 1e-4, f"chunks of {chunk}: logits are off by {worst:.3g}"


def _writes(subject: Subject, query: AttentionQuery) -> None:
    """Pages of nobody in the batch stay as they were."""
    bench = _Bench(subject.load(), query)
    for spans in STEPS:
        before = bench.kv.clone()
        bench.step(spans)
        own = torch.zeros(bench.pages.num_blocks, dtype=torch.bool)
        own[bench.pages.table.long().flatten()] = True
        own[0] = False
        strangers = ~own
        same = torch.equal(
            bench.kv[strangers].contiguous().view(torch.uint8), before[strangers].contiguous().view(torch.uint8)
        )
        assert same, "a page that belongs to no request of the batch was written"
