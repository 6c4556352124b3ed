"""Recorded forwards against the same model run op by op, in alternation: what Python between kernels costs.

Two engines in this process share weights' file, threads and prompts; one has --enforce-eager. Each round decodes BATCH
streams for STEPS tokens greedily with either engine in turn and checks that both chose the same tokens. Prints
milliseconds a step (the whole step, prefill left out): the best round, which other load on the machine disturbs least,
and the median of the rounds' ratios. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from turret import LLM, SamplingParams

PROMPT = 8


def generate(llm: LLM, batch: int, tokens: int) -> tuple[float, list[list[int]]]:
    """Seconds, and the tokens of every stream."""
    prompts = [{"prompt_token_ids": [300 + 7 * i + j for j in range(PROMPT)]} for i in range(batch)]
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    began = time.perf_counter()
    answers = llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - began, [list(answer.outputs[0].token_ids) for answer in answers]


def step_ms(llm: LLM, batch: int, steps: int) -> tuple[float, list[list[int]]]:
    """Milliseconds a decode step: a run of steps + 1 tokens less a run of one, which is the prefill's."""
    first, _ = generate(llm, batch, 1)
    whole, tokens = generate(llm, batch, steps + 1)
    return (whole - first) / steps * 1e3, tokens


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--threads", type=int, help="compute threads; unset: every core this process may use")
    options = parser.parse_args()
    common = {"model": options.model, "enable_prefix_caching": False, "max_num_seqs": 64, "max_model_len": 512}
    if options.threads:
        common["cpu_threads"] = options.threads
    engines = {"eager": LLM(**common, enforce_eager=True), "recorded": LLM(**common)}
    figures: dict[str, dict[str, float]] = {}
    for batch in (1, 32):
        times: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(options.rounds):
            chosen = []
            for name, llm in engines.items():
                took, tokens = step_ms(llm, batch, options.steps)
                times[name].append(took)
                chosen.append(tokens)
            if chosen[0] != chosen[1]:
                raise SystemExit(f"batch {batch}: the recorded forward chose other tokens")
        line = {f"{name}_ms": round(min(values), 3) for name, values in times.items()}
        ratios = [a / b for a, b in zip(times["eager"], times["recorded"], strict=True)]
        line["speedup"] = round(statistics.median(ratios), 3)
        figures[f"batch_{batch}"] = line
        print(f"batch {batch:2d}: {line}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
