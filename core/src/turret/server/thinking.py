"""Budgets for reasoning: from a body's number to tokens that the worker counts and forces.

Owns: the checks and their sentences. Which marks a family has, its reasoning parser says.
"""

from __future__ import annotations

from turret.contracts import ParserContext, ThinkingMarks
from turret.errors import RequestError
from turret.messages import ThinkingBudget
from turret.server.state import ServerState
from turret.server.wire import ChatRequest
from turret.text import TextProcessor

__all__ = ["thinking_budget", "wanted_budget"]


def wanted_budget(body: ChatRequest) -> tuple[str, int] | None:
    """The field that names a budget, and the budget; raises `RequestError` for two that differ, or one below 0."""
    given = {name: getattr(body, name) for name in ("max_thinking_tokens", "thinking_token_budget")}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    name, value = next(iter(given.items()))
    if len(set(given.values())) > 1:
        raise RequestError("max_thinking_tokens and thinking_token_budget are two names of one number", name)
    if value < 0:
        raise RequestError(f"{name} must not be negative, got {value}", name)
    return name, value


def thinking_budget(state: ServerState, body: ChatRequest, context: ParserContext) -> ThinkingBudget | None:
    """The budget that a body names; raises `RequestError` where this server cannot keep one."""
    wanted = wanted_budget(body)
    if wanted is None:
        return None
    name, tokens = wanted
    parser, label = state.parts.parsers.reasoning, state.parts.parsers.reasoning_name
    if parser is None:
        raise RequestError(f"{name} needs a server started with --reasoning-parser: nothing here tells reasoning", name)
    if body.use_beam_search:
        raise RequestError(f"{name} and use_beam_search do not go together", name)
    ask = getattr(parser, "thinking", None)
    marks: ThinkingMarks | None = None if ask is None else ask(context)
    if marks is None:
        raise RequestError(f"{name}: {label} does not say where reasoning ends, so no end of it can be forced", name)
    try:
        force = _ids(state.text, marks.force)
        starts, ends = ([_ids(state.text, mark) for mark in group] for group in (marks.starts, marks.ends))
    except ValueError as error:
        raise RequestError(f"{name}: {error}, so the end of reasoning cannot be forced", name) from error
    ends += [ids for mark in marks.ends_too if (ids := _known(state.text, mark)) is not None]
    return ThinkingBudget(
        tokens=tokens, force=force, ends=ends, starts=starts, begun=marks.begun, again=marks.again
    )


def _known(text: TextProcessor, mark: str) -> list[int] | None:
    try:
        return _ids(text, mark)
    except ValueError:
        return None


def _ids(text: TextProcessor, mark: str) -> list[int]:
    """The tokens of a mark. It must be one token, or begin with a special one: only then is it always the same tokens,
    whatever stands before it. Raises ValueError."""
    ids = text.tokenizer.encode(mark, add_special_tokens=False)
    sure = len(ids) == 1 or (ids and ids[0] in text.tokenizer.special_ids)
    if not sure or text.tokenizer.decode(ids, skip_special_tokens=False) != mark:
        raise ValueError(f"{mark!r} is no token of this model's tokenizer")
    return ids
