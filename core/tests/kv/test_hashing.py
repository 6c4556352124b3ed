"""Names of block contents: what must differ differs, and what must be reproducible is."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import cbor2
import pytest
import xxhash

from turret.errors import ConfigError
from turret.kv import HASH_ALGORITHMS, BlockHasher

TOKENS = [5, 0, 128_255, 7]


@pytest.mark.parametrize("algorithm", HASH_ALGORITHMS)
def test_a_name_depends_on_parent_tokens_and_extra(algorithm: str) -> None:
    hasher = BlockHasher(algorithm)
    plain = hasher.chain(hasher.root, TOKENS, b"")
    others = [
        hasher.chain(plain, TOKENS, b""),
        hasher.chain(hasher.root, TOKENS[::-1], b""),
        hasher.chain(hasher.root, TOKENS, hasher.extra(("lora", None))),
        hasher.chain(hasher.root, TOKENS, hasher.extra((None, "lora"))),
    ]
    assert hasher.chain(hasher.root, list(TOKENS), b"") == plain
    assert len({plain, *others}) == 5


@pytest.mark.parametrize(("algorithm", "digest"), [
    ("sha256_cbor", lambda data: hashlib.sha256(data).digest()),
    ("xxhash_cbor", lambda data: xxhash.xxh3_128_digest(data)),
])
def test_cbor_names_follow_their_definition_in_every_process(algorithm: str, digest: object) -> None:
    hasher = BlockHasher(algorithm)
    root = digest(b"turret prefix root 1")
    name = digest(cbor2.dumps([root, TOKENS, b""], canonical=True))
    assert hasher.chain(hasher.root, TOKENS, b"") == name
    program = (
        "from turret.kv import BlockHasher; "
        f"h = BlockHasher({algorithm!r}); print(h.chain(h.root, {TOKENS}, b'').hex())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == name.hex()


@pytest.mark.parametrize("algorithm", ["sha256", "xxhash"])
def test_plain_names_mean_nothing_elsewhere(algorithm: str) -> None:
    assert BlockHasher(algorithm).root != BlockHasher(algorithm).root


def test_unknown_algorithm_is_refused_by_option_name() -> None:
    with pytest.raises(ConfigError, match=r"--prefix-caching-hash-algo must be one of sha256, .*md5"):
        BlockHasher("md5")
