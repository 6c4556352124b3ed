"""GGUF files with stacked experts, written by the `gguf` package, against transformers on the values they hold."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hf_pairs import Case, close, installed, reference_model, tokens
from safetensors.torch import load_file, save_file

from turret.checkpoint import resolve
from turret.checkpoint.gguf_names import half_split_rows
from turret.contracts import ModelContext, QuantContext
from turret.nn import LayerFactory, OpTable, Quantization
from turret.testing.model_driver import DriverSettings, ModelDriver
from turret.worker.stored import stored_tensors
from turret_platform_cpu.attention import CPUAttention
from turret_platform_cpu.platform import CPUPlatform

torch.set_num_threads(1)

EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
CASES = {
    "llama": Case("mixtral", "Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2moe": Case(
        "qwen2-moe", "Qwen2Moe", {**EXPERTS, "norm_topk_prob": False, "shared_expert_intermediate_size": 64}),
    "qwen3moe": Case("qwen3-moe", "Qwen3Moe", {**EXPERTS, "head_dim": 32}),
    "olmoe": Case("olmoe", "Olmoe", {"num_experts": 6, "num_experts_per_tok": 3}),
}
Q8_0 = gguf.GGMLQuantizationType.Q8_0
PROVIDER = CPUPlatform().ops()


def write(path: Path, arch: str, config: Any, tensors: dict[str, np.ndarray]) -> None:
    """The model as its converter would write it: matrices of experts stacked, in blocks."""
    writer = gguf.GGUFWriter(path, arch)
    count = getattr(config, "num_local_experts", None) or config.num_experts
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_expert_count(count)
    writer.add_expert_used_count(config.num_experts_per_tok)
    for name, data in tensors.items():
        if "_exps" in name:
            writer.add_tensor(name, gguf.quantize(data, Q8_0), raw_dtype=Q8_0)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored(arch: str, config: Any, tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Under the file's names, by the `gguf` package's own map."""
    names = gguf.get_tensor_name_map({n: a for a, n in gguf.MODEL_ARCH_NAMES.items()}[arch], config.num_hidden_layers)
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        expert = re.search(r"experts\.(\d+)\.", name)
        plain = name if expert is None else name.replace(expert[0], "experts.")
        base, _, param = plain.rpartition(".")
        key = f"{names.get_name(base)}.{param}"
        if expert is None:
            found[key] = turned(arch, config, name, tensor.numpy())
        else:
            found.setdefault(key, {})[int(expert[1])] = tensor.numpy()
    return {
        key: np.stack([value[e] for e in range(len(value))]) if isinstance(value, dict) else value
        for key, value in found.items()
    }


def turned(arch: str, config: Any, name: str, data: np.ndarray) -> np.ndarray:
    if "shared_expert_gate" in name:
        return data[0]
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if arch != "llama" or heads is None:
        return data
    whole = np.empty_like(data)
    whole[half_split_rows(heads, len(data) // heads)] = data
    return whole


def loaded(path: Path, case: Case) -> ModelDriver:
    """Turret's model in float32 on the CPU's kernels."""
    checkpoint = resolve(str(path))
    config = checkpoint.config
    (entry,) = entry_points(group="turret.quant", name="gguf")
    method = entry.load()()
    given = stored_tensors(checkpoint, config)
    specs = method.parse(QuantContext(config, {t.name: (t.type_name, t.shape) for t in given}))
    assert sum("experts" in name for name in specs) == len([t for t in given if "experts." in t.name]) > 0
    ops = OpTable.resolve([PROVIDER])
    factory = LayerFactory("float32", "cpu", 256, ops, Quantization(method, specs))
    family = installed(config["architectures"][0])
    model = family.build(config, ModelContext("float32", "cpu", 256, factory))
    rule = family.weights(config)
    for tensor in given:
        placement = rule(tensor.name)
        assert placement is not None, tensor.name
        factory.place(placement, tensor.tensor())
    factory.finish()
    return ModelDriver(model, factory, CPUAttention(), DriverSettings(block_size=16))


@pytest.mark.skipif(PROVIDER is None, reason="the native library was not built")
@pytest.mark.parametrize("arch", CASES)
@torch.inference_mode()
def test_stacked_experts_are_transformers_experts(arch: str, tmp_path: Path) -> None:
    case = CASES[arch]
    reference = reference_model(case)
    reference.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        if re.search(r"experts\.\d", name):
            tensor.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(tensor.numpy(), Q8_0), Q8_0)))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    reference = type(reference).from_pretrained(tmp_path, attn_implementation="eager").float().eval()
    path = tmp_path / "m.gguf"
    write(path, arch, reference.config, stored(arch, reference.config, tensors))
    ids = tokens(5, 23)
    expected = reference(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    close(loaded(path, case).step({"a": ids})["a"], expected)
