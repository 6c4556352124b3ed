"""A front end's process, seen from inside.

Owns: the channel to the main process, the order of start and end. Knows nothing of how what it serves is made:
an opener, named by its dotted path, does that.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from turret.config import Config
from turret.engine import AttachedLink
from turret.errors import TurretError, kind_of_error
from turret.messages.control import (
    Answer,
    Answers,
    Ask,
    AskAll,
    Begin,
    Boot,
    EngineGone,
    FrontFailed,
    FrontReady,
    StopFront,
    ToFront,
)
from turret.server.listening import adopt
from turret.server.parts import ServerParts
from turret.server.peers import Handler, Handlers
from turret.server.run import HttpServer, RunOptions, run_server
from turret.transport.control import ControlChannel

__all__ = ["FrontOpening", "RemotePeers", "main"]

MAIN_GONE = "the server's main process is gone"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrontOpening:
    """What an opener gives: the configuration, and how the rest is made once the engines are up."""

    config: Config
    finish: Callable[[Sequence[AttachedLink], RemotePeers], Any]
    """Awaitable; gives `ServerParts`."""
    name: bytes
    """What engines know this front by."""


def main(control_fd: int, listening_fd: int) -> None:
    """Serve until told to stop; exits with status 1 when the start failed. Whoever starts us has signals ignored: the
    main process decides when we end."""
    for fd in (control_fd, listening_fd):
        os.set_inheritable(fd, False)
    sys.exit(0 if uvloop.run(_serve(socket.socket(fileno=control_fd), listening_fd)) else 1)


async def _serve(control: socket.socket, listening_fd: int) -> bool:
    channel: ControlChannel[ToFront] = await ControlChannel.open(control, ToFront)
    boot = await channel.receive()
    if not isinstance(boot, Boot):
        return False
    try:
        opening = _opener(boot.opener)(boot.spec)
        begin = await channel.receive()
        if not isinstance(begin, Begin):  # told to stop, or left alone, before there was anything to serve
            return begin is not None
        links = [AttachedLink(a, r, opening.name) for a, r in zip(begin.addresses, begin.engines, strict=True)]
        peers = RemotePeers(channel)
        parts: ServerParts = await opening.finish(links, peers)
    except Exception as error:
        if not isinstance(error, TurretError):
            logger.critical("a front end failed to start", exc_info=error)
        kind = kind_of_error(error) if isinstance(error, TurretError) else TurretError.__name__
        channel.send(FrontFailed(kind, str(error) or type(error).__name__))
        await channel.flush()
        return False
    front = _Front(channel, links, peers)
    listener = adopt(listening_fd, opening.config.tls)
    await run_server(parts, opening.config, listener, front.ready, RunOptions(signals=False, alone=False))
    return True


class RemotePeers:
    """All fronts, through the main process. See `turret.server.peers.Peers`."""

    several = True

    def __init__(self, channel: ControlChannel[ToFront]) -> None:
        self._channel = channel
        self._handlers = Handlers()
        self._calls: dict[int, asyncio.Future[list[Any]]] = {}  # by call id
        self._call_ids = itertools.count(1)

    def answer(self, what: str, handler: Handler) -> None:
        """From now on `handler` answers for this front."""
        self._handlers.set(what, handler)

    async def ask(self, what: str, argument: Any = None) -> list[Any]:
        """What each front says."""
        call_id = next(self._call_ids)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        self._channel.send(AskAll(call_id, what, argument))
        try:
            return await future
        finally:
            del self._calls[call_id]

    async def reply(self, question: Ask) -> None:
        """Answer for this front."""
        try:
            value = await self._handlers.call(question.what, question.argument)
        except Exception:
            logger.exception("a question of the other fronts (%s) failed", question.what)
            value = None
        self._channel.send(Answer(question.call_id, value))

    def settle(self, answers: Answers) -> None:
        """What all said came back."""
        future = self._calls.get(answers.call_id)
        if future is not None and not future.done():
            future.set_result(answers.values)


class _Front:
    """Obeys the main process while the server runs."""

    def __init__(
        self, channel: ControlChannel[ToFront], links: Sequence[AttachedLink], peers: RemotePeers
    ) -> None:
        self._channel = channel
        self._links = links
        self._peers = peers
        self._tasks: set[asyncio.Task[None]] = set()

    def ready(self, server: HttpServer) -> None:
        """The socket accepts."""
        self._channel.send(FrontReady())
        self._start(self._obey(server))

    async def _obey(self, server: HttpServer) -> None:
        while (frame := await self._channel.receive()) is not None:
            if isinstance(frame, EngineGone):
                self._links[frame.engine].gone(frame.reason)
            elif isinstance(frame, StopFront):
                server.stop()
            elif isinstance(frame, Ask):
                self._start(self._peers.reply(frame))
            elif isinstance(frame, Answers):
                self._peers.settle(frame)
        # Without the main process the engines end too: every open request gets its error, then this process ends.
        for link in self._links:
            link.gone(MAIN_GONE)
        server.stop()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _opener(path: str) -> Callable[[str], FrontOpening]:
    module, _, name = path.partition(":")
    found: Callable[[str], FrontOpening] = getattr(importlib.import_module(module), name)
    return found
