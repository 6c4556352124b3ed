"""turret behind `LLM`, for benchmarks/cpu.py. Runs in turret's own environment."""

from __future__ import annotations

import argparse

from cpu_peers.rounds import channel, serve


def main() -> None:
    answers = channel()
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    args = parser.parse_args()
    from turret import LLM, SamplingParams, __version__

    # Room for 512 tokens a stream, as its neighbours get it.
    llm = LLM(
        model=args.model, enable_prefix_caching=False, max_num_seqs=args.streams, max_model_len=args.context,
        num_gpu_blocks_override=args.streams * 512 // 16 + 1, use_tqdm_on_load=False, log_level="warning",
    )  # fmt: skip

    def generate(batch: list[list[int]], output: int) -> int:
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
        found = llm.generate([{"prompt_token_ids": ids} for ids in batch], params, use_tqdm=False)
        return sum(len(one.outputs[0].token_ids) for one in found)

    serve(answers, generate, version=__version__)


if __name__ == "__main__":
    main()
