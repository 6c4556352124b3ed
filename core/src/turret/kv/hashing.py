"""Names for the contents of full blocks: a hash chain H(parent, tokens, extra).

Owns: the four algorithms and how their input is encoded. Knows nothing of blocks or of what `extra` means (adapter,
cache salt, digests of media: whatever changes a block's contents besides the tokens before its end).

`sha256` and `xxhash` hash packed machine integers and start from a root drawn at random, so that names mean nothing
outside this process and nobody can prepare colliding prompts for the faster, non-cryptographic one. `sha256_cbor` and
`xxhash_cbor` hash canonical CBOR (RFC 8949) of [parent, tokens, extra] from a fixed root: the same prefix has the same
name in every process and every language.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Sequence

import cbor2
import xxhash

from turret.errors import ConfigError

__all__ = ["HASH_ALGORITHMS", "BlockHasher"]

HASH_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
_CBOR_ROOT = b"turret prefix root 1"


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xxh3_128(data: bytes) -> bytes:
    return bytes(xxhash.xxh3_128_digest(data))


class BlockHasher:
    """One of `HASH_ALGORITHMS` with its root; raises `ConfigError` for another name."""

    def __init__(self, algorithm: str) -> None:
        if algorithm not in HASH_ALGORITHMS:
            raise ConfigError(
                f"--prefix-caching-hash-algo must be one of {', '.join(HASH_ALGORITHMS)}, got {algorithm!r}",
                "prefix-caching-hash-algo",
            )
        self._digest: Callable[[bytes], bytes] = _sha256 if algorithm.startswith("sha256") else _xxh3_128
        self._canonical = algorithm.endswith("_cbor")
        # The root has the length of a digest, so that packed inputs can be cut in one way only.
        self.root = self._digest(_CBOR_ROOT if self._canonical else os.urandom(32))

    def extra(self, parts: Sequence[str | None]) -> bytes:
        """Encode what distinguishes equal tokens; empty when nothing does, so that the common case costs nothing."""
        return cbor2.dumps(list(parts), canonical=True) if any(p is not None for p in parts) else b""

    def chain(self, parent: bytes, tokens: list[int], extra: bytes) -> bytes:
        """Name of the block that holds `tokens` (a full block) after the block named `parent`."""
        if self._canonical:
            return self._digest(cbor2.dumps([parent, tokens, extra], canonical=True))
        return self._digest(parent + array("q", tokens).tobytes() + extra)
