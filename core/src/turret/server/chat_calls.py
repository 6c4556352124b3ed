"""From a checked body of chat completions to a run with readers: what the chat route and other chat APIs share.

Owns: the order of those checks. Knows nothing of the shape of answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turret.errors import RequestError
from turret.server.answer_reader import AnswerReader, answer_readers, parser_context, shown_tokens
from turret.server.conversation import check_tools, render
from turret.server.forced_calls import forced_form, forces_calls
from turret.server.results import Run
from turret.server.sampling_fields import check_supported, sampling_params
from turret.server.state import CallContext, ServerState
from turret.server.structure import grammar_of
from turret.server.thinking import thinking_budget
from turret.server.wire import ChatRequest
from turret.text import ChatPrompt

__all__ = ["BegunChat", "begin_chat"]


@dataclass(frozen=True, slots=True)
class BegunChat:
    """A run, the prompt it answers, and `readers` of what its choices hold, one a choice, where anything reads them."""

    run: Run
    prompt: ChatPrompt
    readers: list[AnswerReader] | None

    def num_reasoning_tokens(self) -> int:
        """Tokens of reasoning so far, over all choices."""
        return sum(reader.num_reasoning_tokens for reader in self.readers or ())


async def begin_chat(state: ServerState, context: CallContext, body: ChatRequest) -> BegunChat:
    """Check a body and make its run; nothing runs yet. Raises `RequestError` and what the queue has to say."""
    check_supported(body)
    calls_tools = check_tools(state, body)
    top = body.top_logprobs or 0
    if top and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", "top_logprobs")
    if top > state.config.model.max_logprobs >= 0 or top < -1:
        raise RequestError(
            f"top_logprobs must be between 0 and {state.config.model.max_logprobs} on this server, got {top}",
            "top_logprobs",
        )
    params = sampling_params(
        body,
        state.parts.generation_defaults,
        logprobs=top if body.logprobs else None,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
    )
    if calls_tools and forces_calls(body):
        params = params.replace(structured_outputs=forced_form(body))
    prompt = await render(state, body)
    about = parser_context(body, prompt.text, calls_tools)
    grammar = await grammar_of(state, params, body, about)
    thinking = thinking_budget(state, body, about)
    job = state.job(context, [prompt.token_ids], params, body, grammar)
    job = replace(job, shown=shown_tokens(state, calls_tools), thinking=thinking)
    # Before the run takes its place in the queue: opening a session may fail.
    readers = answer_readers(state, body, prompt.text, params.n, calls_tools)
    return BegunChat(state.generator.start(job), prompt, readers)
