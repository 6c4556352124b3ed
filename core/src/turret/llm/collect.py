"""Running a batch to its end and putting the pieces together.

Owns: which event belongs to which prompt, the progress bar. Knows nothing of how prompts came about.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tqdm import tqdm

from turret.engine import InprocEngine, OfflineFleet, event_error
from turret.errors import EngineDeadError
from turret.llm.outputs import CompletionOutput, RequestOutput, logprob_maps
from turret.messages import Request, TokenEvent, TokenLogprobs
from turret.server.choices import Choice, ChoiceDelta
from turret.server.expansion import Generation
from turret.text import TextProcessor

__all__ = ["Batch"]


@dataclass(slots=True)
class _Sequence:
    """One continuation on its way."""

    choice: Choice
    output: CompletionOutput
    parent: _Prompt
    logprobs: list[TokenLogprobs] = field(default_factory=list)


@dataclass(slots=True)
class _Prompt:
    """One prompt on its way."""

    job: Generation
    text: str | None
    num_open: int
    sequences: list[_Sequence] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None


class Batch:
    """Prompts that run together."""

    def __init__(self, text: TextProcessor, engine: InprocEngine | OfflineFleet) -> None:
        self._text = text
        self._engine = engine
        self._prompts: list[_Prompt] = []
        self._requests: list[Request] = []
        self._open: dict[str, _Sequence] = {}

    def add(self, job: Generation, requests: list[Request], text: str | None) -> None:
        """One prompt and its engine requests."""
        prompt = _Prompt(job, text, len(requests))
        self._prompts.append(prompt)
        self._requests += requests
        for index, request in enumerate(requests):
            sequence = _Sequence(Choice.of(index, request, self._text), CompletionOutput(index), prompt)
            prompt.sequences.append(sequence)
            self._open[request.request_id] = sequence

    def run(self, show_bar: bool) -> list[RequestOutput]:
        """Run to the end; results in the order of `add`. Raises `EngineDeadError` when the engine cannot go on."""
        with tqdm(
            total=len(self._prompts), desc="prompts", unit="prompt", disable=not show_bar, dynamic_ncols=True
        ) as bar:
            for finished, rate in self._steps():
                bar.update(finished)
                bar.set_postfix_str(rate, refresh=False)
        return [self._result(prompt) for prompt in self._prompts]

    def _steps(self) -> Iterator[tuple[int, str]]:
        """Prompts that finished, and the rate so far, event by event that ends a sequence."""
        began, num_tokens = time.monotonic(), 0
        for event in self._engine.generate(self._requests):
            sequence = self._open.get(event.request_id)
            if sequence is None:
                continue  # of a step that was under way when a stop string ended the sequence
            before = sequence.choice.num_tokens
            done = self._advance(sequence, event)
            num_tokens += sequence.choice.num_tokens - before
            if done:
                del self._open[event.request_id]
                sequence.parent.num_open -= 1
                seconds = max(time.monotonic() - began, 1e-9)
                yield int(sequence.parent.num_open == 0), f"{num_tokens / seconds:.1f} tokens/s"

    def _advance(self, sequence: _Sequence, event: TokenEvent) -> bool:
        """Take in an event; True when it ended the sequence."""
        error = event_error(event)
        if isinstance(error, EngineDeadError):
            raise error
        if error is not None:
            sequence.output.finish_reason, sequence.output.error = "error", str(error)
            return True
        delta = sequence.choice.advance(event)
        self._append(sequence, delta)
        if sequence.choice.needs_abort:
            self._engine.abort([event.request_id])
        return sequence.choice.finished

    def _append(self, sequence: _Sequence, delta: ChoiceDelta) -> None:
        output = sequence.output
        output.text += delta.text
        output.token_ids += delta.token_ids
        sequence.logprobs += delta.logprobs or ()
        if delta.prompt_logprobs is not None:
            sequence.parent.prompt_logprobs = delta.prompt_logprobs
        output.finish_reason, output.stop_reason = delta.finish_reason, delta.stop_reason

    def _result(self, prompt: _Prompt) -> RequestOutput:
        params = prompt.job.params
        for sequence in prompt.sequences:
            if params.logprobs is not None:
                sequence.output.logprobs = logprob_maps(self._text, sequence.logprobs)
                sequence.output.cumulative_logprob = sum(entry.logprob for entry in sequence.logprobs)
        prompt_logprobs = None
        if params.prompt_logprobs is not None:
            prompt_logprobs = [None, *logprob_maps(self._text, prompt.prompt_logprobs or [])]
        return RequestOutput(
            request_id=prompt.job.request_id,
            prompt=prompt.text,
            prompt_token_ids=prompt.job.prompts[0],
            outputs=[sequence.output for sequence in prompt.sequences],
            prompt_logprobs=prompt_logprobs,
            num_cached_tokens=prompt.sequences[0].choice.num_cached_tokens,
        )
