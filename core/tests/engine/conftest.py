"""Requests and engines around a hash: real scheduler, real KV blocks, a worker that costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turret.engine import EngineCore
from turret.messages import Request
from turret.sampling import SamplingParams
from turret.testing.null_engine import NullConfig, build_null_engine

MakeRequest = Callable[..., Request]
MakeCore = Callable[..., EngineCore]


@pytest.fixture
def make_request() -> MakeRequest:
    """`make_request(id, prompt, max_tokens)`."""

    def make(request_id: str, prompt: list[int] | None = None, max_tokens: int = 8, **fields: Any) -> Request:
        return Request(
            request_id=request_id, prompt_token_ids=prompt or [1, 2, 3], sampling=SamplingParams(),
            max_tokens=max_tokens, seed=0, **fields,
        )

    return make


@pytest.fixture
def make_core() -> MakeCore:
    """`make_core(**NullConfig fields)`."""

    def make(**fields: Any) -> EngineCore:
        config = NullConfig(**fields)
        return build_null_engine(msgspec.json.encode(config).decode(), lambda stage, fraction: None)

    return make
