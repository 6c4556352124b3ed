"""transformers' eager `generate` in bfloat16, for benchmarks/cpu.py. Runs in an environment with torch and it."""

from __future__ import annotations

import argparse

from cpu_peers.rounds import channel, serve


def main() -> None:
    answers = channel()
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def generate(batch: list[list[int]], output: int) -> int:
        ids = torch.tensor(batch)
        with torch.inference_mode():
            found = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=output, min_new_tokens=output,
                do_sample=False, pad_token_id=0,
            )  # fmt: skip
        return int(found.shape[0] * (found.shape[1] - ids.shape[1]))

    serve(answers, generate, version=transformers.__version__)


if __name__ == "__main__":
    main()
