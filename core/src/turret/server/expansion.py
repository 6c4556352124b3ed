"""From one call (prompts x n) to the requests that the engine runs.

Owns: engine request ids and seeds. Knows nothing of HTTP; the offline door uses it too.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turret.messages import GrammarProgram, Request, ThinkingBudget
from turret.sampling import SamplingParams
from turret.text import TextProcessor

__all__ = ["Expander", "Generation", "derive_seed"]

SEED_BITS = 63


def derive_seed(seed: int, index: int) -> int:
    """Seed of choice `index`; choice 0 keeps `seed`, so that n=1 and the first of n>1 agree."""
    if index == 0:
        return seed
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


@dataclass(frozen=True, slots=True)
class Generation:
    """One call: prompts of token ids, each to be continued `params.n` times.

    `max_tokens` is resolved, one per prompt. `request_id` is the client's and need not be unique; the call can be
    aborted by its `other_ids` too. With a `length_penalty` it is a beam search of width `params.n`. Streams bring
    `stream_interval` tokens a chunk.
    Special tokens in `shown` are text even if others are skipped: whoever reads the answer needs them. `grammar` is
    what `params.structured_outputs` came to, `thinking` the budget for reasoning.
    """

    request_id: str
    prompts: tuple[list[int], ...]
    params: SamplingParams
    max_tokens: tuple[int, ...]
    priority: int = 0
    cache_salt: str | None = None
    tenant: str = ""
    arrival_time: float = 0.0
    queue_deadline: float | None = None
    length_penalty: float | None = None
    stream_interval: int = 1
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    shown: frozenset[int] = frozenset()
    grammar: GrammarProgram | None = None
    thinking: ThinkingBudget | None = None
    other_ids: tuple[str, ...] = ()

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt tokens; a prompt counts once, whatever n."""
        return sum(map(len, self.prompts))


class Expander:
    """Makes engine requests; gives each a unique id and, where the caller named no seed, one of its own."""

    def __init__(
        self, server_seed: int, eos_token_ids: Sequence[int], text: TextProcessor, first_serial: int = 0
    ) -> None:
        self._server_seed = server_seed
        self._eos = list(eos_token_ids)
        self._text = text
        self._counter = itertools.count(first_serial)

    def expand(self, job: Generation) -> list[Request]:
        """Requests in choice order: prompt 0's n choices, then prompt 1's, and so on."""
        serial = next(self._counter)
        seed = job.params.seed
        if seed is None:
            seed = derive_seed(self._server_seed, serial + 1)
        params = job.params.replace(n=1, seed=None) if job.params.n > 1 else job.params
        if params.structured_outputs is not None:
            params = params.replace(structured_outputs=None)  # the engine follows `grammar`
        bad_words = self._text.bad_words_ids(job.params.bad_words)
        arrival = job.arrival_time or time.time()
        return [
            Request(
                request_id=f"{job.request_id}/{serial}.{prompt_index * job.params.n + k}",
                prompt_token_ids=prompt,
                sampling=params,
                max_tokens=limit,
                seed=derive_seed(seed, k),
                eos_token_ids=self._eos,
                stop_token_ids=job.params.stop_token_ids or [],
                bad_words_ids=bad_words,
                arrival_time=arrival,
                priority=job.priority,
                cache_salt=job.cache_salt,
                tenant=job.tenant,
                queue_deadline=job.queue_deadline,
                grammar=job.grammar,
                thinking=job.thinking,
            )
            for prompt_index, (prompt, limit) in enumerate(zip(job.prompts, job.max_tokens, strict=True))
            for k in range(job.params.n)
        ]
