"""A real server on a real engine whose model is a hash, on a loopback port, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from turret.config import Config
from turret.contracts import Worker
from turret.engine import EngineClient, EngineCore, Progress, ThreadLink
from turret.kv import KVCacheManager
from turret.messages import EngineReady, KVCacheConfig, RequestResult, TokenLogprobs
from turret.scheduler import FairPolicy, FcfsPolicy, PriorityPolicy, Scheduler, SchedulerLimits
from turret.server.app import state_of
from turret.server.listening import bind
from turret.server.parts import ServerParts
from turret.server.run import HttpServer, run_server
from turret.server.state import ServerState
from turret.testing.null_engine import NullConfig, NullWorker, null_tokens
from turret.text import FastTokenizer, SpecialTokens, TextProcessor
from turret.worker.thinking import ThinkingRow

PRINTABLE = [chr(c) for c in range(0x21, 0x7F)]
NULL_VOCAB = len(PRINTABLE)
TEMPLATE = (
    "{% if tools %}[tools:{{ tools | map(attribute='function.name') | join(',') }}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if not loop.last %}|{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_text(max_model_len: int) -> TextProcessor:
    """One token a byte; the first ids are the printable ASCII characters, which is all the null engine says."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate([*PRINTABLE, *(c for c in alphabet if c not in PRINTABLE)])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["</s>"])
    specials = SpecialTokens(eos_token_id=backend.token_to_id("</s>"), names={"eos_token": "</s>"})
    return TextProcessor(FastTokenizer(backend, specials), {"default": TEMPLATE}, max_model_len)


class LogprobWorker(NullWorker):
    """The null worker with made-up log-probabilities: the sampled token has -0.5, then ids 0, 1, 2, ... It keeps to
    budgets for reasoning as a real one does."""

    def __init__(self, config: NullConfig) -> None:
        super().__init__(config)
        self._wanted: dict[str, tuple[int | None, int | None, list[int]]] = {}
        self._thinking: dict[str, ThinkingRow] = {}

    def _run(self, plan: Any) -> list[RequestResult]:
        for new in plan.new:
            sampling = new.request.sampling
            self._wanted[new.request.request_id] = (
                sampling.logprobs, sampling.prompt_logprobs, new.request.prompt_token_ids
            )
            if new.request.thinking is not None:
                self._thinking[new.request.request_id] = ThinkingRow(new.request.thinking, new.output_token_ids)
        return super()._run(plan)

    def _advance(self, request_id: str, history: Any, start: int, count: int) -> RequestResult:
        result = super()._advance(request_id, history, start, count)
        if result.token_ids and (row := self._thinking.get(request_id)) is not None:
            if row.forced is not None:
                history.tokens[-1] = row.forced
                result = msgspec.structs.replace(result, token_ids=[row.forced])
            row.append(history.tokens[-1])
        logprobs, prompt_logprobs, prompt = self._wanted[request_id]
        changes: dict[str, Any] = {}
        if logprobs is not None and result.token_ids:
            changes["logprobs"] = [_entry(t, logprobs) for t in result.token_ids]
        if prompt_logprobs is not None and start < len(prompt) - 1:
            last = min(start + count, len(prompt) - 1)
            changes["prompt_logprobs"] = [_entry(t, prompt_logprobs) for t in prompt[start + 1 : last + 1]]
        return msgspec.structs.replace(result, **changes)


def _entry(token: int, top: int) -> TokenLogprobs:
    ids = list(range(top))
    return TokenLogprobs(token, -0.5, 7, ids, [float("-inf") if i == 1 else -1.0 - i for i in ids])


def build_engine(config_json: str, progress: Progress) -> EngineCore:
    """An engine around `LogprobWorker`."""
    config = msgspec.json.decode(config_json, type=NullConfig)
    worker: Worker = LogprobWorker(config)
    facts = worker.start(progress)
    shape = KVCacheConfig(
        num_blocks=config.num_blocks, block_size=config.block_size, groups=facts.groups,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    limits = SchedulerLimits(
        max_num_batched_tokens=config.max_num_batched_tokens, max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len, async_depth=config.async_depth,
    )
    ready = EngineReady(
        num_blocks=config.num_blocks, block_size=config.block_size, vocab_size=config.vocab_size,
        max_model_len=config.max_model_len, facts={},
    )
    policy = PriorityPolicy() if config.max_num_seqs == 1 else FairPolicy() if config.policy == "fair" else FcfsPolicy()
    return EngineCore(Scheduler(limits, KVCacheManager(shape), policy), worker, ready, config.async_depth)


@dataclass
class Running:
    """A server that answers; `text` and `state` are its own."""

    url: str
    text: TextProcessor
    state: ServerState
    server: HttpServer
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    def stop(self) -> None:
        """As Ctrl-C would."""
        self.loop.call_soon_threadsafe(self.server.stop)

    def in_loop(self, function: Callable[[], Any]) -> Any:
        """Run something in the server's event loop."""

        async def call() -> Any:
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def answer(self, prompt: str, count: int) -> str:
        """What the engine says to a prompt."""
        ids = null_tokens(self.text.encode_prompt(prompt), count, NULL_VOCAB)
        return self.text.tokenizer.decode(ids)


@contextlib.contextmanager
def serving(
    null: dict[str, Any] | None = None, parts: dict[str, Any] | None = None, **options: Any
) -> Iterator[Running]:
    """A server with these engine settings, parts and options."""
    settings = {"vocab_size": NULL_VOCAB, "max_model_len": 512, **(null or {})}
    quiet = {"uvicorn_log_level": "warning", "disable_uvicorn_access_log": True}
    config = Config.from_options({"host": "127.0.0.1", "port": 0, **quiet, **options})
    up: list[Running] = []
    failed: list[BaseException] = []
    event = threading.Event()

    async def main() -> None:
        client = EngineClient(ThreadLink(build_engine, msgspec.json.encode(settings).decode()))
        await client.start()
        text = make_text(settings["max_model_len"])
        made = ServerParts(
            text=text, client=client, max_model_len=settings["max_model_len"],
            vocab_size=text.tokenizer.vocab_size, eos_token_ids=(text.tokenizer.specials.eos_token_id or 0,),
            **{"model_names": ("tiny", "alias"), "model_root": "/models/tiny", **(parts or {})},
        )
        listener = bind(config.server, config.tls)
        url = listener.url

        def ready(server: HttpServer) -> None:
            state = state_of(server.config.app)
            up.append(Running(url, text, state, server, asyncio.get_running_loop(), threading.current_thread()))
            event.set()

        await run_server(made, config, listener, ready)

    def body() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
            event.set()
            raise

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    assert event.wait(30) and not failed, failed
    try:
        yield up[0]
    finally:
        if thread.is_alive():
            up[0].stop()
            thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll until something in another thread has happened."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Wait for something to happen."""
    return wait_until


@pytest.fixture(scope="session")
def tiny() -> Iterator[Running]:
    """A server shared by tests that leave it as it was."""
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def serve() -> Callable[..., contextlib.AbstractContextManager[Running]]:
    """For tests that need a server of their own."""
    return serving
