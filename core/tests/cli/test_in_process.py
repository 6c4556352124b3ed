"""`turret complete`, `chat`, `bench` and `plan` with a model in this process: a tiny Llama with made-up weights."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from turret import LLM, SamplingParams
from turret.cli.main import main

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 258,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 257, "dtype": "float32",
}  # fmt: skip
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
OPTIONS = ["--device", "cpu", "--num-gpu-blocks-override", "200", "--max-num-seqs", "8"]
LAYER_SHAPES = {
    "input_layernorm": (64,), "post_attention_layernorm": (64,), "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("tiny")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "config.json").write_text(json.dumps(CONFIG))
    draw = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (258, 64), "model.norm.weight": (64,)}
    for layer in range(2):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in LAYER_SHAPES.items()}
    tensors = {name: draw.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, path / "model.safetensors")
    return str(path)


def last_json(text: str) -> dict:
    return json.loads(text.strip().splitlines()[-1])


def test_complete_and_chat_say_what_the_engine_says(model, capsys, monkeypatch):
    with LLM(model, device="cpu", num_gpu_blocks_override=200, max_num_seqs=8) as llm:
        greedy = SamplingParams(temperature=0.0, max_tokens=6)
        (whole,) = llm.generate("Hello", greedy, use_tqdm=False)
        (turn,) = llm.chat([{"role": "user", "content": "Hi"}], greedy, use_tqdm=False)
    asked = ["--max-tokens", "6", "--temperature", "0", *OPTIONS]
    assert main(["complete", model, "--prompt", "Hello", *asked]) == 0
    assert capsys.readouterr().out == whole.outputs[0].text + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n"))
    assert main(["chat", model, *asked]) == 0
    assert capsys.readouterr().out.strip() == turn.outputs[0].text.strip()


def test_a_prompt_that_cannot_fit_ends_with_one_line(model, capsys):
    assert main(["complete", model, "--prompt", "x" * 300, *OPTIONS]) == 1
    said = capsys.readouterr().err
    assert said.startswith("turret: error: ") and "300 tokens" in said and "256 tokens" in said


def test_bench_throughput_and_latency(model, capsys):
    sizes = ["--input-len", "8", "--output-len", "4"]
    assert main(["bench", "throughput", model, "--num-prompts", "5", *sizes, *OPTIONS]) == 0
    found = last_json(capsys.readouterr().out)
    assert (found["requests"], found["prompt_tokens"], found["output_tokens"]) == (5, 40, 20)
    assert found["output_tokens_per_second"] == pytest.approx(20 / found["seconds"], rel=0.1)
    args = ["--num-iters", "3", "--num-iters-warmup", "1", "--batch-size", "2", *sizes]
    assert main(["bench", "latency", model, *args, "--profile", *OPTIONS]) == 0
    out = capsys.readouterr().out
    found = last_json(out)
    assert out.startswith("profile of 12 steps") and found["profile"]["steps"] == 12
    assert (found["iterations"], found["batch_size"]) == (3, 2) and 0 < found["batch_ms_p50"] <= found["batch_ms_p99"]


def test_bench_says_when_the_context_is_too_short(model, capsys):
    assert main(["bench", "latency", model, "--input-len", "250", "--output-len", "20", *OPTIONS]) == 2
    assert "an answer ended after 6 of 20 tokens" in capsys.readouterr().err


def test_bench_startup(model, capsys):
    assert main(["bench", "startup", model, "--num-runs", "1", *OPTIONS]) == 0
    found = last_json(capsys.readouterr().out)
    assert 0 < found["answers_s_p50"] < found["first_token_s_p50"]
    assert main(["bench", "startup", "/no/such/model", "--num-runs", "1"]) == 1
    assert "the server ended with status 1; it said: turret: error:" in capsys.readouterr().err


def test_plan_counts_what_an_engine_then_has(model, capsys):
    options = ["--device", "cpu", "--kv-cache-memory-bytes", "1M", "--max-num-seqs", "8", "--dtype", "float32"]
    assert main(["plan", model, "--json", *options]) == 0
    found = last_json(capsys.readouterr().out)
    with LLM(model, device="cpu", kv_cache_memory_bytes=1 << 20, max_num_seqs=8, dtype="float32") as llm:
        ready = llm._parts.engine.ready
    parameters = 258 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)
    assert found["weight_bytes"] == 4 * parameters == pytest.approx(ready.facts["weight_bytes"], rel=0.1)
    assert found["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 4  # keys and values x layers x heads x size x float32
    assert found["kv_tokens"] == (ready.num_blocks - 1) * ready.block_size
    assert found["users"] == {"256": (ready.num_blocks - 1) // (256 // ready.block_size)}
    assert found["plugins"] == ready.facts["plugins"]
    assert found["names"]["attention"] == ready.facts["attention"]


def test_plan_as_a_table(model, capsys):
    assert main(["plan", model, "--scheduling-policy", "fair", "--dtype", "float32", *OPTIONS]) == 0
    out = capsys.readouterr().out
    assert "KV cache    512 B per token; 3184 tokens fit" in out and "weights 305.8 KiB" in out
    assert "at once with 256 tokens each" in out and "policy:fair (turret " in out
    assert main(["plan", model, "--load-format", "dummy"]) == 2
    assert "--load-format dummy has none" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat", "complete", "plan", "bench", "bench serve", "bench latency"])
def test_help_is_quick_and_loads_no_engine(command):
    code = (
        "import sys; from turret.cli.main import main\n"
        f"try: main({[*command.split(), '--help']!r})\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"usage: turret {command} ") and done.stdout.splitlines()[-1] == "[]", done.stderr
