"""Sampling on the CPU: the native op `sample` against plain torch (softmax, sort, cumulative sum), in alternation.

Milliseconds for a batch of rows with each set of filters, on logits as a model makes them (a few likely tokens) and on
nearly flat ones, through the worker's own sampler: parameters, penalties and results of requests included. With
--model, also the share of a decode step of that model at the same batch size. The last line is one JSON object.

    python benchmarks/sampling_cpu.py [--rows 32] [--vocab 262144] [--threads N] [--model PATH]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from turret import LLM, SamplingParams
from turret.messages import Request
from turret.worker.sampler import Sampler
from turret.worker.sampling_rows import SamplingRows
from turret_platform_cpu.cores import compute_cpus
from turret_platform_cpu.native import load
from turret_platform_cpu.sampling import NativeSample

FILTERS: dict[str, dict[str, Any]] = {
    "greedy, penalties": {"temperature": 0.0, "repetition_penalty": 1.1},
    "temperature": {},
    "top-k 50": {"top_k": 50},
    "top-p 0.9": {"top_p": 0.9},
    "min-p 0.05": {"min_p": 0.05},
    "top-k, top-p": {"top_k": 64, "top_p": 0.95},
    "all": {"temperature": 0.8, "top_k": 64, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1,
            "presence_penalty": 0.2, "logit_bias": {5: 1.0, 900: -3.0}},
    "top-p 0.9, logprobs 5": {"top_p": 0.9, "logprobs": 5},
}  # fmt: skip


def logits(kind: str, rows: int, vocab: int) -> torch.Tensor:
    """`peaked`: a few tokens hold most of the weight, as in text; `flat`: no token is above 0.02 %."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, vocab, generator=generator)
    if kind == "flat":
        return x
    x *= 2
    for place in range(40):
        x[torch.arange(rows), torch.randint(0, vocab, (rows,), generator=generator)] = 18.0 - 0.25 * place
    return x


def ours(x: torch.Tensor, asked: dict[str, Any], op: NativeSample) -> Callable[[], Any]:
    """The worker's sampler; each request has a prompt of 200 tokens."""
    rows, vocab = x.shape
    state = SamplingRows(rows)
    for row in range(rows):
        sampling = SamplingParams(**{"temperature": 1.0, "max_tokens": None, **asked})
        prompt = np.random.default_rng(row).integers(0, vocab, 200).tolist()
        state.set(row, Request(
            request_id=str(row), prompt_token_ids=prompt, sampling=sampling, max_tokens=64, seed=row, eos_token_ids=[],
            stop_token_ids=[], bad_words_ids=[]))  # fmt: skip
    sampler, values, numbers = Sampler(vocab, op=op), x.numpy(), np.arange(rows)
    return lambda: sampler.sample(values, numbers, state)


def plain(x: torch.Tensor, top_p: float) -> Callable[[], Any]:
    """Top-p as one writes it in torch."""

    def run() -> torch.Tensor:
        values, ids = torch.sort(torch.softmax(x, -1), descending=True)
        values[values.cumsum(-1) - values > top_p] = 0
        return ids.gather(1, torch.multinomial(values, 1))

    return run


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def step(model: str, rows: int, tokens: int = 32) -> float:
    """Milliseconds of a greedy decode step of `rows` requests: two lengths of answer, and their difference."""
    llm = LLM(model, use_tqdm_on_load=False, max_model_len=512, max_num_seqs=rows)
    prompts = [{"prompt_token_ids": [5 + i, 7, 9, 11]} for i in range(rows)]

    def seconds(length: int) -> float:
        begun = time.perf_counter()
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=length, ignore_eos=True), use_tqdm=False)
        return time.perf_counter() - begun

    seconds(4)
    found = [1000 * (seconds(4 + tokens) - seconds(4)) / tokens for _ in range(3)]
    llm.shutdown()
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=262144)
    parser.add_argument("--threads", type=int, default=len(compute_cpus()))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", help="a model whose decode step is the measure; its vocabulary is not --vocab's")
    args = parser.parse_args()
    whole = None if args.model is None else step(args.model, args.rows)
    native = load()
    if native is None:
        raise SystemExit("the native library was not built; see plugins/platforms/cpu/README.md")
    native.start(args.threads, compute_cpus()[: args.threads])
    torch.set_num_threads(args.threads)
    op = NativeSample(native)
    report: dict[str, Any] = {
        "rows": args.rows, "vocab": args.vocab, "threads": args.threads, "level": native.level(), "step_ms": whole,
    }  # fmt: skip
    for kind in ("peaked", "flat"):
        x = logits(kind, args.rows, args.vocab)
        calls = {name: ours(x, asked, op) for name, asked in FILTERS.items()}
        peer = milliseconds(plain(x, 0.9), 2)
        found = {name: milliseconds(call, args.repeats) for name, call in calls.items()}
        peer = min(peer, milliseconds(plain(x, 0.9), 1))
        for name, took in found.items():
            share = "" if whole is None else f"  {100 * took / whole:5.1f} % of a step"
            print(f"{kind:7} {name:24} {took:8.2f} ms{share}")
        print(f"{kind:7} {'torch sort, top-p 0.9':24} {peer:8.2f} ms  {peer / found['top-p 0.9']:.0f} x ours")
        report[kind] = {name: round(took, 3) for name, took in found.items()} | {"torch_top_p_0.9": round(peer, 3)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
