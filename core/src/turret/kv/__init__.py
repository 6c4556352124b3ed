"""The KV cache's blocks: who holds which, what lies in them, and which can be had for nothing.

Owns: block ids, reference counts, the free list, the prefix index and every request's block tables; it is the sole
writer of them. Knows nothing of queues, tensors or text: a request is an id and a list of token ids here.
"""

from turret.kv.hashing import HASH_ALGORITHMS, BlockHasher
from turret.kv.manager import KVCacheManager
from turret.kv.pool import NULL_BLOCK, BlockPool
from turret.kv.residency import BlockStays, Residency
from turret.kv.shapes import GroupShape, PoolShape, PrefixHit, PrefixStats

__all__ = [
    "HASH_ALGORITHMS",
    "NULL_BLOCK",
    "BlockHasher",
    "BlockPool",
    "BlockStays",
    "GroupShape",
    "KVCacheManager",
    "PoolShape",
    "PrefixHit",
    "PrefixStats",
    "Residency",
]
