"""POST /inference/v1/generate: token ids in, token ids out; and aborting calls by their id.

Owns: the shape of answers in token ids. Knows nothing of text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from turret.errors import RequestError
from turret.messages import TokenLogprobs
from turret.server.bodies import BodyReader
from turret.server.choices import ChoiceDelta
from turret.server.json_answer import as_json
from turret.server.logprobs import LogprobWriter, num_alternatives
from turret.server.openapi import body_schema
from turret.server.results import Run, collect
from turret.server.routes.generating import GeneratingRoute, generating_router
from turret.server.sampling_fields import check_call, check_no_budget, check_supported, sampling_params
from turret.server.state import CallContext, ServerState
from turret.server.streaming import ChunkWriter, TokenStreamHead, usage_member
from turret.server.structure import grammar_of
from turret.server.usage import UsageCounter
from turret.server.wire import AbortRequest, ChatLogprobs, GenerateRequest, TokenAnswer, TokenChoice

__all__ = ["tokens_routes"]

encode = msgspec.json.encode

ROUTE = GeneratingRoute("/inference/v1/generate", "token ids", "Continue token ids with token ids.")


def tokens_routes(state: ServerState) -> APIRouter:
    """The router: generate, and abort under both its paths."""
    router = generating_router(state, ROUTE, (GenerateRequest, TokenAnswer), _start)
    reader = BodyReader(AbortRequest)

    async def abort(request: Request) -> Response:
        """End the caller's open calls of these ids; ids that are not open are no fault: they may just have ended."""
        body = await reader.read(request)
        await state.parts.peers.ask("abort", [state.tenant(request), body.request_ids])
        return Response()

    for path in ("/abort_requests", "/inference/v1/abort_requests"):
        router.add_api_route(
            path, abort, methods=["POST"], response_class=Response, openapi_extra=body_schema(AbortRequest)
        )
    return router


async def _start(state: ServerState, context: CallContext, body: GenerateRequest) -> _TokenCall:
    """Check a body and make its call; nothing runs yet."""
    check_call(body)
    if body.features:
        raise RequestError("features: this model takes text only", "features")
    if body.output_mode == "text":
        raise RequestError("output_mode: this route answers in token ids; /v1/completions in text", "output_mode")
    fields = msgspec.structs.replace(body.sampling_params, cache_salt=body.cache_salt, stream=body.stream)
    check_supported(fields)
    check_no_budget(fields)
    if fields.extra_args:
        raise RequestError("extra_args: no plugin of this server reads extension arguments", "extra_args")
    params = sampling_params(fields, {}, logprobs=fields.logprobs, max_tokens=fields.max_tokens)
    if not params.stop_strings:
        params = params.replace(detokenize=False)
    ids = state.text.encode_prompt(body.token_ids, param="token_ids")
    grammar = await grammar_of(state, params, fields)
    return _TokenCall(state, body, state.generator.start(state.job(context, [ids], params, fields, grammar)))


class _TokenCall:
    """One call: the run and how to write it down."""

    def __init__(self, state: ServerState, body: GenerateRequest, run: Run) -> None:
        self._body = body
        self._run = run
        self._logprobs = LogprobWriter(state.text, as_ids=True)
        self._usage = UsageCounter(run, state.config.server.enable_prompt_tokens_details)
        sampling = body.sampling_params
        self._top = num_alternatives(sampling, sampling.logprobs, state.parts.vocab_size)
        self._id = f"generate-tokens-{run.job.request_id}"

    async def answer(self) -> Response:
        """The whole answer."""
        results = await collect(self._run)
        asked = self._body.sampling_params.prompt_logprobs is not None
        prompt = self._logprobs.prompt(results[0].prompt_logprobs or []) if asked else None
        choices = [
            TokenChoice(
                index=result.index, token_ids=result.token_ids, logprobs=self._written(result.logprobs),
                finish_reason=result.finish_reason, stop_reason=result.stop_reason,
            )
            for result in results
        ]  # fmt: skip
        return as_json(
            TokenAnswer(request_id=self._id, choices=choices, prompt_logprobs=prompt, usage=self._usage.now())
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream: chunks of all choices, then usage when asked for."""
        options = self._body.stream_options
        include = bool(options and options.include_usage)
        continuous = bool(include and options and options.continuous_usage_stats)
        writer = ChunkWriter(TokenStreamHead(self._id))
        async with aclosing(self._run.deltas()) as deltas:
            async for delta in deltas:
                extra = usage_member(self._usage.now()) if continuous else b""
                yield writer.choice(delta.index, self._members(delta), extra)
        if include:
            yield writer.usage(self._usage.now())

    def _members(self, delta: ChoiceDelta) -> bytes:
        return b'"token_ids":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b' % (
            encode(delta.token_ids), encode(self._written(delta.logprobs or [])), encode(delta.finish_reason),
            encode(delta.stop_reason),
        )  # fmt: skip

    def _written(self, entries: list[TokenLogprobs]) -> ChatLogprobs | None:
        if self._body.sampling_params.logprobs is None:
            return None
        return ChatLogprobs(self._logprobs.chat(entries, self._top))
