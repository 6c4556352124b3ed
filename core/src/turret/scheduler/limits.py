"""Limits of a step and of a request, and the check whether a request can ever run.

Owns: `SchedulerLimits` and the sentences of a refusal. Knows nothing of queues.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.errors import ConfigError, RequestError
from turret.kv import KVCacheManager
from turret.messages import Request

__all__ = ["SchedulerLimits", "check_request", "num_stored_tokens", "output_limit"]

_LONG_SHARE = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What a step may hold. `async_depth` is how many steps may be planned and not yet committed; 1 is synchronous."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    max_num_partial_prefills: int = 1
    max_long_partial_prefills: int = 1
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    async_depth: int = 1

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len", "max_num_partial_prefills",
                     "max_long_partial_prefills", "async_depth"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must be at least 1, got {getattr(self, name)}", option)

    @property
    def long_prefill(self) -> int:
        """A prompt longer than this is long and gets at most this many tokens of a step; 0: no prompt is long.

        Where no threshold was named but several prompts may be under way, half a step is left for short ones at least.
        """
        if not self.enable_chunked_prefill:
            return 0
        if self.long_prefill_token_threshold == 0 and self.max_num_partial_prefills > 1:
            return max(1, min(int(self.max_model_len * _LONG_SHARE), self.max_num_batched_tokens // 2))
        return self.long_prefill_token_threshold

    @property
    def very_long(self) -> int:
        """A prompt longer than this is under way for several steps whatever else runs: nothing is planned behind a
        chunk of it, so that whoever comes meanwhile waits for that chunk only."""
        return min(self.long_prefill_token_threshold or self.max_num_batched_tokens, self.max_num_batched_tokens)

    @property
    def long_prefill_yields(self) -> bool:
        """Whether long prompts are held to `long_prefill` only while a short one waits: a threshold that nobody named
        should cost a lone long prompt nothing."""
        return self.long_prefill_token_threshold == 0


def output_limit(request: Request, limits: SchedulerLimits) -> int:
    """Tokens after which a request ends by length: its own `max_tokens`, or what the context leaves."""
    return min(request.max_tokens, limits.max_model_len - len(request.prompt_token_ids))


def num_stored_tokens(request: Request, limits: SchedulerLimits) -> int:
    """Most tokens of a request that ever lie in the KV cache: the last token of an answer is never computed."""
    return len(request.prompt_token_ids) + output_limit(request, limits) - 1


def check_request(request: Request, limits: SchedulerLimits, kv: KVCacheManager) -> None:
    """Raise `RequestError` with the true numbers when a request can never run to its end here."""
    prompt = len(request.prompt_token_ids)
    if prompt == 0:
        raise RequestError("the prompt is empty: at least one token is needed to generate from", "prompt")
    if request.max_tokens < 1:
        raise RequestError(f"max_tokens must be at least 1, got {request.max_tokens}", "max_tokens")
    if prompt >= limits.max_model_len:
        raise RequestError(
            f"the prompt has {prompt} tokens, but the context holds {limits.max_model_len}, at least one of them "
            "output; shorten the prompt",
            "prompt",
        )
    if not limits.enable_chunked_prefill and prompt > limits.max_num_batched_tokens:
        raise RequestError(
            f"the prompt has {prompt} tokens, but a step holds {limits.max_num_batched_tokens} "
            "(--max-num-batched-tokens) and chunked prefill is off; shorten the prompt, or start the server with "
            "a larger budget or with --enable-chunked-prefill",
            "prompt",
        )
    stored = num_stored_tokens(request, limits)
    needed = kv.blocks_needed(stored)
    if not limits.enable_chunked_prefill:
        needed = max(needed, kv.blocks_needed(prompt, prompt))
    if needed > kv.num_usable_blocks:
        raise RequestError(
            f"the request needs {needed} KV blocks of {kv.block_size} tokens for {prompt} prompt tokens and up to "
            f"{stored + 1 - prompt} output tokens, but the cache has {kv.num_usable_blocks}; ask for less, or start "
            "the server with a larger KV cache",
            "max_tokens",
        )
