"""Workers that a platform brings instead of running core's.

Owns: the order such a platform is given. Knows nothing of what its worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from turret.compose.decide import Decision
from turret.compose.find import tokenizer_options
from turret.compose.spec import EngineSpec
from turret.contracts import Worker, WorkerOrder, WorkerPlatform
from turret.errors import LoadError
from turret.text import Tokenizer, load_tokenizer

__all__ = ["own_worker"]


def own_worker(spec: EngineSpec, decision: Decision, max_model_len: int) -> Worker | None:
    """The platform's worker for this model, if it brings one."""
    platform, scheduler = decision.platform, decision.config.scheduler
    if not isinstance(platform, WorkerPlatform):
        return None
    assert decision.config.cache.block_size is not None and scheduler.max_num_seqs is not None
    tokenizer = _tokenizer(spec)

    def encode(text: str) -> list[int]:
        return tokenizer().encode(text, add_special_tokens=False)

    def decode(ids: Sequence[int]) -> str:
        return tokenizer().decode(ids, skip_special_tokens=False)

    vocab_size = decision.model_config.get("vocab_size")
    if not isinstance(vocab_size, int):
        raise LoadError(f"{spec.checkpoint.reference}: its config names no vocab_size")
    order = WorkerOrder(
        device_index=decision.device_index, vocab_size=vocab_size, max_model_len=max_model_len,
        block_size=decision.config.cache.block_size, max_num_seqs=scheduler.max_num_seqs, encode=encode, decode=decode,
    )  # fmt: skip
    return platform.worker(order)


def _tokenizer(spec: EngineSpec) -> Callable[[], Tokenizer]:
    return cache(lambda: load_tokenizer(spec.checkpoint, tokenizer_options(spec.config)))
