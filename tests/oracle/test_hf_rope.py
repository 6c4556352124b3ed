"""Inverse frequencies and attention factors of every rope type against transformers' own functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from turret.errors import LoadError
from turret.nn import HFConfig, RopeSpec, rotary_table
from turret.nn.rotary import inverse_frequencies

FACTORS = [1.0 + 0.3 * i for i in range(16)]
CASES: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 512, "mscale": 0.7, "mscale_all_dim": 1.3,
     "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 0.9},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": False},
    {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS[::-1],
     "original_max_position_embeddings": 512},
    {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS[::-1], "factor": 3.0,
     "original_max_position_embeddings": 512},
]  # fmt: skip


@pytest.mark.parametrize("length", [300, 2048, 5000])
@pytest.mark.parametrize("rope", CASES, ids=lambda rope: "-".join(str(v)[:12] for v in rope.values()))
def test_scaled_frequencies(rope: dict[str, Any], length: int) -> None:
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=4, max_position_embeddings=2048,
        rope_parameters={"rope_theta": 50000.0, **rope},
    )  # fmt: skip
    expected, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"), seq_len=length)
    found, found_factor = inverse_frequencies(HFConfig(config.to_dict()).rope(), length)
    torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=0)
    assert found_factor == pytest.approx(factor)


def test_raw_keys_of_older_files() -> None:
    raw = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 2048, "rope_theta": 50000.0,
           "rope_scaling": {"type": "su", "short_factor": FACTORS, "long_factor": FACTORS[::-1]},
           "original_max_position_embeddings": 512}  # fmt: skip
    rope = HFConfig(raw).rope()
    assert (rope.kind, rope.base, rope.factor, rope.original_max_position) == ("longrope", 50000.0, 4.0, 512)


def test_the_table_is_cos_and_sin_of_every_position() -> None:
    table = rotary_table(RopeSpec(8, base=100.0), 5, "cpu")
    angles = torch.outer(torch.arange(5.0), 100.0 ** (-torch.arange(0, 8, 2) / 8))
    torch.testing.assert_close(table, torch.cat((angles.cos(), angles.sin()), 1))


def test_faults_are_named() -> None:
    with pytest.raises(LoadError, match="unknown rope type 'spiral'"):
        inverse_frequencies(RopeSpec(8, kind="spiral"), 10)
    with pytest.raises(LoadError, match="longrope needs 4 factors, the config has 3"):
        inverse_frequencies(RopeSpec(8, kind="longrope", short_factor=(1.0,) * 3, original_max_position=20), 10)
