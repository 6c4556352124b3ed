"""Paged attention on the CPU: GFLOP/s of prompts and GB/s of the cache while decoding, for the heads of some models.

Each figure is the median over bursts that walk through as many layers as leave nothing of the cache in the processor.
A prompt's work counts what its causal mask lets it see. The last line is one JSON object.

    python benchmarks/attention_cpu.py [--threads N] [--cache int8] [--library PATH ...]

Several `--library` files are measured in alternation, and the ratio is of the first to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from turret.contracts import AttentionBatch, AttentionCall, KVSpec
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.cores import compute_cpus
from turret_platform_cpu.native import LIBRARY_VARIABLE, Native, library_path, load

BLOCK = 16
COLD_BYTES = 192 << 20
ROUNDS = 9


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads, sizes of keys and values."""

    count: int
    kv: int
    size: int
    value: int
    variant: str = "mha"


@dataclass(frozen=True)
class Work:
    """A step: so many requests with cached and new tokens each."""

    heads: Heads
    cached: int
    new: int
    requests: int = 1

    @property
    def flops(self) -> int:
        seen = sum(self.cached + i + 1 for i in range(self.new)) * self.requests
        return seen * self.heads.count * 2 * (self.heads.size + self.heads.value)


SMALL, WIDE, LATENT = Heads(9, 3, 64, 64), Heads(16, 8, 128, 128), Heads(16, 1, 576, 512, "mla")
WORKS = {
    "9 of 3 x 64, prompt of 512": Work(SMALL, 0, 512),
    "9 of 3 x 64, 512 behind 1536": Work(SMALL, 1536, 512),
    "9 of 3 x 64, four prompts of 128": Work(SMALL, 0, 128, 4),
    "16 of 8 x 128, prompt of 512": Work(WIDE, 0, 512),
    "9 of 3 x 64, 1 x 1000": Work(SMALL, 999, 1),
    "9 of 3 x 64, 32 x 1000": Work(SMALL, 999, 1, 32),
    "16 of 8 x 128, 32 x 1000": Work(WIDE, 999, 1, 32),
    "16 of latent 576, prompt of 512": Work(LATENT, 0, 512),
    "16 of latent 576, 32 x 1000": Work(LATENT, 999, 1, 32),
}


def step(native: Native, work: Work, cache: str) -> tuple[Callable[[], None], int, int]:
    """(one pass over all layers, layers, bytes of a layer's cache)."""
    heads, torch_random = work.heads, torch.Generator().manual_seed(1)
    backend = CPUAttention(native)
    layout = backend.kv_layout(KVSpec(heads.kv, heads.size, heads.value, BLOCK, cache, heads.variant))
    length = work.cached + work.new
    pages = -(-length // BLOCK)
    table = (torch.randperm(pages * work.requests, generator=torch_random).int() + 1).view(work.requests, pages)
    count = pages * work.requests + 1
    layers = max(2, COLD_BYTES // (count * layout.page_bytes)) if work.new == 1 else 4
    shape, dtype = (count, *layout.page_shape), getattr(torch, layout.dtype)
    raw = [np.zeros(count * layout.page_bytes, np.uint8) for _ in range(layers)]
    caches = [torch.from_numpy(layer).view(dtype).view(shape) for layer in raw]
    at = torch.arange(work.cached, length)
    starts = list(range(0, work.new * work.requests + 1, work.new))
    batch = AttentionBatch(
        query_start=torch.tensor(starts, dtype=torch.int32), seq_lens=torch.tensor([length] * work.requests).int(),
        block_table=table, slot_mapping=torch.cat([row[at // BLOCK].long() * BLOCK + at % BLOCK for row in table]),
        query_start_list=starts, seq_lens_list=[length] * work.requests, max_query_len=work.new, max_seq_len=length,
        num_decodes=work.requests if work.new == 1 else 0, block_size=BLOCK, window=None,
    )  # fmt: skip
    tokens = starts[-1]
    q = torch.randn(tokens, heads.count, heads.size, generator=torch_random).bfloat16()
    k = torch.randn(tokens, heads.kv, heads.size, generator=torch_random).bfloat16()
    v = k[..., : heads.value] if heads.variant == "mla" else torch.randn(tokens, heads.kv, heads.value).bfloat16()
    out = torch.empty(tokens, heads.count, heads.value).bfloat16()
    metadata = backend.build(batch)

    def call() -> None:
        for kv in caches:
            backend.run(AttentionCall(q, k, v, kv, metadata, out, heads.size**-0.5, variant=heads.variant))

    return call, layers, pages * work.requests * layout.page_bytes


def measure(calls: list[Callable[[], None]]) -> list[float]:
    """Median seconds of each, in alternation."""
    found: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for times, call in zip(found, calls, strict=True):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
    return [statistics.median(times) for times in found]


def loaded(path: str, threads: int) -> Native:
    os.environ[LIBRARY_VARIABLE] = path
    native = load()
    if native is None:
        raise SystemExit(f"there is no library {path}")
    native.start(threads, compute_cpus()[:threads])
    return native


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(compute_cpus()))
    parser.add_argument("--cache", default="bfloat16")
    parser.add_argument("--library", nargs="*", default=[str(library_path())])
    args = parser.parse_args()
    natives = [loaded(path, args.threads) for path in args.library]
    rows = []
    for name, work in WORKS.items():
        made = [step(native, work, args.cache) for native in natives]
        seconds = [t / layers for t, (_, layers, _) in zip(measure([m[0] for m in made]), made, strict=True)]
        best, size = seconds[-1], made[-1][2]
        rows.append({
            "work": name, "us": round(best * 1e6, 1), "gflops": round(work.flops / best / 1e9, 1),
            "gbytes_per_s": round(size / best / 1e9, 1), "times_first": round(seconds[0] / best, 2),
        })  # fmt: skip
        line = "{work:<34} {us:>9} us a layer {gflops:>6} GFLOP/s {gbytes_per_s:>5} GB/s  x {times_first}"
        print(line.format(**rows[-1]), flush=True)
    print(json.dumps({"threads": args.threads, "cache": args.cache, "level": natives[-1].level(), "attention": rows}))


if __name__ == "__main__":
    main()
