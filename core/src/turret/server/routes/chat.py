"""POST /v1/chat/completions.

Owns: the shape of chat answers, whole and streamed. Knows nothing of completions.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter
from msgspec import UNSET
from starlette.responses import Response

from turret.contracts import ReasoningDelta
from turret.server.answer_reader import delta_member
from turret.server.chat_calls import BegunChat, begin_chat
from turret.server.choices import ChoiceDelta
from turret.server.conversation import answer_role, echoed_text
from turret.server.json_answer import as_json
from turret.server.logprobs import LogprobWriter, num_alternatives
from turret.server.results import ChoiceResult, collect
from turret.server.routes.generating import GeneratingRoute, generating_router
from turret.server.state import CallContext, ServerState
from turret.server.streaming import ChunkWriter, StreamHead, usage_member
from turret.server.usage import UsageCounter
from turret.server.wire import ChatChoice, ChatCompletion, ChatLogprobs, ChatMessage, ChatRequest

__all__ = ["chat_routes"]

encode = msgspec.json.encode

OPEN_END = b',"logprobs":null,"finish_reason":null'
"""End of the choice of a chunk that carries text only: nearly all of them."""


ROUTE = GeneratingRoute("/v1/chat/completions", "chat completions", "Answer a conversation.")


def chat_routes(state: ServerState) -> APIRouter:
    """The router."""
    return generating_router(state, ROUTE, (ChatRequest, ChatCompletion), _start)


async def _start(state: ServerState, context: CallContext, body: ChatRequest) -> _ChatCall:
    """Check a body and make its call; nothing runs yet."""
    return _ChatCall(state, body, await begin_chat(state, context, body))


class _ChatCall:
    """One call: the run and how to write it down."""

    def __init__(self, state: ServerState, body: ChatRequest, begun: BegunChat) -> None:
        run = begun.run
        self._state = state
        self._body = body
        self._run = run
        self._readers = begun.readers
        self._prompt_text = begun.prompt.text if body.return_prompt_text else None
        self._role = answer_role(state, body)
        self._echo = echoed_text(body, self._role)
        self._head = StreamHead(
            f"chatcmpl-{run.job.request_id}", "chat.completion.chunk", int(time.time()), state.model_name
        )
        as_ids = body.return_tokens_as_token_ids
        self._logprobs = LogprobWriter(
            state.parts.text, state.config.server.return_tokens_as_token_ids if as_ids is None else as_ids
        )
        thought = None if state.parts.parsers.reasoning is None else begun.num_reasoning_tokens
        self._usage = UsageCounter(run, state.config.server.enable_prompt_tokens_details, num_reasoning=thought)
        self._wants_ids = bool(body.return_token_ids)
        self._top = num_alternatives(body, body.top_logprobs, state.parts.vocab_size)

    async def answer(self) -> Response:
        """The whole answer."""
        results = await collect(self._run, None if self._readers is None else self._read)
        head, wants_prompt = self._head, self._body.prompt_logprobs is not None
        return as_json(
            ChatCompletion(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[self._choice(result) for result in results],
                usage=self._usage.now(),
                prompt_logprobs=self._logprobs.prompt(results[0].prompt_logprobs or []) if wants_prompt else UNSET,
                prompt_token_ids=self._run.job.prompts[0] if self._wants_ids else UNSET,
                prompt_text=UNSET if self._prompt_text is None else self._prompt_text,
            )
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream: per choice a role chunk, deltas and a finish chunk; then usage when asked for."""
        options, server = self._body.stream_options, self._state.config.server
        include = server.enable_force_include_usage or bool(options and options.include_usage)
        continuous = bool(options and options.include_usage and options.continuous_usage_stats)
        writer = ChunkWriter(self._head)
        begun: set[int] = set()
        async with aclosing(self._run.deltas()) as deltas:
            async for delta in deltas:
                extra = usage_member(self._usage.now()) if continuous else b""
                if delta.index not in begun:
                    begun.add(delta.index)
                    yield self._opening(writer, delta.index, extra)
                *earlier, last = self._said(delta)
                for said in earlier:
                    yield writer.choice(delta.index, b'"delta":' + said + OPEN_END, extra)
                if (members := self._members(delta, last)) is not None:
                    yield writer.choice(delta.index, members, extra)
        if include:
            yield writer.usage(self._usage.now())

    def _opening(self, writer: ChunkWriter, index: int, extra: bytes) -> bytes:
        """The role chunk, and the echoed text after it."""
        if self._wants_ids:
            extra = b',"prompt_token_ids":' + encode(self._run.job.prompts[0]) + extra
        if self._prompt_text is not None:
            extra = b',"prompt_text":' + encode(self._prompt_text) + extra
        role = b'"delta":{"role":%b,"content":""}' % encode(self._role)
        chunk = writer.choice(index, role + OPEN_END, extra)
        if self._echo:
            chunk += writer.choice(index, b'"delta":{"content":%b}' % encode(self._echo) + OPEN_END)
        return chunk

    def _read(self, delta: ChoiceDelta) -> list[dict[str, Any]]:
        """What the parsers make of a delta, as deltas of chunks."""
        assert self._readers is not None
        events = self._readers[delta.index].read(delta.text, delta.token_ids, delta.finish_reason is not None)
        if self._body.include_reasoning is False:
            events = [event for event in events if not isinstance(event, ReasoningDelta)]
        return [member for event in events if (member := delta_member(event)) is not None]

    def _said(self, delta: ChoiceDelta) -> list[bytes]:
        """What a delta says, as one JSON object for each chunk; the last may be empty, which says nothing."""
        if self._readers is None:
            return [b'{"content":%b}' % encode(delta.text) if delta.text else b""]
        return [encode(member) for member in self._read(delta)] or [b""]

    def _members(self, delta: ChoiceDelta, said: bytes) -> bytes | None:
        """JSON members of one chunk's choice, which `said` something or nothing; None when there is nothing to tell."""
        wants_logprobs = self._body.logprobs and delta.logprobs
        if delta.finish_reason is None and not wants_logprobs and not self._wants_ids:
            return b'"delta":' + said + OPEN_END if said else None
        logprobs = encode(self._written(delta)) if wants_logprobs else b"null"
        members = b'"delta":%b,"logprobs":%b,"finish_reason":%b' % (
            said or b'{"content":""}', logprobs, encode(self._reason(delta.index, delta.finish_reason)),
        )  # fmt: skip
        if delta.finish_reason is not None:
            members += b',"stop_reason":' + encode(delta.stop_reason)
        if self._wants_ids:
            members += b',"token_ids":' + encode(delta.token_ids)
        return members

    def _choice(self, result: ChoiceResult) -> ChatChoice:
        logprobs = None
        if self._body.logprobs:
            logprobs = self._written(ChoiceDelta(result.index, "", result.token_ids, result.logprobs))
        return ChatChoice(
            index=result.index,
            message=self._message(result),
            logprobs=logprobs,
            finish_reason=self._reason(result.index, result.finish_reason),
            stop_reason=result.stop_reason,
            token_ids=result.token_ids if self._wants_ids else UNSET,
        )

    def _message(self, result: ChoiceResult) -> ChatMessage:
        """The message; with calls or reasoning, content that holds nothing is null."""
        if self._readers is None:
            return ChatMessage(role=self._role, content=self._echo + result.text)
        reader = self._readers[result.index]
        content, calls = self._echo + reader.content, reader.calls
        reasoning = reader.reasoning if self._body.include_reasoning is not False else ""
        return ChatMessage(
            role=self._role,
            content=content or (None if calls or reader.reasoning else ""),
            tool_calls=calls if calls else UNSET,
            reasoning=reasoning or None,
        )

    def _reason(self, index: int, reason: str | None) -> str | None:
        """Why a choice ended: an answer that called tools and stopped did so for the calls."""
        called = self._readers is not None and bool(self._readers[index].calls)
        return "tool_calls" if called and reason == "stop" else reason

    def _written(self, delta: ChoiceDelta) -> ChatLogprobs:
        return ChatLogprobs(self._logprobs.chat(delta.logprobs or [], self._top))
