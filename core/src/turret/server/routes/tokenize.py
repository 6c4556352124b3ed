"""POST /tokenize and /detokenize.

Owns: the two routes. Knows nothing of generation.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from turret.errors import RequestError
from turret.server.bodies import BodyReader
from turret.server.conversation import render
from turret.server.json_answer import as_json
from turret.server.logprobs import LogprobWriter
from turret.server.openapi import body_schema
from turret.server.state import ServerState
from turret.server.wire import DetokenizeRequest, TokenizeRequest

__all__ = ["tokenize_routes"]


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
            ids = state.text.tokenizer.encode(body.prompt, body.add_special_tokens is not False)
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
        return as_json({"prompt": state.text.tokenizer.decode(body.tokens, skip_special_tokens=False)})

    for path, endpoint, model in (
        ("/tokenize", tokenize, TokenizeRequest),
        ("/detokenize", detokenize, DetokenizeRequest),
    ):
        router.add_api_route(
            path, endpoint, methods=["POST"], response_class=Response, openapi_extra=body_schema(model)
        )
    return router
