"""The context that a cache allows."""

from __future__ import annotations

import pytest

from turret.compose.limits import check_pool, fitted_context
from turret.errors import ConfigError
from turret.kv import KVCacheManager
from turret.messages import KVCacheConfig, KVGroup, KVGroupKind, WorkerFacts


def pool(num_blocks: int, num_groups: int = 1) -> KVCacheManager:
    groups = [KVGroup(KVGroupKind.FULL, [layer]) for layer in range(num_groups)]
    return KVCacheManager(KVCacheConfig(num_blocks=num_blocks, block_size=16, groups=groups))


def test_the_fitted_context_is_what_one_request_can_have() -> None:
    kv = pool(11)
    facts = WorkerFacts(kv_bytes=0, page_bytes=1, block_size=16, groups=[], vocab_size=1, max_position=1,
                        weight_bytes=0, device="", attention_backend="")  # fmt: skip
    fits = fitted_context(kv, 4096)
    assert fits == 160 and fitted_context(kv, 100) == 100
    check_pool(kv, facts, fits)
    with pytest.raises(ConfigError, match="lower --max-model-len to 160"):
        check_pool(kv, facts, fits + 1)


def test_a_cache_that_holds_no_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-model-len auto: the KV cache holds 0 tokens"):
        fitted_context(pool(3, num_groups=3), 4096)
