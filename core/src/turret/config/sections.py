"""The sections of a configuration and how they check themselves.

Owns: defaults, ranges and cross-checks of every option. Knows nothing of where values come from.

`None` means "decide from the model and the platform"; whoever decides makes a new frozen value and never writes here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turret.config.front import ObservabilityConfig, ServerConfig, TlsConfig
from turret.config.options import check_value, opt, option_table, require
from turret.config.structured import StructuredConfig
from turret.errors import ConfigError

__all__ = [
    "FIT_CONTEXT",
    "CacheConfig",
    "Config",
    "DeviceConfig",
    "EngineConfig",
    "LoadConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "ParallelConfig",
    "PluginConfig",
    "SchedulerConfig",
    "ServerConfig",
    "StructuredConfig",
    "TlsConfig",
]

FIT_CONTEXT = -1
"""`max_model_len` that follows from the size of the KV cache."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, and how its tokens and defaults are read."""

    model: str | None = opt(None, "Model to serve: a local directory, a .gguf file, a hub id, or 'demo'.")
    served_model_name: list[str] | None = opt(None, "Names accepted in requests; the first is reported in answers.")
    tokenizer: str | None = opt(None, "Tokenizer to load when it differs from the model.")
    tokenizer_mode: str = opt(
        "auto", "Which tokenizer implementation to use.", choices=("auto", "hf", "slow"),
        missing=dict.fromkeys(
            ("mistral", "deepseek_v32"),
            "tokenizers outside the Hugging Face format are not read in this version; use a tokenizer.json"))
    config_format: str = opt(
        "auto", "Layout of the model configuration files.", choices=("auto", "hf"),
        missing={"mistral": "params.json is not read in this version; use a checkpoint with a config.json"})
    skip_tokenizer_init: bool = opt(False, "Load no tokenizer: token ids in, token ids out.")
    revision: str | None = opt(None, "Branch, tag or commit of the model.")
    tokenizer_revision: str | None = opt(None, "Branch, tag or commit of the tokenizer.")
    trust_remote_code: bool = opt(False, "Allow running Python code shipped with the model.", negatable=True)
    code_revision: str | None = opt(
        None, "Branch, tag or commit of the Python code shipped with the model, where it is not the model's own; needs "
              "--trust-remote-code.")
    dtype: str = opt(
        "auto", "Numeric type of activations and plain weights.",
        choices=("auto", "bfloat16", "float16", "float32", "float", "half"),
    )
    seed: int = opt(0, "Seed from which requests without their own seed draw one.")
    max_model_len: int | None = opt(
        None, "Longest prompt plus output, in tokens; unset: the model's own; auto or -1: what the KV cache holds.",
        kind="size", words={"auto": FIT_CONTEXT, "-1": FIT_CONTEXT})
    max_logprobs: int = opt(20, "Ceiling on logprobs and prompt_logprobs of a request; -1 = no ceiling.")
    logprobs_mode: str = opt(
        "raw_logprobs", "Returned values: before or after logit processing, as logits or log-probabilities.",
        choices=("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"),
    )
    hf_config_path: str | None = opt(None, "Load the model configuration from elsewhere.")
    hf_overrides: dict[str, Any] = opt({}, "Values that replace those of the model configuration.", kind="json")
    hf_token: str | None = opt(None, "Access token for hub files; without a value, the stored login.", bare=True)
    generation_config: str = opt("auto", "Source of sampling defaults: auto (the model's), none, or a folder.")
    override_generation_config: dict[str, Any] = opt({}, "Sampling defaults to set or replace.", kind="json")
    chat_template: str | None = opt(None, "Chat template (path or text) instead of the tokenizer's own.")
    quantization: str | None = opt(None, "Quantization method; unset trusts the checkpoint.", short=("q",))
    enforce_eager: bool = opt(False, "Never record the forward as one native program; run it op by op.", negatable=True)
    disable_sliding_window: bool = opt(False, "Cap the context at the window instead of using sliding windows.")

    def __post_init__(self) -> None:
        asked = self.max_model_len
        require(asked is None or asked == FIT_CONTEXT or asked >= 1, "max-model-len",
                f"must be at least 1, or auto, got {asked}")
        require(self.trust_remote_code or self.code_revision is None, "code-revision",
                "needs --trust-remote-code, without which no code shipped with a model is run")
        require(self.max_logprobs >= -1, "max-logprobs", f"must be -1 or at least 0, got {self.max_logprobs}")


_LOAD_FORMATS = {
    "npcache": "there is no copy of the weights in numpy's format; pt reads files of torch.save as they are",
    **dict.fromkeys(
        ("tensorizer", "sharded_state", "runai_streamer", "runai_streamer_sharded", "fastsafetensors"),
        "there is no such loader in this version; weights are mapped from safetensors or GGUF files"),
    "bitsandbytes": "bitsandbytes weights are not read in this version",
    "mistral": "consolidated files are not read in this version; use the repository's model*.safetensors",
}


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """How weights are found and read."""

    load_format: str = opt("auto", "On-disk format of the weights; dummy makes random ones.",
                           choices=("auto", "safetensors", "gguf", "pt", "dummy"), missing=_LOAD_FORMATS)
    safetensors_load_strategy: str = opt(
        "lazy", "Map weight files (lazy), or read them whole first (eager), as network file systems like it.",
        choices=("lazy", "eager"),
        missing={"torchao": "torchao's own weight files are not read in this version"})
    pt_load_map_location: str = opt(
        "cpu", "Where files of torch.save (.bin, .pt) restore tensors: a device, or a JSON object of devices by device "
               "they were saved from.", metavar="DEVICE|JSON")
    download_dir: str | None = opt(None, "Where downloaded files are kept.")
    ignore_patterns: list[str] = opt(["original/**/*"], "Hub files not to download.")
    use_tqdm_on_load: bool = opt(True, "Show progress while loading weights.")
    packed_cache: bool = opt(
        True, "Keep packed weights on disk (TURRET_CACHE_DIR, else the user's cache) for the next start.")

    def __post_init__(self) -> None:
        read = self.map_location
        require(isinstance(read, str) or all(isinstance(place, str) for place in read.values()), "pt-load-map-location",
                f"must be a device, or a JSON object of devices by device, got {self.pt_load_map_location!r}")

    @property
    def map_location(self) -> str | dict[str, str]:
        """`pt_load_map_location` as torch takes it."""
        text = self.pt_load_map_location
        if not text.lstrip().startswith("{"):
            return text
        try:
            found: dict[str, str] = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"--pt-load-map-location: {text!r} is no JSON: {error}", "pt-load-map-location") from None
        return found


_KV_TYPES = {"fp8_inc": "Gaudi's own format is not supported; use fp8",
             "fp8_ds_mla": "latent attention has no cache of its own in this version; use fp8"}


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The KV cache: how big, how cut, whether prefixes are shared."""

    block_size: int | None = opt(None, "Tokens per KV block; unset: the platform's choice (16 on CPUs).")
    gpu_memory_utilization: float = opt(
        0.9, "Share of device memory this instance may use; on CPUs of RAM, and 0.5 unless set.")
    kv_cache_memory_bytes: int | None = opt(None, "Exact KV cache size per device, in bytes.", kind="size")
    num_gpu_blocks_override: int | None = opt(None, "Fix the number of KV blocks instead of measuring memory.")
    enable_prefix_caching: bool = opt(True, "Reuse KV blocks of equal prompt prefixes.", negatable=True)
    prefix_caching_hash_algo: str = opt("sha256", "Hash that identifies reusable blocks.",
                                        choices=("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"))
    kv_cache_dtype: str = opt(
        "auto", "Storage type of the KV cache; auto follows the model; fp8 is fp8_e4m3; int8 has scales.",
        choices=("auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"), missing=_KV_TYPES)

    def __post_init__(self) -> None:
        require(self.block_size is None or 1 <= self.block_size <= 256, "block-size",
                 f"must be between 1 and 256 tokens, got {self.block_size}")
        require(0 < self.gpu_memory_utilization <= 1, "gpu-memory-utilization",
                 f"must be in (0, 1], got {self.gpu_memory_utilization}")
        for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"):
            value = getattr(self, name)
            require(value is None or value > 0, name.replace("_", "-"), f"must be positive, got {value}")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Who runs when, and how many tokens a step may hold."""

    max_num_batched_tokens: int | None = opt(
        None, "Token budget of one step; unset: the platform's choice.", kind="size")
    max_num_seqs: int | None = opt(None, "Most sequences in one step; unset: the platform's choice.")
    max_num_partial_prefills: int = opt(2, "Prompts that may be partly processed at the same time.")
    max_long_partial_prefills: int = opt(1, "Of those, how many may be long prompts.")
    long_prefill_token_threshold: int = opt(0, "Prompt length that counts as long; 0: 4% of max-model-len.")
    scheduling_policy: str = opt(
        "fcfs", "Order of waiting requests: fcfs, priority, fair (between tenants), or a policy plugin's name.")
    enable_chunked_prefill: bool = opt(True, "Split prompts across steps to fit the budget.", negatable=True)
    async_scheduling: bool = opt(True, "Plan the next step while the current one runs.", negatable=True)
    stream_interval: int = opt(1, "New tokens gathered before a stream chunk is sent.")

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_num_partial_prefills",
                     "max_long_partial_prefills", "stream_interval"):
            value = getattr(self, name)
            require(value is None or value >= 1, name.replace("_", "-"), f"must be at least 1, got {value}")
        require(self.long_prefill_token_threshold >= 0, "long-prefill-token-threshold", "must not be negative")
        require(self.max_long_partial_prefills <= self.max_num_partial_prefills, "max-long-partial-prefills",
                 "must not exceed --max-num-partial-prefills")


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How the model is spread over devices and processes."""

    tensor_parallel_size: int = opt(1, "Devices across which each layer is sharded.", short=("tp",))
    pipeline_parallel_size: int = opt(1, "Layer stages placed on different devices.", short=("pp",))
    data_parallel_size: int = opt(
        1, "Replicas of the model, each an engine on a device of its own; they share the requests.", short=("dp",))
    api_server_count: int = opt(1, "HTTP front-end processes that share the engines.", short=("asc",))
    distributed_executor_backend: str | None = opt(
        None, "Where workers run: uni (in the engine's process) or mp (a process each).", choices=("uni", "mp"),
        missing={
            "ray": "workers are not placed on Ray in this version; use mp on one machine",
            "external_launcher": "workers are not started from outside in this version; turret starts them itself"})
    disable_frontend_multiprocessing: bool = opt(False, "Run the engine inside the server's process.")

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            value = getattr(self, name)
            require(value == 1, name.replace("_", "-"),
                     f"is {value}, but one copy of the model runs on one device in this version: leave it at 1; "
                     "--data-parallel-size puts more copies on more devices")
        for name in ("data_parallel_size", "api_server_count"):
            value = getattr(self, name)
            require(value >= 1, name.replace("_", "-"), f"must be at least 1, got {value}")
            require(value == 1 or not self.disable_frontend_multiprocessing, name.replace("_", "-"),
                     f"{value} needs engines in processes of their own: leave --disable-frontend-multiprocessing out")


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Which hardware, and which kernels on it."""

    device: str = opt("auto", "Platform plugin to run on (cpu, ...); :INDEX names one device of it, :I,J the device "
                      "of each replica; auto takes the best that is present.")
    attention_backend: str | None = opt(None, "Attention plugin; unset: chosen automatically.")
    cpu_threads: int | None = opt(None, "Threads for compute on CPUs; unset: the cores this process may use.")

    def __post_init__(self) -> None:
        require(self.cpu_threads is None or self.cpu_threads >= 1, "cpu-threads",
                 f"must be at least 1, got {self.cpu_threads}")


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """Which plugins may be used and with which options."""

    plugins_allow: list[str] | None = opt(None, "Only these plugins (kind:name, or a distribution).")
    plugins_deny: list[str] = opt([], "Never these plugins (kind:name, or a distribution).")
    plugins_prefer: list[str] = opt([], "Plugins to take before others that can serve as well, best first (kind:name).")
    plugins_lock: str | None = opt(None, "Plan file that must be met exactly (turret plugins lock).")
    plugin_config: list[str] = opt([], "Plugin option as kind:name.key=value; repeatable.")
    plugin_pin: list[str] = opt([], "Distribution to take when two offer one plugin: kind:name=distribution.")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine and its workers get to know: everything but the server's section."""

    model: ModelConfig
    load: LoadConfig
    cache: CacheConfig
    scheduler: SchedulerConfig
    parallel: ParallelConfig
    device: DeviceConfig
    plugins: PluginConfig
    observability: ObservabilityConfig
    structured: StructuredConfig = dataclasses.field(default_factory=StructuredConfig)


@dataclass(frozen=True, slots=True)
class Config:
    """All sections. Build it with `from_options`."""

    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    load: LoadConfig = dataclasses.field(default_factory=LoadConfig)
    cache: CacheConfig = dataclasses.field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    parallel: ParallelConfig = dataclasses.field(default_factory=ParallelConfig)
    device: DeviceConfig = dataclasses.field(default_factory=DeviceConfig)
    plugins: PluginConfig = dataclasses.field(default_factory=PluginConfig)
    server: ServerConfig = dataclasses.field(default_factory=ServerConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)
    observability: ObservabilityConfig = dataclasses.field(default_factory=ObservabilityConfig)
    structured: StructuredConfig = dataclasses.field(default_factory=StructuredConfig)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Config:
        """A config from option values by field name (`max_model_len`); None leaves an option at its default.

        Raises `ConfigError` for unknown names and for values of another type.
        """
        table = {o.field: o for o in option_table(cls)}
        unknown = sorted(set(options) - set(table))
        if unknown:
            names = ", ".join(unknown)
            raise ConfigError(f"unknown option {names}; `turret serve --help` lists the options", unknown[0])
        by_section: dict[str, dict[str, Any]] = {}
        for name, value in options.items():
            if value is None:
                continue
            value = table[name].words.get(str(value), value)
            check_value(table[name], value)
            by_section.setdefault(table[name].section, {})[name] = value
        sections = {f.name: f.default_factory for f in dataclasses.fields(cls)}
        built = {name: make(**by_section.get(name, {})) for name, make in sections.items()}  # type: ignore[operator]
        return cls(**built)

    @property
    def engine(self) -> EngineConfig:
        """The sections an engine process needs."""
        return EngineConfig(self.model, self.load, self.cache, self.scheduler, self.parallel, self.device, self.plugins,
                            self.observability, self.structured)
