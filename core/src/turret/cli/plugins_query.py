"""The questions that a model puts to plugins, for `turret plugins explain KIND --model M`.

Owns the way from a model reference to a query and a key. Knows nothing of the answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from turret.checkpoint import CheckpointKind, normalized_config, resolve
from turret.compose.parser_choice import template_query, template_text
from turret.compose.placement import choose_device
from turret.config import Config
from turret.contracts import AttentionQuery
from turret.errors import LoadError
from turret.plugins import PluginHost

__all__ = ["PARSERS", "model_query"]

BLOCK_SIZE = 16
PARSERS = ("tool_parser", "reasoning_parser")
"""The kinds that `auto` chooses by the model's chat template."""


def model_query(kind: str, model: str | None, host: PluginHost) -> tuple[object, str | None]:
    """(query, key) of a model for candidates of `kind`; (None, None) without a model, or where models do not matter.

    Policies answer to no model: the key is the one that serves unless an option names another.
    """
    if kind == "policy":
        return None, Config().scheduler.scheduling_policy
    if model is None or kind not in ("model", "quant", "attention", *PARSERS):
        return None, None
    checkpoint = resolve(model)
    if kind in PARSERS:
        return template_query(template_text(checkpoint, None)), None
    config = normalized_config(checkpoint)
    if kind == "quant":
        stored = config.get("quantization_config") or {}
        method = "gguf" if checkpoint.kind is CheckpointKind.GGUF else str(stored.get("quant_method") or "").lower()
        if not method:
            raise LoadError(f"{model} is not quantized: no quantization plugin is needed")
        return {"quant_method": method}, method
    architectures = config.get("architectures") or []
    if not architectures:
        raise LoadError(f"{model}: its config names no architectures")
    if kind == "model":
        return {"architecture": architectures[0]}, architectures[0]
    return _attention_query(host, architectures[0], config), None


def _attention_query(host: PluginHost, architecture: str, config: Mapping[str, Any]) -> object:
    """The query for the model's first kind of attention layer on the best device here, in the checkpoint's dtype."""
    platform, found = choose_device("auto", host)
    chosen = host.select("model", {"architecture": architecture}, key=architecture)
    needs = host.load(chosen.require()).attention_needs(config)
    dtype = str(config.get("dtype") or "float32").removeprefix("torch.")
    device = platform.torch_device(found.index)
    need = dataclasses.asdict(needs[0])
    return AttentionQuery(device=device, dtype=dtype, kv_dtype=dtype, block_size=BLOCK_SIZE, **need)
