"""What turret's kernels cost in quality: perplexity of a model on a text, beside a float32 reference on equal weights.

The text is the help that ships with Python (`pydoc`'s topics). SmolLM2-135M comes as a Q4_1 file; the other formats are
made from its values with the `gguf` package. For each format the reference is transformers in float32 over the
dequantized file, and turret runs as it runs by default. The ratio of the two perplexities has to be within 0.5% of one.
The last line is one JSON object.

    python benchmarks/perplexity.py [--formats bf16,q8_0,q4_0,q4_1] [--windows 32]
    python benchmarks/perplexity.py --file model.gguf                   # any other file of a model transformers reads
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

BOUND = 0.005
FORMATS = ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
OWN_KEYS = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type")
WINDOW = 512
"""Tokens a piece of text; the first of a piece is not judged."""
TEXTS = ("typesseq", "customization", "numbers", "import", "assignment", "formatstrings", "class", "try", "with",
         "string-methods", "compound", "debugger", "types")  # fmt: skip


def main() -> None:
    """Compare each format and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=",".join(FORMATS), help="default: %(default)s")
    parser.add_argument("--file", type=Path, help="a GGUF file to judge instead")
    parser.add_argument("--windows", type=int, default=32, help="pieces of 512 tokens (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {args.file.stem: args.file} if args.file else made(args.formats.split(","), Path(folder))
        found = {name: compare(path, args.windows) for name, path in files.items()}
    print(json.dumps({
        "benchmark": "perplexity", "windows": args.windows, "formats": found, "bound": BOUND,
        "met": all(abs(one["ratio"] - 1) <= BOUND for one in found.values()),
    }))  # fmt: skip


def made(formats: Sequence[str], folder: Path) -> dict[str, Path]:
    """A file of SmolLM2 in each format."""
    from turret.checkpoint import resolve

    source = Path(resolve("demo").path)
    files = {}
    for form in formats:
        files[form] = source if form == "q4_1" else folder / f"{form}.gguf"
        if form != "q4_1":
            convert(source, files[form], gguf.GGMLQuantizationType[form.upper()])
    return files


def convert(source: Path, out: Path, kind: gguf.GGMLQuantizationType) -> None:
    """Copy a GGUF file, each quantized tensor's values in another format."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(out, architecture.contents())
    for name, field in reader.fields.items():
        if name not in OWN_KEYS:
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(path: Path, windows: int) -> dict[str, float]:
    """Perplexity of turret and of the reference on the same tokens; `error` is the ratio's standard error, by which
    another text of the same length would move it."""
    ids, ours = turret_losses(path, windows)
    theirs = reference_losses(path, ids)
    more = [own - other for own, other in zip(ours, theirs, strict=True)]
    found = {
        "turret": math.exp(statistics.fmean(ours)), "reference": math.exp(statistics.fmean(theirs)),
        "ratio": math.exp(statistics.fmean(more)), "error": statistics.stdev(more) / math.sqrt(len(more)),
    }  # fmt: skip
    print(f"{path.stem:>24}: turret {found['turret']:.4f}, float32 {found['reference']:.4f}, "
          f"ratio {found['ratio']:.5f} +- {found['error']:.5f}", flush=True)  # fmt: skip
    return {name: round(value, 5) for name, value in found.items()}


def turret_losses(path: Path, windows: int) -> tuple[list[list[int]], list[float]]:
    """(the pieces as token ids, each judged token's loss)."""
    from turret import LLM, SamplingParams

    with LLM(model=str(path), max_model_len=WINDOW + 1, max_num_seqs=4, use_tqdm_on_load=False,
             log_level="warning", kv_cache_memory_bytes=1 << 28) as llm:  # fmt: skip
        ids = pieces(llm.get_tokenizer(), windows)
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": piece} for piece in ids], params, use_tqdm=False)
    losses = []
    for piece, output in zip(ids, outputs, strict=True):
        places = zip(piece[1:], output.prompt_logprobs[1:], strict=True)
        losses += [-place[token].logprob for token, place in places]
    return ids, losses


def pieces(tokenizer: Any, windows: int) -> list[list[int]]:
    """Windows of the text, from its start."""
    ids = tokenizer.encode("\n".join(topics[name] for name in TEXTS))
    if len(ids) < windows * WINDOW:
        raise SystemExit(f"the text has {len(ids)} tokens; --windows may be {len(ids) // WINDOW} at most")
    return [ids[start : start + WINDOW] for start in range(0, windows * WINDOW, WINDOW)]


def reference_losses(path: Path, ids: list[list[int]]) -> list[float]:
    """Each judged token's loss by transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two of torch's threads wait for each other for long where others use the cores too
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    losses: list[float] = []
    with torch.inference_mode():
        for piece in ids:
            tokens = torch.tensor([piece])
            logits = model(tokens).logits[0, :-1]
            losses += torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none").tolist()
    torch.set_num_threads(threads)
    return losses


if __name__ == "__main__":
    main()
