"""Structured output put together: which backends there are, for the worker that follows grammars and for the process
that compiles them.

Owns: the order in which backends are asked. Knows no backend. Loads no torch: backends do when they are opened.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import msgspec

from turret.checkpoint import Checkpoint
from turret.compose.find import tokenizer_options
from turret.compose.hosts import plugin_host
from turret.config import EngineConfig, PluginConfig, StructuredConfig
from turret.contracts import GrammarCompiler, StructuredBackend, Vocabulary
from turret.errors import PluginError
from turret.grammars import GrammarLaunch, GrammarService
from turret.plugins import PluginHost
from turret.text import TextProcessor, grammar_vocabulary, load_tokenizer

__all__ = ["CheckpointGrammars", "backends_from_json", "grammar_service", "structured_backends"]

logger = logging.getLogger("turret.compose")

USUAL = ("xgrammar", "llguidance")
"""The order in which `auto` asks, before any other backend that is installed."""
_ENTRY = "turret.compose.grammars:backends_from_json"


class _Ask(msgspec.Struct, frozen=True):
    """What the compiling process is told."""

    plugins: PluginConfig
    structured: StructuredConfig


class CheckpointGrammars:
    """Backends over a checkpoint's own tokenizer (the worker's `GrammarSource`)."""

    def __init__(self, backends: Mapping[str, StructuredBackend], checkpoint: Checkpoint, config: EngineConfig) -> None:
        self.names = tuple(backends)
        self._backends = backends
        self._checkpoint = checkpoint
        self._config = config
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None

    def vocabulary(self) -> Vocabulary:
        """The model's; made once."""
        with self._lock:
            if self._vocabulary is None:
                tokenizer = load_tokenizer(self._checkpoint, tokenizer_options(self._config))
                self._vocabulary = grammar_vocabulary(tokenizer, self._checkpoint.eos_token_ids)
            return self._vocabulary

    def open(self, backend: str) -> GrammarCompiler:
        """Raises PluginError for a backend that is not here."""
        if backend not in self._backends:
            raise PluginError(f"no structured backend {backend!r} is loaded here; there are {', '.join(self.names)}")
        return self._backends[backend].open(self.vocabulary())


def structured_backends(host: PluginHost, config: StructuredConfig) -> dict[str, StructuredBackend]:
    """The backends to ask, in order. With `auto` those that cannot be used are left out; one that was named must be."""
    named = config.backend
    if named != "auto":
        return {named: host.load(host.select("structured", key=named, explicit=named).require())}
    installed = {item.name for item in host.registry.of_kind("structured")}
    found: dict[str, StructuredBackend] = {}
    for name in [*(n for n in USUAL if n in installed), *sorted(installed - set(USUAL))]:
        selection = host.select("structured", key=name)
        if selection.chosen is None:
            logger.debug("the structured backend %s is left out", name)
            continue
        try:
            found[name] = host.load(selection.chosen)
        except PluginError as error:
            logger.warning("%s (skipped)", error)
    first = dict(list(found.items())[:1])
    return first if config.disable_fallback else found


def backends_from_json(text: str) -> dict[str, StructuredBackend]:
    """In the compiling process: its backends."""
    ask = msgspec.json.decode(text, type=_Ask)
    return structured_backends(plugin_host(ask.plugins, frozenset({"front"})), ask.structured)


def grammar_service(
    config: EngineConfig, text: TextProcessor, checkpoint: Checkpoint, started: Callable[[], None]
) -> GrammarService:
    """The service of a front door; nothing runs before it is asked."""
    host = plugin_host(config.plugins, frozenset({"front"}))
    names: tuple[str, ...] = ()
    if text.has_tokenizer:
        names = tuple(structured_backends(host, config.structured))
    argument = msgspec.json.encode(_Ask(config.plugins, config.structured)).decode()
    return GrammarService(GrammarLaunch(
        entry=_ENTRY, argument=argument, backends=names, started=started,
        vocabulary=lambda: grammar_vocabulary(text.tokenizer, checkpoint.eos_token_ids),
    ))
