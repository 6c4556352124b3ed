"""Decisions: which platform, architecture, quantization and attention serve a checkpoint, and the options left open.

Owns: the order in which choices are made and the queries they are made with. Knows nothing of how the chosen work.
The outcome can be frozen into a plan; a worker process makes the same `Decision` from the plan alone.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from turret.checkpoint import CheckpointKind, normalized_config
from turret.compose.find import remote_code
from turret.compose.grammars import structured_backends
from turret.compose.placement import Replica, choose_device
from turret.compose.spec import EngineSpec
from turret.config import EngineConfig
from turret.contracts import (
    AttentionBackend,
    AttentionQuery,
    ConfigView,
    DeviceInfo,
    ModelArchitecture,
    Platform,
    QuantMethod,
    StructuredBackend,
)
from turret.errors import ConfigError, LoadError, PluginError
from turret.plugins import PluginHost

__all__ = ["Decision", "attention_query", "decide"]

logger = logging.getLogger("turret.compose")

_DTYPES = {"half": "float16", "float": "float32"}
_FALLBACKS: Mapping[str, Any] = {
    "block_size": 16, "max_num_seqs": 64, "max_num_batched_tokens": 2048,
}  # fmt: skip
"""For options that neither the user nor the platform sets."""


_FP8: Mapping[str, str] = MappingProxyType(
    {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything a worker is built from. `config` has no open options; `model_config` is normalised."""

    config: EngineConfig
    model_config: Mapping[str, Any]
    platform: Platform
    architecture: ModelArchitecture
    quant: QuantMethod | None
    attention: AttentionBackend
    device: DeviceInfo
    structured: Mapping[str, StructuredBackend] = dataclasses.field(default_factory=dict)

    @property
    def device_index(self) -> int:
        """The device's number on its platform."""
        return self.device.index

    @property
    def kv_dtype(self) -> str:
        """The type that keys and values are kept in."""
        return _kv_dtype(self.config)

    @property
    def names(self) -> dict[str, str]:
        """What was chosen, for logs and `/server_info`."""
        return {
            "platform": self.platform.name,
            "architecture": self.model_config["architectures"][0],
            "quantization": self.quant.name if self.quant else "none",
            "attention": self.attention.name,
            "dtype": self.config.model.dtype,
        }


def decide(spec: EngineSpec, host: PluginHost, *, settled: bool = False) -> Decision:
    """Make every choice; raises PluginError, ConfigError or LoadError with one sentence.

    `settled` says that no option of `spec` is open: the platform is not asked for its wishes again.
    """
    size = spec.config.parallel.data_parallel_size
    platform, device = choose_device(spec.config.device.device, host, Replica(spec.rank, size))
    model_config = normalized_config(
        spec.checkpoint,
        spec.config.model.hf_overrides,
        hf_config_path=spec.config.model.hf_config_path,
        code=remote_code(spec.config, spec.checkpoint.revision),
    )
    config = spec.config if settled else _fill_in(spec, platform, model_config)
    architecture = _choose_architecture(spec, host, model_config)
    quant = _choose_quant(spec, host, model_config)
    attention = _choose_attention(config, host, platform, (architecture, model_config, device.index))
    structured = {} if config.model.skip_tokenizer_init else structured_backends(host, config.structured)
    return Decision(config, model_config, platform, architecture, quant, attention, device, structured)


def attention_query(config: EngineConfig, need: Any, device: str) -> AttentionQuery:
    """One kind of layer as a query for attention backends."""
    assert config.cache.block_size is not None
    return AttentionQuery(
        device=device,
        dtype=config.model.dtype,
        kv_dtype=_kv_dtype(config),
        block_size=config.cache.block_size,
        **dataclasses.asdict(need),
    )


def _kv_dtype(config: EngineConfig) -> str:
    """The torch name of what --kv-cache-dtype means."""
    named = config.cache.kv_cache_dtype
    return config.model.dtype if named == "auto" else _FP8.get(named, named)


def _fill_in(spec: EngineSpec, platform: Platform, model_config: Mapping[str, Any]) -> EngineConfig:
    """Options the user left open: the platform's wish first, then a general default. Says who changed what."""
    mine = spec.options()
    patch = platform.patch_config(ConfigView(mine, model_config))
    clash = sorted(set(patch.values) & set(mine))
    if clash:
        raise PluginError(
            f"platform {platform.name} wants to change {', '.join(clash)}, which you set yourself; "
            "remedy: report it to its authors"
        )
    values = {**_FALLBACKS, "dtype": _stored_dtype(model_config), **patch.values}
    for name, value in patch.values.items():
        reason = patch.reasons.get(name, "no reason given")
        logger.debug("platform %s set %s = %s: %s", platform.name, name, value, reason)
    sections = {}
    for field in dataclasses.fields(spec.config):
        section = getattr(spec.config, field.name)
        names = {f.name for f in dataclasses.fields(section)} & set(values) - set(mine)
        sections[field.name] = dataclasses.replace(section, **{n: values.pop(n) for n in names})
    strange = sorted(set(values) - set(mine))
    if strange:
        raise PluginError(f"platform {platform.name} wants to set unknown options: {', '.join(strange)}")
    config = EngineConfig(**sections)
    dtype = _DTYPES.get(config.model.dtype, config.model.dtype)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, dtype=dtype))


def _stored_dtype(model_config: Mapping[str, Any]) -> str:
    """The type the checkpoint was saved in, if it is one to compute in."""
    stored = str(model_config.get("dtype") or model_config.get("torch_dtype") or "").removeprefix("torch.")
    return stored if stored in ("bfloat16", "float16", "float32") else "float32"


def _choose_architecture(spec: EngineSpec, host: PluginHost, config: Mapping[str, Any]) -> ModelArchitecture:
    names = list(config.get("architectures") or ())
    if not names:
        raise LoadError(f"{spec.checkpoint.reference}: its config names no architectures; add them to config.json")
    chosen = host.select("model", {"architecture": names[0]}, key=names[0])
    architecture: ModelArchitecture = host.load(chosen.require())
    return architecture


def _choose_quant(spec: EngineSpec, host: PluginHost, config: Mapping[str, Any]) -> QuantMethod | None:
    """The checkpoint's own method; `--quantization` may only name the same one."""
    stored = config.get("quantization_config") or {}
    own = "gguf" if spec.checkpoint.kind is CheckpointKind.GGUF else str(stored.get("quant_method") or "").lower()
    asked = spec.config.model.quantization
    if asked is not None and asked != own:
        raise ConfigError(
            f"--quantization {asked} contradicts the checkpoint, which is {own or 'not quantized'}; "
            "leave the option out",
            "quantization",
        )
    if not own:
        return None
    method: QuantMethod = host.load(host.select("quant", {"quant_method": own}, key=own).require())
    return method


def _choose_attention(
    config: EngineConfig, host: PluginHost, platform: Platform, model: tuple[ModelArchitecture, Mapping[str, Any], int]
) -> AttentionBackend:
    """One backend for all layers: chosen for the first kind of layer and asked about the others."""
    architecture, model_config, index = model
    device = platform.torch_device(index)
    queries = [attention_query(config, need, device) for need in architecture.attention_needs(model_config)]
    selection = host.select(
        "attention",
        queries[0],
        explicit=config.device.attention_backend,
        preferences=tuple(platform.preferences("attention")),
    )
    candidate = selection.require()
    backend: AttentionBackend = host.load(candidate)
    for query in queries[1:]:
        verdict = backend.supports(query)
        if not verdict:
            reasons = "; ".join(verdict.reasons)
            raise PluginError(f"{candidate.identity} serves some layers of this model but not all: {reasons}; remedy: "
                              "choose another with --attention-backend")
    return backend
