"""POST /v1/completions.

Owns: the shape of completions, whole and streamed. Knows nothing of chat.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from fastapi import APIRouter
from msgspec import UNSET
from starlette.responses import Response

from turret.messages import TokenLogprobs
from turret.server.choices import ChoiceDelta
from turret.server.completion_calls import BegunCompletion, begin_completion
from turret.server.json_answer import as_json
from turret.server.logprobs import LogprobWriter, num_alternatives
from turret.server.results import ChoiceResult, collect
from turret.server.routes.generating import GeneratingRoute, generating_router
from turret.server.state import CallContext, ServerState
from turret.server.streaming import ChunkWriter, StreamHead, usage_member
from turret.server.usage import UsageCounter
from turret.server.wire import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest

__all__ = ["completions_routes"]

encode = msgspec.json.encode

ROUTE = GeneratingRoute("/v1/completions", "completions", "Continue one or several prompts.")


def completions_routes(state: ServerState) -> APIRouter:
    """The router."""
    return generating_router(state, ROUTE, (CompletionRequest, Completion), _start)


async def _start(state: ServerState, context: CallContext, body: CompletionRequest) -> _CompletionCall:
    """Check a body and make its call; nothing runs yet."""
    return _CompletionCall(state, body, await begin_completion(state, context, body))


class _CompletionCall:
    """One call: the run and how to write it down. `scoring` hides the one token that had to be generated."""

    def __init__(self, state: ServerState, body: CompletionRequest, begun: BegunCompletion) -> None:
        self._state = state
        self._body = body
        self._run = run = begun.run
        self._prompts = begun.prompts
        self._scoring = scoring = begun.scoring
        self._head = StreamHead(
            f"cmpl-{run.job.request_id}", "text_completion", int(time.time()), state.model_name
        )
        as_ids = body.return_tokens_as_token_ids
        self._logprobs = LogprobWriter(
            state.parts.text, state.config.server.return_tokens_as_token_ids if as_ids is None else as_ids
        )
        self._usage = UsageCounter(run, state.config.server.enable_prompt_tokens_details, scoring)
        self._top = num_alternatives(body, body.logprobs, state.parts.vocab_size)

    async def answer(self) -> Response:
        """The whole answer."""
        results = await collect(self._run)
        head = self._head
        return as_json(
            Completion(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[self._choice(result) for result in results],
                usage=self._usage.now(),
            )
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream: chunks of all choices, then usage when asked for."""
        options, server = self._body.stream_options, self._state.config.server
        include = server.enable_force_include_usage or bool(options and options.include_usage)
        continuous = bool(options and options.include_usage and options.continuous_usage_stats)
        writer = ChunkWriter(self._head)
        offsets: dict[int, int] = {}
        async with aclosing(self._run.deltas()) as deltas:
            async for delta in deltas:
                members = self._members(delta, offsets)
                if members is not None:
                    extra = usage_member(self._usage.now()) if continuous else b""
                    yield writer.choice(delta.index, members, extra)
        if include:
            yield writer.usage(self._usage.now())

    def _members(self, delta: ChoiceDelta, offsets: dict[int, int]) -> bytes | None:
        """JSON members of one chunk's choice; None when there is nothing to say yet."""
        first = delta.index not in offsets
        offset = offsets.setdefault(delta.index, 0)
        if self._scoring:
            delta = ChoiceDelta(
                delta.index, "", [], [], delta.prompt_logprobs, delta.finish_reason and "length", None
            )
        text = self._echo_text(delta.index) + delta.text if first else delta.text
        if not text and not delta.token_ids and delta.finish_reason is None and not first:
            return None
        logprobs = b"null"
        if self._body.logprobs is not None:
            written, offsets[delta.index] = self._written(delta, first, offset)
            logprobs = encode(written)
        members = b'"text":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b' % (
            encode(text), logprobs, encode(delta.finish_reason), encode(delta.stop_reason),
        )  # fmt: skip
        if self._body.return_token_ids:
            if first:
                members += b',"prompt_token_ids":' + encode(self._prompt_ids(delta.index))
            members += b',"token_ids":' + encode(delta.token_ids)
        return members

    def _choice(self, result: ChoiceResult) -> CompletionChoice:
        if self._scoring:
            result.text, result.token_ids, result.logprobs = "", [], []
            result.finish_reason, result.stop_reason = "length", None
        logprobs = None
        if self._body.logprobs is not None:
            delta = ChoiceDelta(
                result.index, result.text, result.token_ids, result.logprobs, result.prompt_logprobs
            )
            logprobs, _ = self._written(delta, True, 0)
        wants_prompt = self._body.prompt_logprobs is not None
        wants_ids = bool(self._body.return_token_ids)
        return CompletionChoice(
            index=result.index,
            text=self._echo_text(result.index) + result.text,
            logprobs=logprobs,
            finish_reason=result.finish_reason,
            stop_reason=result.stop_reason,
            prompt_logprobs=self._logprobs.prompt(result.prompt_logprobs or []) if wants_prompt else UNSET,
            token_ids=result.token_ids if wants_ids else UNSET,
            prompt_token_ids=self._prompt_ids(result.index) if wants_ids else UNSET,
        )

    def _written(self, delta: ChoiceDelta, first: bool, offset: int) -> tuple[CompletionLogprobs, int]:
        """Log-probabilities of a delta; with echo the first one begins with those of the prompt."""
        entries: list[TokenLogprobs | int] = []
        if first and self._body.echo:
            entries += [self._prompt_ids(delta.index)[0], *(delta.prompt_logprobs or ())]
        entries += delta.logprobs or ()
        return self._logprobs.completion(entries, self._top, offset)

    def _prompt_ids(self, choice_index: int) -> list[int]:
        return self._run.job.prompts[choice_index // self._run.job.params.n]

    def _echo_text(self, choice_index: int) -> str:
        if not self._body.echo:
            return ""
        prompt = self._prompts[choice_index // self._run.job.params.n]
        if prompt.text is not None:
            return prompt.text
        return self._state.text.tokenizer.decode(prompt.token_ids, self._run.job.params.skip_special_tokens)
