"""Pairs of a Hugging Face model and turret's with the same random weights.

Owns: how both are made and driven. Knows no family.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from turret.contracts import AttentionBackend, ModelArchitecture, ModelContext
from turret.nn import LayerFactory, OpTable
from turret.testing.model_driver import DriverSettings, ModelDriver
from turret_attention_torch.backend import TorchAttention

__all__ = ["Case", "Pair", "Parts", "close", "make_pair", "tokens"]

TINY: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Case:
    """A configuration of transformers' class `name` (without its suffixes), and what differs from TINY (in its
    `text_config`, where it has one)."""

    label: str
    name: str
    values: dict[str, Any]
    config_class: str = ""
    suffix: str = "ForCausalLM"


@dataclass(frozen=True)
class Parts:
    """What turret's model runs on; the references unless said otherwise."""

    ops: OpTable = field(default_factory=OpTable.resolve)
    backend: AttentionBackend = field(default_factory=TorchAttention)
    block_size: int = 4


@dataclass
class Pair:
    """The reference, its config as plain values, and a driver of turret's model with the same weights."""

    reference: Any
    config: dict[str, Any]
    driver: ModelDriver

    def expected(self, ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.reference(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def reference_model(case: Case) -> Any:
    """A random model whose norms, biases and attention are far from their neutral starting values."""
    transformers = importlib.import_module("transformers")
    config_class = getattr(transformers, case.config_class or f"{case.name}Config")
    nested = case.values.get("text_config")
    values = {**TINY, **case.values} if nested is None else {**case.values, "text_config": {**TINY, **nested}}
    config = config_class(**values, attn_implementation="eager")
    torch.manual_seed(7)
    model = getattr(transformers, case.name + case.suffix)(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5 * 1.5)
    return model


def installed(name: str) -> ModelArchitecture:
    """The installed architecture of that name."""
    (entry,) = entry_points(group="turret.models", name=name)
    found: ModelArchitecture = entry.load()
    return found


def turret_driver(
    family: ModelArchitecture, config: dict[str, Any], tensors: dict[str, torch.Tensor], parts: Parts
) -> ModelDriver:
    """Turret's model in float32, filled from a checkpoint's tensors."""
    limit = config.get("text_config", config)["max_position_embeddings"]
    factory = LayerFactory("float32", "cpu", limit, parts.ops)
    model = family.build(config, ModelContext("float32", "cpu", limit, factory))
    rule = family.weights(config)
    for tensor_name, tensor in tensors.items():
        placement = rule(tensor_name)
        assert placement is not None, f"no rule for {tensor_name}"
        factory.place(placement, tensor)
    factory.finish()
    return ModelDriver(model, factory, parts.backend, DriverSettings(block_size=parts.block_size))


def make_pair(
    case: Case, folder: Path, family: ModelArchitecture | None = None, parts: Parts | None = None
) -> Pair:
    """The reference, saved as its authors would, and turret's model loaded from what was saved."""
    reference = reference_model(case)
    reference.save_pretrained(folder)
    config = reference.config.to_dict()
    family = family or installed(case.name + case.suffix)
    tensors = load_file(folder / "model.safetensors")
    return Pair(reference, config, turret_driver(family, config, tensors, parts or Parts()))


def tokens(seed: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 128, (count,), generator=generator).tolist()


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
