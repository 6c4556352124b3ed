"""What the server needs from the rest of turret, as Protocols.

Owns: the shapes of the text side, the engine's client and the bundle that `turret.compose` builds. Knows no
implementation: a test can serve a dozen lines of Python through the same app.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from turret.messages import EngineStats, Request, TokenEvent
from turret.sampling import SamplingParams

__all__ = ["EngineSide", "EventSource", "OutputSide", "ServerParts", "TextSide"]


class OutputSide(Protocol):
    """One choice's text as its tokens arrive."""

    stop_reason: str | None
    """The stop string that ended the text, once one did; what follows it is gone."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """More tokens; returns text that is safe to send (never half a character or a possible stop string)."""

    def finish(self) -> str:
        """No more tokens; returns the text held back so far."""


class TextSide(Protocol):
    """Tokenizer, chat template and detokenizer, without torch."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of token ids."""

    def token_text(self, token_id: int) -> str:
        """How one token reads on its own, as logprobs show it."""

    def render_chat(self, messages: list[dict[str, Any]], **options: Any) -> str:
        """The prompt text of a conversation; raises `RequestError` when the template refuses it."""

    def open_output(self, params: SamplingParams, prompt_token_ids: Sequence[int]) -> OutputSide:
        """A detokenizer for one choice."""


class EventSource(Protocol):
    """Events of the requests submitted together; leaving its `async with` early aborts what is still open."""

    async def batch(self) -> list[TokenEvent]:
        """Everything that is there, waiting for the first; empty once each request had its last event."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class EngineSide(Protocol):
    """The client of an engine, in this process or another (`turret.engine.EngineClient`)."""

    @property
    def dead_reason(self) -> str | None:
        """Why the engine is gone; None while it lives."""

    @property
    def stats(self) -> EngineStats:
        """Latest counters and gauges."""

    def submit(self, requests: Sequence[Request]) -> EventSource:
        """Hand over requests that share one source of events; raises `EngineDeadError`."""

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these now, and only these; each still gets its last event."""

    async def call(self, method: str, *args: Any) -> Any:
        """A named engine method (`reset_prefix_cache`, `pid`, ...)."""

    async def wait_dead(self) -> str:
        """Block until the engine is gone; why."""

    async def shutdown(self, timeout: float = 0.0) -> None:
        """End the engine."""


@dataclass(frozen=True, slots=True)
class ServerParts:
    """Everything `create_app` needs; built by `turret.compose`.

    `generation_defaults` are sampling values by name from the model's generation config. `kv_capacity` is the
    number of tokens that the whole KV cache holds (0 = unknown). `text` is None with --skip-tokenizer-init.
    """

    text: TextSide | None
    client: EngineSide
    model_names: tuple[str, ...]
    model_root: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    kv_capacity: int = 0
