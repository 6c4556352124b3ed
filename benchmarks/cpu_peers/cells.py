"""What is measured and what is required: the table of cells.

Owns: models, formats, peers, required ratios. Knows nothing of how a figure is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["CELLS", "FORMATS", "PEERS", "REQUIREMENTS", "Cell", "Requirement", "peers_of", "required"]

FORMATS: Mapping[str, tuple[str, ...]] = {
    "smollm2": ("bf16", "q8_0", "q4_0", "q4_1"),
    "gemma3": ("bf16", "q4_k_m"),
    "qwen3-0.6b": ("bf16", "q8_0", "q4_0"),
    "llama-1b": ("bf16", "q8_0", "q4_0"),
}
"""SmolLM2-135M and Gemma 3 270M with their weights; the shapes of Qwen3-0.6B and Llama-3.2-1B with random ones."""

PEERS = ("llamacpp", "vllm", "transformers", "prototype")
CELLS = ("prefill", "one_stream", "batch_32", "served_1", "served_8", "served_32")
SERVING_PEERS = ("llamacpp", "vllm")
PROTOTYPE_MODELS = ("smollm2", "qwen3-0.6b", "llama-1b")


@dataclass(frozen=True, slots=True)
class Requirement:
    """turret ÷ peer must reach `ratios` on the same weights; a ratio per model where models differ."""

    peer: str
    formats: tuple[str, ...]
    ratios: Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One ratio."""

    model: str
    form: str
    peer: str
    cell: str


REQUIREMENTS = (
    Requirement("vllm", ("bf16",), {
        "prefill": 1.1, "one_stream": {"smollm2": 2.2, "qwen3-0.6b": 1.4},
        "batch_32": {"smollm2": 1.35, "qwen3-0.6b": 1.15}, "served_32": 1.3}),
    Requirement("llamacpp", ("bf16",), {"prefill": 1.5, "one_stream": 1.0, "batch_32": 1.8, "served_32": 1.5}),
    Requirement("llamacpp", ("q8_0",), {"prefill": 3.0, "one_stream": 1.2, "batch_32": 3.0, "served_32": 2.5}),
    Requirement("llamacpp", ("q4_0",), {"prefill": 2.3, "one_stream": 1.5, "batch_32": 2.3, "served_32": 2.0}),
    Requirement("llamacpp", ("q4_1", "q4_k_m"), {"prefill": 3.0, "one_stream": 1.3, "batch_32": 3.0}),
    Requirement("transformers", ("bf16",), {"prefill": 2.0, "one_stream": 4.0, "batch_32": 4.0}),
    Requirement("prototype", ("bf16", "q8_0", "q4_0"), {"prefill": 0.9, "one_stream": 0.9, "batch_32": 0.9}),
)  # fmt: skip


def peers_of(model: str, form: str) -> list[str]:
    """Peers that run this model in this format."""
    peers = ["llamacpp"]
    if form == "bf16":
        peers += ["vllm", "transformers"]
    if model in PROTOTYPE_MODELS and form in ("bf16", "q8_0", "q4_0"):
        peers.append("prototype")
    return peers


def required() -> Iterator[tuple[Cell, float]]:
    """Every cell with a required ratio."""
    for need in REQUIREMENTS:
        for model, forms in FORMATS.items():
            for form in forms:
                if form not in need.formats or need.peer not in peers_of(model, form):
                    continue
                for name, wanted in need.ratios.items():
                    least = wanted if isinstance(wanted, float) else wanted.get(model)
                    if least is not None:
                        yield Cell(model, form, need.peer, name), least
