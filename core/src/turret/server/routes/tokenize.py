"""POST /tokenize and /detokenize, and GET /tokenizer_info where the operator publishes it.

Owns: the routes. Knows nothing of generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from turret.errors import RequestError
from turret.server.bodies import BodyReader
from turret.server.conversation import render
from turret.server.json_answer import as_json
from turret.server.logprobs import LogprobWriter
from turret.server.openapi import body_schema
from turret.server.prompts import INLINE_SIZE
from turret.server.state import ServerState
from turret.server.wire import DetokenizeRequest, TokenizeRequest

__all__ = ["tokenize_routes"]

T = TypeVar("T")


def tokenize_routes(state: ServerState) -> APIRouter:
    """The router."""
    router = APIRouter(tags=["tokenizer"])
    tokenize_reader, detokenize_reader = BodyReader(TokenizeRequest), BodyReader(DetokenizeRequest)

    async def tokenize(request: Request) -> Response:
        """Token ids of a text or a conversation."""
        body = await tokenize_reader.read(request)
        state.check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise RequestError("send either prompt or messages", "prompt")
        if body.prompt is not None:
            ids = await _in_thread(
                len(body.prompt), state.text.tokenizer.encode, body.prompt, body.add_special_tokens is not False
            )
        else:
            ids = (await render(state, body)).token_ids
        names = LogprobWriter(state.text, as_ids=False)
        strings = [names.name(i) for i in ids] if body.return_token_strs else None
        return as_json(
            {"count": len(ids), "max_model_len": state.parts.max_model_len, "tokens": ids, "token_strs": strings}
        )

    async def detokenize(request: Request) -> Response:
        """Text of token ids."""
        body = await detokenize_reader.read(request)
        state.check_model(body.model)
        bad = [i for i in body.tokens if not 0 <= i < state.parts.vocab_size]
        if bad:
            raise RequestError(f"tokens outside the vocabulary of {state.parts.vocab_size}: {bad[:10]}", "tokens")
        decode = state.text.tokenizer.decode
        return as_json({"prompt": await _in_thread(len(body.tokens), decode, body.tokens, False)})

    async def tokenizer_info() -> Response:
        """The tokenizer's settings and the chat template."""
        return as_json(state.text.describe())

    for path, endpoint, model in (
        ("/tokenize", tokenize, TokenizeRequest),
        ("/detokenize", detokenize, DetokenizeRequest),
    ):
        router.add_api_route(
            path, endpoint, methods=["POST"], response_class=Response, openapi_extra=body_schema(model)
        )
    if state.config.server.enable_tokenizer_info_endpoint:
        router.add_api_route("/tokenizer_info", tokenizer_info, methods=["GET"], response_class=Response)
    return router


async def _in_thread(size: int, function: Callable[..., T], *args: object) -> T:
    """What `function` makes of much input, made in a thread, so that it does not hold up everybody's tokens."""
    return await asyncio.to_thread(function, *args) if size > INLINE_SIZE else function(*args)
