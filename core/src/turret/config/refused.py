"""Options that users of vLLM know and that this version does not have, each with the sentence that says so.

Owns: the table. Knows nothing of parsing. No option is accepted and ignored: a name is either in a section and works,
or refused here, or unknown. A value that asks for nothing (`--nnodes 1`) is let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Refusal", "refusal", "refused_names"]

_FEATURES = {
    "tool-server": ("tools are run by the client in this version, not by the server", "tool-server"),
    "lora": (
        "adapters are not in this version; merge the adapter into the weights and serve those",
        "lora-modules enable-lora max-loras max-lora-rank lora-dtype max-cpu-loras fully-sharded-loras "
        "default-mm-loras",
    ),
    "import-paths": (
        "code is not loaded from import paths named on the command line; write a plugin instead (turret plugins new)",
        "worker-cls worker-extension-cls scheduler-cls logits-processors io-processor-plugin",
    ),
    "data-parallel": (
        "replicas run on this machine behind this server, and --data-parallel-size says how many; for several machines "
        "start a server on each, behind a load balancer",
        "headless data-parallel-rank data-parallel-start-rank "
        "data-parallel-size-local data-parallel-address data-parallel-rpc-port data-parallel-backend "
        "data-parallel-hybrid-lb data-parallel-external-lb disable-nccl-for-dp-synchronization "
        "dpn dpr dpl dpa dpp dpb dph dpe",
    ),
    "engine-logging": ("the statistics line is that of all engines together anyway", "aggregate-engine-logging"),
    "multi-node": ("one server runs on one machine in this version", "master-addr master-port nnodes node-rank n r"),
    "tensor-parallel": (
        "layers are not sharded over devices in this version",
        "max-parallel-loading-workers disable-custom-all-reduce ray-workers-use-nsight",
    ),
    "context-parallel": (
        "one context is not split over devices in this version",
        "decode-context-parallel-size dcp dcp-kv-cache-interleave-size cp-kv-cache-interleave-size "
        "prefill-context-parallel-size pcp",
    ),
    "expert-parallel": (
        "experts are not spread over devices in this version",
        "enable-expert-parallel ep all2all-backend enable-eplb eplb-config expert-placement-strategy",
    ),
    "dual-batch": (
        "steps are not split into overlapping halves in this version",
        "enable-dbo dbo-decode-token-threshold dbo-prefill-token-threshold ubatch-size",
    ),
    "multimodal": (
        "this version serves text only; images, audio and video are not read",
        "allowed-local-media-path allowed-media-domains limit-mm-per-prompt enable-mm-embeds media-io-kwargs "
        "mm-processor-kwargs mm-processor-cache-gb mm-processor-cache-type mm-shm-cache-max-object-size-mb "
        "mm-encoder-tp-mode mm-encoder-attn-backend interleave-mm-strings skip-mm-profiling video-pruning-rate "
        "disable-chunked-mm-input",
    ),
    "pooling": ("this version generates text only; pooling models are not served", "runner convert pooler-config"),
    "prompt-embeds": ("prompts are text or token ids in this version, not embeddings", "enable-prompt-embeds"),
    "sleep": ("memory cannot be given back by putting the engine to sleep in this version", "enable-sleep-mode"),
    "model-code": (
        "models run on turret's own architectures (plugins); `turret plugins list --kind model` shows them",
        "model-impl",
    ),
    "attention": (
        "attention is chosen with --attention-backend and tuned with --plugin-config attention:NAME.key=value",
        "override-attention-dtype attention-config ac",
    ),
    "loaders": (
        "weights are mapped from their files; no loader takes further settings",
        "model-loader-extra-config",
    ),
    "offload": (
        "weights and KV blocks stay on their device in this version; use a smaller model or a quantized one",
        "cpu-offload-gb kv-offloading-size kv-offloading-backend swap-space",
    ),
    "kv-quantization": (
        "scales of the KV cache are not calculated: fp8 has a scale of 1, int8 one for each token and head",
        "calculate-kv-scales",
    ),
    "mamba": (
        "state-space models are not in this version",
        "mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size",
    ),
    "spec-decode": ("speculative decoding is not in this version", "speculative-config"),
    "kv-transfer": (
        "KV blocks do not leave the engine in this version",
        "kv-transfer-config kv-events-config ec-transfer-config",
    ),
    "graphs": (
        "there are no CUDA graphs to tune in this version; --enforce-eager switches recording off",
        "cudagraph-capture-sizes max-cudagraph-capture-size cudagraph-metrics",
    ),
    "compile": (
        "nothing is compiled at start, so there is nothing to tune",
        "compilation-config cc optimization-level O0 O1 O2 O3",
    ),
    "tracing": (
        "profiles and traces below the level of a request are not in this version; --otlp-traces-endpoint sends a span "
        "per call",
        "collect-detailed-traces enable-layerwise-nvtx-tracing profiler-config",
    ),
    "hidden-metrics": (
        "no metric is hidden; --metrics-compat vllm gives them vLLM's names too",
        "show-hidden-metrics-for-version",
    ),
    "hybrid-kv": (
        "layers with sliding windows always have a cache group of their own; --disable-sliding-window caps the context",
        "disable-hybrid-kv-cache-manager",
    ),
    "pacing": (
        "prompt steps are not spaced out; --max-num-batched-tokens and --long-prefill-token-threshold bound them",
        "prefill-schedule-interval",
    ),
    "platform-config": ("platforms take their options as --plugin-config platform:NAME.key=value", "additional-config"),
    "request-log": ("requests are not logged unless --enable-log-requests is given", "disable-log-requests"),
    "vllm-heuristics": (
        "it tunes a heuristic that turret does not have",
        "disable-cascade-attn kv-sharing-fast-prefill logits-processor-pattern",
    ),
    "old-engine": (
        "it belonged to an engine that is gone; the tokenizer runs in the server's process",
        "tokenizer-pool-size tokenizer-pool-type huggingface-tokenizer-kwargs",
    ),
    "context-length": ("the context length is set with --max-model-len", "max-model-len-per-seq"),
    "block-counts": (
        "the number of blocks follows from memory; set it with --kv-cache-memory-bytes or --num-gpu-blocks-override",
        "num-gpu-blocks num-cpu-blocks",
    ),
}
"""By feature: the sentence, and the options it refuses."""

_NEUTRAL: dict[str, tuple[str, ...]] = {
    "runner": ("auto", "generate"),
    "convert": ("auto", "none"),
    "model-impl": ("auto",),
    "data-parallel-backend": ("mp",),
    "dpb": ("mp",),
    "aggregate-engine-logging": ("True", "true"),
    "nnodes": ("1",),
    "n": ("1",),
    "node-rank": ("0",),
    "r": ("0",),
    "decode-context-parallel-size": ("1",),
    "dcp": ("1",),
    "prefill-context-parallel-size": ("1",),
    "pcp": ("1",),
    "cpu-offload-gb": ("0", "0.0"),
    "swap-space": ("0", "0.0"),
    "prefill-schedule-interval": ("0", "1"),
    "reasoning-parser": ("",),
    "allowed-local-media-path": ("",),
}
"""Values that ask for what happens anyway."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an option is refused; `neutral` values ask for nothing and pass."""

    option: str
    sentence: str
    neutral: tuple[str, ...] = ()

    def asks_for_nothing(self, value: Any) -> bool:
        """Whether this value (null in a file, a switch that is off, a neutral one) wants what happens anyway."""
        return value is None or str(value).lower() == "false" or str(value) in self.neutral


def refusal(name: str) -> Refusal | None:
    """The refusal of an option by its name with dashes; None when it is not refused."""
    for sentence, names in _FEATURES.values():
        if name in names.split():
            return Refusal(name, sentence, _NEUTRAL.get(name, ()))
    return None


def refused_names() -> list[str]:
    """Every refused option."""
    return [name for _, names in _FEATURES.values() for name in names.split()]
