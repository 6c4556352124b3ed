"""What a worker is built from: the chosen plugins, the model's source, the limits.

Owns: frozen values that compose fills in. Knows nothing of torch or of how they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turret.checkpoint import Checkpoint
from turret.contracts import (
    AttentionBackend,
    GrammarCompiler,
    ModelArchitecture,
    OpProvider,
    Platform,
    QuantMethod,
    Vocabulary,
)

__all__ = ["GrammarSource", "ModelSource", "WorkerLimits", "WorkerParts"]


class GrammarSource(Protocol):
    """Backends of structured output, by the names that requests carry."""

    names: tuple[str, ...]

    def vocabulary(self) -> Vocabulary:
        """The model's; made once."""

    def open(self, backend: str) -> GrammarCompiler:
        """A backend for that vocabulary; loads what it needs."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The plugin objects. `providers` are vendors' ops that go before the platform's own, best first; `quant` is None
    for a checkpoint of plain weights."""

    platform: Platform
    attention: AttentionBackend
    architecture: ModelArchitecture
    quant: QuantMethod | None = None
    providers: Sequence[OpProvider] = ()
    grammars: GrammarSource | None = None


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model to load. `config` is the normalised Hugging Face config; `dtype` a torch name (never `auto`);
    `load_format` `dummy` makes weights up from `seed`, anything else reads the checkpoint's files; `keep_packed`:
    packed weights are kept on disk for the next start; `map_location`: where files of torch.save restore tensors."""

    checkpoint: Checkpoint
    config: Mapping[str, Any]
    dtype: str
    load_format: str = "auto"
    seed: int = 0
    keep_packed: bool = False
    map_location: str | Mapping[str, str] = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """How large a step and the cache may get, and where the worker runs. `kv_dtype` None follows the model's dtype;
    `enforce_eager`: the forward is never recorded."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    kv_dtype: str | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    logprobs_mode: str = "raw_logprobs"
    device_index: int = 0
    threads: int | None = None
    enforce_eager: bool = False
