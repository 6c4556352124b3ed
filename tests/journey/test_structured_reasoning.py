"""A form begins where reasoning ends: a model with random weights, its reasoning cut short by a budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is not false %}<think>{% endif %}"


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Llama with random weights over bytes, whose template opens reasoning."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("thinker")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, **{c: i for i, c in enumerate(alphabet, 2)}}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                   additional_special_tokens=["<think>", "</think>"])
    fast.chat_template = TEMPLATE
    fast.save_pretrained(path)
    torch.manual_seed(5)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, initializer_range=0.2,
    )).save_pretrained(path)  # fmt: skip
    return str(Path(path))


def test_the_form_begins_after_the_reasoning(serve: Callable, thinker: str) -> None:
    with serve(thinker, "--reasoning-parser", "deepseek_r1", "--kv-cache-memory-bytes", "16M") as started:
        url = f"{started.wait_ready()}/v1/chat/completions"

        def ask(**fields) -> dict:
            body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 60, "seed": 3,
                    "structured_outputs": {"choice": ["certainly", "never"]}, **fields}
            answer = httpx.post(url, json=body, timeout=120)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]

        thought = ask(max_thinking_tokens=7)
        assert thought["message"]["content"] in ("certainly", "never") and thought["finish_reason"] == "stop"
        assert thought["message"]["reasoning"], "it may be anything"
        cut = ask(max_tokens=5)
        assert cut["finish_reason"] == "length" and not cut["message"]["content"]
