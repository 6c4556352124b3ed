"""Facts read off a Hugging Face shaped config: context length and end-of-sequence ids.

Owns: which keys mean these, across families. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["eos_token_ids", "max_context", "text_config"]

_CONTEXT_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length",
    "n_ctx",
)  # fmt: skip


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model: `text_config` of a multimodal config, else the whole."""
    for key in ("text_config", "llm_config", "language_config"):
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return inner
    return config


def max_context(config: Mapping[str, Any]) -> int | None:
    """Longest context in tokens, rotary scaling included; None when the config does not say.

    Yarn (and older linear and dynamic scaling) multiply a stored original length; longrope and llama3 configs already
    state the extended one, and so do yarn configs whose `max_position_embeddings` is beyond the original.
    """
    config = text_config(config)
    found = [config[key] for key in _CONTEXT_KEYS if isinstance(config.get(key), int)]
    if not found:
        return None
    length = int(min(found))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, Mapping) else None
    if kind in ("yarn", "linear", "dynamic") and "gemma" not in str(config.get("model_type", "")):
        original = rope.get("original_max_position_embeddings") or length
        length = max(length, int(original * float(rope.get("factor") or 1.0)))
    return length


def eos_token_ids(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    """Every end-of-sequence id that the configs name, in order, without repeats."""
    ids: list[int] = []
    for config in configs:
        for source in (config, text_config(config)):
            ids.extend(_as_ids(source.get("eos_token_id")))
    return tuple(dict.fromkeys(ids))


def _as_ids(value: object) -> Iterable[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [v for v in value if isinstance(v, int) and not isinstance(v, bool)]
    return ()
