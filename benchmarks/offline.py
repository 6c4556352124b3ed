"""turret against transformers' generate: same demo model, same prompts, greedy, in alternation.

Each engine runs in a process of its own that loads once and then answers rounds on request; rounds alternate
between the
engines, so that a drift of the machine's speed hits both. A round is BATCH prompts of PROMPT random tokens, OUTPUT new
tokens each, end-of-sequence ignored, no prefix cache. transformers runs eagerly, its weights the same file
dequantized to
bfloat16. The last line is JSON with output tokens/s of every round and the ratio of medians.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VOCABULARY = range(300, 45000)


def prompts(batch: int, length: int, seed: int) -> list[list[int]]:
    """Random token ids, the same for both engines."""
    rng = random.Random(seed)
    return [[rng.choice(VOCABULARY) for _ in range(length)] for _ in range(batch)]


def run_turret(_: argparse.Namespace) -> Any:
    """A function that generates with turret."""
    from turret import LLM, SamplingParams

    llm = LLM(model="demo", enable_prefix_caching=False, max_num_seqs=64)

    def generate(batch: list[list[int]], output: int) -> int:
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
        answers = llm.generate([{"prompt_token_ids": p} for p in batch], params, use_tqdm=False)
        return sum(len(a.outputs[0].token_ids) for a in answers)

    return generate


def run_transformers(args: argparse.Namespace) -> Any:
    """A function that generates with transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    path = Path(args.gguf)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def generate(batch: list[list[int]], output: int) -> int:
        ids = torch.tensor(batch)
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=output, min_new_tokens=output, do_sample=False, pad_token_id=0
            )
        return int(out.shape[0] * (out.shape[1] - ids.shape[1]))

    return generate


def child(args: argparse.Namespace) -> None:
    """Serve rounds: one JSON line in, one out."""
    generate = {"turret": run_turret, "transformers": run_transformers}[args.engine](args)
    generate(prompts(2, 16, 0), 4)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        batch = prompts(job["batch"], job["prompt"], job["seed"])
        began = time.perf_counter()
        tokens = generate(batch, job["output"])
        print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - began}), flush=True)


class Engine:
    """One engine in its own process."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name = name
        command = [sys.executable, __file__, "--engine", name, "--gguf", args.gguf, "--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while self._line() != "ready":
            continue

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended")
        return line.strip()

    def round(self, job: dict[str, int]) -> float:
        """Output tokens per second of one round."""
        assert self.process.stdin is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        answer = json.loads(self._line())
        assert answer["tokens"] == job["batch"] * job["output"]
        return float(answer["tokens"] / answer["seconds"])

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def main() -> None:
    """Alternate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("turret", "transformers"))
    parser.add_argument("--gguf", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    args = parser.parse_args()
    if not args.gguf:
        from turret.checkpoint import resolve

        args.gguf = str(resolve("demo").path)
    if args.engine:
        child(args)
        return
    engines = [Engine("turret", args), Engine("transformers", args)]
    rates: dict[str, list[float]] = {e.name: [] for e in engines}
    for number in range(args.rounds):
        for engine in engines:
            job = {"batch": args.batch, "prompt": args.prompt, "output": args.output, "seed": number + 1}
            rates[engine.name].append(round(engine.round(job), 1))
            print(f"round {number + 1}/{args.rounds} {engine.name}: {rates[engine.name][-1]} tokens/s", flush=True)
    for engine in engines:
        engine.close()
    ratio = statistics.median(rates["turret"]) / statistics.median(rates["transformers"])
    shape = {"batch": args.batch, "prompt": args.prompt, "output": args.output}
    figures = {"tokens_per_s": rates, "ratio": round(ratio, 2), "met": ratio >= 3}
    print(json.dumps({"benchmark": "offline", **shape, **figures}))


if __name__ == "__main__":
    main()
