"""What the server is made of besides itself.

Owns: the bundle that `turret.compose` builds. Knows nothing of how it is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turret.contracts import Endpoint, ReasoningParser, ToolParser
from turret.engine import Client
from turret.grammars import GrammarService
from turret.plugins import Hooks
from turret.server.peers import Alone, Peers
from turret.text import TextProcessor
from turret.transport import Ledger

__all__ = ["AnswerParsers", "ServerParts"]


@dataclass(frozen=True, slots=True)
class AnswerParsers:
    """What reads an answer for more than its text, and what each is called in errors."""

    reasoning: ReasoningParser | None = None
    tools: ToolParser | None = None
    reasoning_name: str = ""
    tools_name: str = ""


@dataclass(frozen=True, slots=True)
class ServerParts:
    """Everything `create_app` needs.

    `client` is started, or will be by whoever runs the app. `generation_defaults` are sampling values by name from the
    model's generation config. `kv_capacity` is the number of tokens that the whole KV cache of an engine holds (0 =
    unknown); `cache_facts` are the settings of each engine's, for the metric that shows them. `hooks` are the listeners
    to tell of requests. `parsers` read reasoning and tool calls, where the operator chose some; `endpoints` are
    further APIs. Where several front ends share the engines, `peers` are all of them, `ledger` counts what waits at any
    of them, and `first_serial` keeps the ids and seeds of their requests apart. `grammars` compiles
    the forms that answers are asked to have.
    """

    text: TextProcessor
    client: Client
    model_names: tuple[str, ...]
    model_root: str
    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    kv_capacity: int = 0
    cache_facts: Sequence[Mapping[str, Any]] = ()
    hooks: Hooks = field(default_factory=Hooks)
    parsers: AnswerParsers = field(default_factory=AnswerParsers)
    endpoints: tuple[Endpoint, ...] = ()
    peers: Peers = field(default_factory=Alone)
    ledger: Ledger = field(default_factory=lambda: Ledger(columns=2))
    first_serial: int = 0
    grammars: GrammarService | None = None
