"""From messages to bodies of completions, and from what an answer holds to messages.

Owns: the meaning of each field. Knows nothing of servers or calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from turret.contracts import ChatUsage, CompletionPart, ServerFacts
from turret.errors import RequestError
from turret.messages import TokenLogprobs
from turret_endpoint_grpc import engine_pb2 as pb

__all__ = ["add_part", "completion_body", "model_info", "server_info", "usage_of"]

PLAIN = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "max_tokens", "min_tokens", "skip_special_tokens", "spaces_between_special_tokens", "ignore_eos", "n", "logprobs",
    "prompt_logprobs", "seed", "include_stop_str_in_output", "truncate_prompt_tokens", "add_special_tokens",
)  # fmt: skip
LISTS = ("stop", "stop_token_ids", "bad_words", "allowed_token_ids")
CONSTRAINTS: Mapping[str, str] = MappingProxyType(
    {"regex": "regex", "grammar": "grammar", "structural_tag": "structural_tag"}
)


def completion_body(request: pb.GenerateRequest) -> dict[str, Any]:
    """The body of completions that a request comes to; raises `RequestError` for what no body can say."""
    kind = request.WhichOneof("input")
    if kind is None:
        raise RequestError("the request has no input: set text or tokenized", "input")
    body: dict[str, Any] = {"prompt": request.text if kind == "text" else list(request.tokenized.input_ids)}
    for name in ("request_id", "model", "priority", "cache_salt"):
        if getattr(request, name):
            body[name] = getattr(request, name)
    params = request.sampling_params
    body |= {name: getattr(params, name) for name in PLAIN if params.HasField(name)}
    body |= {name: list(getattr(params, name)) for name in LISTS if len(getattr(params, name))}
    if params.logit_bias:
        body["logit_bias"] = dict(params.logit_bias)
    constraint = params.WhichOneof("constraint")
    if constraint is not None:
        body["structured_outputs"] = _constraint(params, constraint)
    return body


def _constraint(params: pb.SamplingParams, name: str) -> dict[str, Any]:
    if name == "choice":
        return {"choice": list(params.choice.choices)}
    if name == "json_object":
        return {"json_object": params.json_object}
    if name == "json_schema":
        try:
            return {"json": json.loads(params.json_schema)}
        except (ValueError, RecursionError) as error:
            raise RequestError(f"json_schema is no JSON: {error}", "json_schema") from error
    return {CONSTRAINTS[name]: getattr(params, name)}


def add_part(choice: pb.Choice, part: CompletionPart) -> None:
    """Append what one part brought."""
    choice.index = part.index
    choice.text += part.text
    choice.token_ids.extend(part.token_ids)
    choice.logprobs.extend(_logprobs(part.logprobs or ()))
    choice.prompt_logprobs.extend(_logprobs(part.prompt_logprobs or ()))
    if part.finish is None:
        return
    choice.finish_reason = part.finish.reason
    if isinstance(part.finish.stop, int):
        choice.stop_token_id = part.finish.stop
    elif part.finish.stop is not None:
        choice.stop_string = part.finish.stop


def _logprobs(entries: Iterable[TokenLogprobs]) -> list[pb.TokenLogprobs]:
    return [
        pb.TokenLogprobs(
            token_id=one.token_id, logprob=one.logprob, rank=one.rank, top_ids=one.top_ids,
            top_logprobs=one.top_logprobs,
        )
        for one in entries
    ]  # fmt: skip


def usage_of(usage: ChatUsage) -> pb.Usage:
    """Counts."""
    return pb.Usage(prompt_tokens=usage.prompt, completion_tokens=usage.output, cached_tokens=usage.cached)


def model_info(facts: ServerFacts) -> pb.GetModelInfoResponse:
    """What the model is."""
    return pb.GetModelInfoResponse(
        model_path=facts.model_root, served_model_names=facts.model_names, max_context_length=facts.max_model_len,
        vocab_size=facts.vocab_size, eos_token_ids=facts.eos_token_ids,
    )  # fmt: skip


def server_info(facts: ServerFacts) -> pb.GetServerInfoResponse:
    """What the server is."""
    return pb.GetServerInfoResponse(
        server_type="turret", version=facts.version, active_requests=facts.num_open, uptime_seconds=facts.uptime,
        is_ready=facts.trouble is None, trouble=facts.trouble or "",
    )  # fmt: skip
