"""A server whose model is a hash, with the endpoint on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from turret.config import Config
from turret.contracts import ListenerHost
from turret.engine import EngineClient, ThreadLink
from turret.server.listening import bind
from turret.server.parts import ServerParts
from turret.server.run import HttpServer, run_server
from turret.testing.null_engine import build_null_engine, null_tokens
from turret.text import FastTokenizer, SpecialTokens, TextProcessor
from turret_endpoint_grpc.engine_pb2_grpc import EngineStub
from turret_endpoint_grpc.plugin import GrpcEndpoint, GrpcListener

VOCAB, CONTEXT = 94, 4096


class Watched(GrpcEndpoint):
    """The endpoint on any free port; `made` is its listener."""

    def __init__(self) -> None:
        super().__init__({"port": 0})
        self.made: list[GrpcListener] = []

    def listener(self, host: ListenerHost) -> GrpcListener:
        self.made.append(super().listener(host))
        return self.made[0]


@dataclass
class Running:
    """Where it is, and what it should say."""

    url: str
    port: int
    text: TextProcessor
    stop: Callable[[], None]

    def stub(self, channel: grpc.Channel) -> Any:
        return EngineStub(channel)

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.port}")

    def tokens(self, prompt: list[int] | str, count: int) -> list[int]:
        return null_tokens(self.text.encode_prompt(prompt), count, VOCAB)


def make_text() -> TextProcessor:
    """One token a byte, the printable ones first: all that the null engine says."""
    printable = [chr(c) for c in range(0x21, 0x7F)]
    rest = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(printable))
    backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*printable, *rest])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["</s>"])
    specials = SpecialTokens(eos_token_id=backend.token_to_id("</s>"), names={"eos_token": "</s>"})
    return TextProcessor(FastTokenizer(backend, specials), {}, CONTEXT)


@contextlib.contextmanager
def serving(null: dict[str, Any] | None = None, **options: Any) -> Iterator[Running]:
    """A server with these engine settings and options."""
    settings = {"vocab_size": VOCAB, "max_model_len": CONTEXT, **(null or {})}
    config = Config.from_options({"host": "127.0.0.1", "port": 0, "uvicorn_log_level": "warning", **options})
    endpoint, up, failed, event = Watched(), [], [], threading.Event()

    async def main() -> None:
        client = EngineClient(ThreadLink(build_null_engine, msgspec.json.encode(settings).decode()))
        await client.start()
        text = make_text()
        parts = ServerParts(
            text=text, client=client, model_names=("tiny",), model_root="/models/tiny", max_model_len=CONTEXT,
            vocab_size=text.tokenizer.vocab_size, eos_token_ids=text.eos_token_ids, endpoints=(endpoint,),
        )
        listener = bind(config.server, config.tls)
        loop = asyncio.get_running_loop()

        def ready(server: HttpServer) -> None:
            stop = lambda: loop.call_soon_threadsafe(server.stop)  # noqa: E731
            up.append(Running(listener.url, endpoint.made[0].port, text, stop))
            event.set()

        await run_server(parts, config, listener, ready)

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


@pytest.fixture(scope="session")
def tiny() -> Iterator[Running]:
    """A server shared by tests that leave it as it was."""
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def serve() -> Callable[..., contextlib.AbstractContextManager[Running]]:
    """For tests that need one of their own."""
    return serving
