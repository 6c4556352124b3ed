"""Linear layers on the CPU: turret's native kernels against torch's F.linear, in alternation.

For each format and number of rows: GFLOP/s, GB/s of weights, and the ratio to torch's bfloat16 F.linear of the same
shape in the same minute. Weights rotate so that none is left in the cache. The last line is one JSON object.

    python benchmarks/linear_cpu.py [--out-features 2048] [--in-features 2048] [--threads N] [--formats q4_1,bf16]

On a machine that others use, `--cpu-time` counts the CPU time of one thread instead of the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from turret.contracts import LinearCall, QuantizedWeight, QuantSpec
from turret_platform_cpu.cores import compute_cpus, processor
from turret_platform_cpu.linear import BLOCK_TYPES, NativeLinear
from turret_platform_cpu.native import load

ROWS = (1, 8, 32, 512)
COLD_BYTES = 96 << 20
"""Weights in rotation together take at least this much."""


@dataclass(frozen=True)
class Setting:
    out_features: int
    in_features: int
    clock: Callable[[], float]
    seconds: float
    rows: tuple[int, ...]


def random_weight(name: str, setting: Setting) -> QuantizedWeight:
    """Random bytes as blocks (their speed does not depend on their values), or random bfloat16."""
    shape = (setting.out_features, setting.in_features)
    if name == "bf16":
        return QuantizedWeight(None, *shape, {"weight": torch.randn(shape).bfloat16()})
    _, values, size = BLOCK_TYPES[name]
    rows = torch.randint(0, 128, (shape[0], shape[1] // values * size), dtype=torch.uint8)
    spec = QuantSpec(name, size * 8 / values, values, packing="ggml")
    return QuantizedWeight(spec, *shape, {"weight": rows})


def measure(setting: Setting, call: Callable[[int], None]) -> float:
    """Median seconds of one call over a few bursts; `call` gets a running number."""
    call(0)
    begun = setting.clock()
    call(1)
    once = max(setting.clock() - begun, 1e-6)
    burst = max(1, int(setting.seconds / 5 / once))
    found, number = [], 2
    for _ in range(5):
        begun = setting.clock()
        for _ in range(burst):
            call(number)
            number += 1
        found.append((setting.clock() - begun) / burst)
    return statistics.median(found)


def rotating(apply: Callable[[Any], None], things: list[Any]) -> Callable[[int], None]:
    return lambda number: apply(things[number % len(things)])


def compare(name: str, kernel: NativeLinear, setting: Setting) -> list[dict[str, Any]]:
    """One row of figures for each number of rows."""
    first = kernel.pack(random_weight(name, setting))
    packed = [first, *(kernel.pack(random_weight(name, setting)) for _ in range(COLD_BYTES // first.bytes))]
    plain_bytes = setting.out_features * setting.in_features * 2
    plain = [random_weight("bf16", setting).params["weight"] for _ in range(max(1, COLD_BYTES // plain_bytes))]
    found = []
    for rows in setting.rows:
        x = torch.randn(rows, setting.in_features).bfloat16()
        out = torch.empty(rows, setting.out_features, dtype=torch.bfloat16)

        def ours(weight: Any, out: Tensor = out, x: Tensor = x) -> None:
            kernel.apply(LinearCall(out, x, weight))

        def theirs(weight: Tensor, x: Tensor = x) -> None:
            F.linear(x, weight)

        mine, others = measure(setting, rotating(ours, packed)), measure(setting, rotating(theirs, plain))
        work = 2 * rows * setting.out_features * setting.in_features
        found.append({
            "format": name, "rows": rows, "us": round(mine * 1e6, 1), "gflops": round(work / mine / 1e9, 1),
            "gbytes_per_s": round(first.bytes / mine / 1e9, 1), "torch_bf16_us": round(others * 1e6, 1),
            "times_torch": round(others / mine, 2),
        })  # fmt: skip
        print("{format:>7} M={rows:<4} {us:>9} us {gflops:>7} GFLOP/s {gbytes_per_s:>6} GB/s   torch bf16 "
              "{torch_bf16_us:>9} us   x {times_torch}".format(**found[-1]), flush=True)
    return found


def call_overhead(kernel: NativeLinear) -> float:
    """Microseconds of a call that computes next to nothing."""
    packed = kernel.pack(QuantizedWeight(None, 1, 2, {"weight": torch.ones(1, 2)}))
    call = LinearCall(torch.empty(1, 1), torch.ones(1, 2), packed)
    count = 20_000
    begun = time.thread_time()
    for _ in range(count):
        kernel.apply(call)
    return (time.thread_time() - begun) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out-features", type=int, default=2048)
    parser.add_argument("--in-features", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=len(compute_cpus()))
    parser.add_argument("--formats", default="q4_0,q4_1,q8_0,q4_k,q6_k,bf16")
    parser.add_argument("--activations", choices=("exact", "int8"), default="int8", help="what meets packed integers")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="numbers of rows of activations")
    parser.add_argument("--seconds", type=float, default=0.5, help="time spent on each figure")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, its CPU time instead of the clock")
    args = parser.parse_args()
    native = load()
    if native is None:
        raise SystemExit("the native library was not built: install a C++ compiler and reinstall turret-platform-cpu")
    threads = 1 if args.cpu_time else args.threads
    native.start(threads, compute_cpus()[:threads])
    torch.set_num_threads(threads)
    clock = time.thread_time if args.cpu_time else time.perf_counter
    rows = tuple(map(int, args.rows.split(",")))
    setting = Setting(args.out_features, args.in_features, clock, args.seconds, rows)
    kernel = NativeLinear(native, args.activations == "int8")
    what = f"{threads} threads, {native.level()}, {args.activations}"
    print(f"{processor().name}, {what}, [{args.out_features}, {args.in_features}]")
    results = [row for name in args.formats.split(",") for row in compare(name, kernel, setting)]
    overhead = round(call_overhead(kernel), 2)
    print(f"call overhead {overhead} us")
    print(json.dumps({"level": native.level(), "threads": threads, "activations": args.activations,
                      "call_overhead_us": overhead, "results": results}))


if __name__ == "__main__":
    main()
