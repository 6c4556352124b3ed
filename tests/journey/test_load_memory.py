"""Loading a model takes no more memory than the model as it is held."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

# About 290 MiB of weights in every form and layers as thin as a real model's, so that neither what a process needs
# anyway nor the one layer that is being stacked counts much.
PACKED = {"hidden": 1024, "wide": 4096, "layers": 32, "vocabulary": 16000}
PLAIN = {"hidden": 768, "wide": 3072, "layers": 16, "vocabulary": 8000}
HEADS = 16

PROBE = """
import json, sys
import torch
from turret.checkpoint import resolve
from turret.nn import OpTable
from turret.worker.loader import LoadTarget, load_model
from turret.worker.setup import ModelSource, WorkerParts
from turret_model_decoder.llama import LLAMA
from turret_platform_cpu.platform import CPUPlatform
from turret_quant_gguf.method import GGUFMethod

def memory(kind):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines[kind].split()[0]) * 1024

platform = CPUPlatform()
platform.torch_device(0)
ops = OpTable.resolve([platform.ops()])
checkpoint = resolve(sys.argv[1])
quant = GGUFMethod() if sys.argv[1].endswith("gguf") else None
parts = WorkerParts(platform, None, LLAMA, quant)
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = memory("VmRSS")
loaded = load_model(parts, ModelSource(checkpoint, checkpoint.config, "bfloat16"), LoadTarget("cpu", ops, 64))
packed = sum(piece.packed.bytes for layer in loaded.factory._linears for piece in layer._pieces)
print(json.dumps({"peak": memory("VmHWM") - before, "stays": memory("VmRSS") - before, "packed": packed,
                  "held": loaded.factory.weight_bytes}))
"""


def shapes(hidden: int, wide: int, layers: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Tensors of a Llama with a tied head, by GGUF's names."""
    found: dict[str, tuple[int, ...]] = {"token_embd": (vocabulary, hidden), "output_norm": (hidden,)}
    for layer in range(layers):
        block = {name: (hidden, hidden) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        block |= {"ffn_gate": (wide, hidden), "ffn_up": (wide, hidden), "ffn_down": (hidden, wide)}
        block |= {"attn_norm": (hidden,), "ffn_norm": (hidden,)}
        found |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return found


def write_gguf(path: Path, hidden: int, wide: int, layers: int, vocabulary: int) -> None:
    """Random Q4_0 blocks; q and k have rows in llama.cpp's order, so that loading has to copy them."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    some = np.random.default_rng(3).integers(0, 256, 10007, dtype=np.uint8)
    for name, shape in shapes(hidden, wide, layers, vocabulary).items():
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, dtype=np.float32))
            continue
        blocks = np.resize(some, (*shape[:-1], shape[-1] // 32, 18))
        blocks[..., :2] = np.array([0.01], dtype=np.float16).view(np.uint8)
        rows = blocks.reshape(*shape[:-1], -1)
        writer.add_tensor(f"{name}.weight", rows, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors(path: Path, form: str, hidden: int, wide: int, layers: int, vocabulary: int) -> None:
    """The same model; in float32 it is twice what the bfloat16 model holds."""
    path.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": wide,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "vocab_size": vocabulary, "tie_word_embeddings": True, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "token_embd": "embed_tokens", "output_norm": "norm",
    }  # fmt: skip
    some = np.random.default_rng(4).standard_normal(10007, dtype=np.float32) * np.float32(0.02)
    tensors = {}
    for name, shape in shapes(hidden, wide, layers, vocabulary).items():
        block, _, last = name.rpartition(".")
        place = f"model.{block.replace('blk', 'layers')}.{names[last]}" if block else f"model.{names[last]}"
        tensors[f"{place}.weight"] = torch.from_numpy(np.resize(some, shape)).to(getattr(torch, form))
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize("form", ["gguf", "float32", "bfloat16"])
def test_loading_takes_the_memory_of_the_packed_weights(form, tmp_path):
    """Its peak too, nearly. Pages of the file count as long as they are mapped: the original is let go."""
    path = tmp_path / ("model.gguf" if form == "gguf" else "model")
    if form == "gguf":
        write_gguf(path, **PACKED)
    else:
        write_safetensors(path, form, **PLAIN)
    done = subprocess.run([sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["held"] > 230e6
    assert found["packed"] == pytest.approx(found["held"], rel=0.01)
    assert found["stays"] <= 1.1 * found["packed"], f"{found['stays'] / found['packed']:.3f} x {found['packed']} stay"
    assert found["peak"] <= 1.15 * found["held"], f"{found['peak'] / found['held']:.3f} x {found['held']} at the peak"
