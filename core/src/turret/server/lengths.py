"""How many tokens may follow a prompt.

Owns: the limit rules and their messages with true numbers. Knows nothing of text.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.config import ModelConfig
from turret.errors import RequestError
from turret.server.parts import ServerParts

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a request's tokens.

    `fallback` is used when the request names no limit; `cap` bounds every request (`max_new_tokens` that the operator
    set). `kv_capacity` is the number of tokens the KV cache holds (0 = unknown).
    """

    max_model_len: int
    kv_capacity: int = 0
    fallback: int | None = None
    cap: int | None = None

    @classmethod
    def of(cls, parts: ServerParts, model: ModelConfig) -> Limits:
        """Limits of a served model.

        `max_new_tokens` caps every request only when the operator chose it (a folder or an override); out of the
        model's own generation config it is but a default.
        """
        tokens = parts.generation_defaults.get("max_new_tokens")
        chosen = model.generation_config != "auto" or "max_new_tokens" in model.override_generation_config
        return cls(parts.max_model_len, parts.kv_capacity, None if chosen else tokens, tokens if chosen else None)

    def resolve(self, prompt_len: int, wanted: int | None, field: str = "max_tokens") -> int:
        """Tokens to generate at most; raises `RequestError` when prompt and limit cannot fit."""
        if prompt_len == 0:
            raise RequestError("the prompt is empty: at least one token is needed", "prompt")
        space = self.max_model_len - prompt_len
        if space < 1:
            raise RequestError(
                f"the prompt has {prompt_len} tokens, but the context of this model is {self.max_model_len} tokens, "
                "prompt and output together; shorten the prompt",
                "prompt",
            )
        if wanted is not None and wanted > space:
            raise RequestError(
                f"{field} is {wanted}, but the prompt of {prompt_len} tokens leaves {space} of the model's "
                f"{self.max_model_len}; ask for at most {space} or shorten the prompt",
                field,
            )
        self._check_capacity(prompt_len, wanted or 1, field)
        if wanted is None:
            room = min(space, self.kv_capacity - prompt_len) if self.kv_capacity else space
            wanted = min(room, self.fallback or room)
        return min(wanted, self.cap or wanted)

    def _check_capacity(self, prompt_len: int, output_len: int, field: str) -> None:
        if self.kv_capacity and prompt_len + output_len > self.kv_capacity:
            raise RequestError(
                f"prompt ({prompt_len} tokens) and {field} ({output_len}) need {prompt_len + output_len} tokens of KV "
                f"cache, but this server has {self.kv_capacity}; ask for less or give it more --kv-cache-memory-bytes",
                field,
            )
