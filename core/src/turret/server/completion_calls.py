"""From a checked body of completions to a run: what the completions route and other APIs share.

Owns: the order of those checks. Knows nothing of the shape of answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from turret.errors import RequestError
from turret.server.prompts import Prompt, read_prompts
from turret.server.results import Run
from turret.server.sampling_fields import check_no_budget, check_supported, sampling_params
from turret.server.state import CallContext, ServerState
from turret.server.structure import grammar_of
from turret.server.wire import CompletionRequest

__all__ = ["BegunCompletion", "begin_completion"]

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class BegunCompletion:
    """A run and the prompts it continues. `scoring` means that the one token it generates is not asked for."""

    run: Run
    prompts: list[Prompt]
    scoring: bool


async def begin_completion(state: ServerState, context: CallContext, body: CompletionRequest) -> BegunCompletion:
    """Check a body and make its run; nothing runs yet. Raises `RequestError` and what the queue has to say."""
    check_supported(body)
    check_no_budget(body)
    for name in ("suffix", "prompt_embeds"):
        if getattr(body, name):
            raise RequestError(f"{name} is not available in this version", name)
    scoring = body.max_tokens == 0 and bool(body.echo)
    params = sampling_params(
        body,
        state.parts.generation_defaults,
        logprobs=body.logprobs,
        max_tokens=1 if scoring else DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
    )
    if body.echo and body.logprobs is not None and params.prompt_logprobs is None:
        params = params.replace(prompt_logprobs=body.logprobs)
    prompts = await read_prompts(state.text, body)
    grammar = await grammar_of(state, params, body)
    job = state.job(context, [p.token_ids for p in prompts], params, body, grammar)
    return BegunCompletion(state.generator.start(job), prompts, scoring)
