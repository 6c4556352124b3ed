"""A model to play scripts on: a folder with a config and a tokenizer, and no weights.

Owns: what is written there. Its tokenizer has a token for every byte, so what arrives is cut as finely as can be, and
special tokens of any names. `turret serve FOLDER --load-format dummy --device fake` serves it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

__all__ = ["CHAT_TEMPLATE", "END", "write_stage"]

END = "<|im_end|>"
"""The token that ends a sequence."""
START = "<|im_start|>"
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning %}<think>{{ m.reasoning }}</think>{% endif %}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}\n[{{ call.function.name }} {{ call.function.arguments | tojson }}]"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening }}{% endif %}"
)
"""Conversations in ChatML; the template argument `opening` is what an answer's prompt ends in, such as `<think>`."""
_SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "float32",
}  # fmt: skip


def write_stage(folder: Path, special_tokens: Sequence[str] = (), max_model_len: int = 1 << 20) -> None:
    """Write `config.json`, `tokenizer.json` and `tokenizer_config.json`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = dict.fromkeys((START, END, *special_tokens))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        **_SHAPE, "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": max_model_len,
        "eos_token_id": tokenizer.token_to_id(END),
    }  # fmt: skip
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": CHAT_TEMPLATE}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
