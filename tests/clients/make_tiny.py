"""Makes a tiny random Llama with a tokenizer of bytes, and what transformers thinks of some continuations.

Runs where torch and transformers are (turret's own environment): `python make_tiny.py FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAIRS = [
    ("The sky is", " blue"), ("The sky is", " a large green apple"), ("Two and two make", " four"),
    ("\u00dcber allen Gipfeln ist", " Ruh"), ("\u732b\u306f", "\u5bdd\u308b"), ("A", "B"),
]  # fmt: skip


def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1, **{letter: i for i, letter in enumerate(alphabet, 2)}}
    backend = Tokenizer(models.BPE(vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    made.save_pretrained(folder)
    return made


def main(folder: Path) -> None:
    """Write everything into `folder`."""
    words = tokenizer(folder)
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, initializer_range=0.2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    found = []
    for context, continuation in PAIRS:
        ids = words.encode(context + continuation, add_special_tokens=False)
        begin = len(words.encode(context, add_special_tokens=False))
        with torch.no_grad():
            logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        at = logprobs[begin - 1 : len(ids) - 1]
        targets = torch.tensor(ids[begin:])
        total = at.gather(1, targets[:, None]).sum().item()
        greedy = bool((at.argmax(-1) == targets).all())
        found.append({"context": context, "continuation": continuation, "logprob": total, "greedy": greedy})
    (folder / "expected.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
