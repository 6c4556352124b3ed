"""What the method says of a file's tensors."""

import subprocess
import sys

import pytest

from turret.contracts import LayerSpec, QuantContext
from turret.errors import LoadError
from turret_quant_gguf.blocks import BLOCKS, spec_of
from turret_quant_gguf.method import GGUFMethod

TENSORS = {
    "model.embed_tokens.weight": ("q8_0", (512, 64)),
    "model.layers.0.self_attn.q_proj.weight": ("q4_1", (64, 64)),
    "model.layers.0.self_attn.q_proj.bias": ("f32", (64,)),
    "model.layers.0.input_layernorm.weight": ("f32", (64,)),
    "model.layers.0.mlp.up_proj.weight": ("F16", (128, 64)),
}


def test_parse_names_the_packed_matrices_only() -> None:
    specs = GGUFMethod().parse(QuantContext({}, TENSORS))
    assert {name: spec.weight_type for name, spec in specs.items()} == {
        "model.embed_tokens": "q8_0",
        "model.layers.0.self_attn.q_proj": "q4_1",
    }
    assert all(spec.packing == "ggml" for spec in specs.values())


def test_an_unknown_block_format_names_the_tensor() -> None:
    with pytest.raises(LoadError, match=r"lm_head\.weight.*iq1_s"):
        GGUFMethod().parse(QuantContext({}, {"lm_head.weight": ("iq1_s", (512, 256))}))


@pytest.mark.parametrize("name", BLOCKS)
def test_params_is_one_tensor_of_whole_rows(name: str) -> None:
    (param,) = GGUFMethod().params(LayerSpec("x", 24, 512), spec_of(name)).values()
    assert param.shape == (24, 512 // BLOCKS[name].values * BLOCKS[name].size)
    assert (param.dtype, param.shard_dim) == ("uint8", 0)


def test_a_row_that_is_no_whole_number_of_blocks_is_refused() -> None:
    with pytest.raises(LoadError, match=r"layer 'x'.*320.*q4_k"):
        GGUFMethod().params(LayerSpec("x", 24, 320), spec_of("q4_k"))


def test_bits_count_the_scales() -> None:
    assert (spec_of("q4_1").bits, spec_of("q8_0").bits, spec_of("q6_k").bits) == (5.0, 8.5, 6.5625)


def test_parsing_loads_no_torch() -> None:
    code = (
        "import sys; from turret.contracts import QuantContext; from turret_quant_gguf.method import GGUFMethod;"
        "GGUFMethod().parse(QuantContext({}, {'a.weight': ('q4_k', (1, 256))})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
