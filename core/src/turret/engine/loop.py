"""The loop of an engine that serves clients.

Owns: when frames are read and when steps are made, and which client each open request belongs to. Knows nothing of
sockets (a `Door` brings frames) or of what a step is.

Without work it blocks on the door and costs nothing. With work, frames are read between steps, so that a new request or
an abort waits for one step at most; events of a step go out while the worker is busy with the next one.
"""

from __future__ import annotations

import logging
import time

from turret.engine.core import EngineCore
from turret.engine.faults import ended, refusal
from turret.engine.ports import Door
from turret.errors import RequestError, TurretError
from turret.messages import (
    Abort,
    ClientFrame,
    EngineFailure,
    EngineStats,
    Events,
    Forget,
    Request,
    Shutdown,
    Submit,
    TokenEvent,
    Utility,
    UtilityReply,
    Watch,
)

__all__ = ["EngineLoop"]

FRAMES_PER_STEP = 256
"""Frames read between two steps, so that a flood of requests does not hold up those that run."""
STATS_INTERVAL = 0.1
"""Seconds between two statistics while the engine works; an engine that becomes idle always tells them."""
STALL_RETRY = 0.02
STALL_LIMIT = 30.0
"""Seconds after which open requests that nobody plans are ended with an error: an answer, never a hang."""

logger = logging.getLogger(__name__)


class EngineLoop:
    """Serves the clients behind one door until told to stop or until the engine dies."""

    def __init__(self, core: EngineCore, door: Door) -> None:
        self._core = core
        self._door = door
        self._owners: dict[str, bytes] = {}
        self._clients: set[bytes] = set()
        self._buried: set[bytes] = set()  # what they sent may come after the news of their end
        self._watcher: bytes | None = None  # who alone gets the statistics, if anybody asked for them
        self._outbox: list[TokenEvent] = []
        self._stopping = False
        self._stats_due = 0.0
        self._told_idle = True
        self._working_since = time.monotonic()
        self._stalled_since: float | None = None

    def run(self) -> str | None:
        """Serve; returns why the engine died, or None after a shutdown. Every open request gets its last event."""
        reason: str | None = None
        try:
            if (descriptor := self._core.watch_fd) is not None:
                self._door.watch(descriptor)
            while not self._stopping and self._core.dead_reason is None:
                self._turn()
            reason = self._core.dead_reason
        except Exception as error:
            logger.critical("the engine's loop failed", exc_info=error)
            reason = f"the engine's loop failed: {type(error).__name__}: {error}"
        self._close(reason)
        return reason

    def _turn(self) -> None:
        core = self._core
        if not core.has_work:
            if self._door.wait():
                core.look_after_worker()
            self._working_since = time.monotonic()
        self._read_frames()
        if self._stopping:
            return
        self._outbox.extend(core.expire())
        core.launch()
        busy = core.busy
        self._deliver()  # refusals, aborts, and what the last step did if the worker had nothing to do meanwhile
        self._outbox.extend(core.finish())
        if core.busy or not core.has_work:
            self._deliver()
        if busy:
            self._stalled_since = None
        elif core.has_work and core.dead_reason is None:
            self._stall()

    def _read_frames(self) -> None:
        receive = self._door.receive
        for _ in range(FRAMES_PER_STEP):
            got = receive()
            if got is None:
                return
            self._handle(*got)
            if self._stopping:
                return

    def _handle(self, client: bytes, frame: ClientFrame) -> None:
        if client in self._buried:
            return
        self._clients.add(client)
        if isinstance(frame, Submit):
            for request in frame.requests:
                self._admit(client, request)
        elif isinstance(frame, Abort):
            self._outbox.extend(self._core.abort(frame.request_ids))
        elif isinstance(frame, Utility):
            self._deliver()  # a client that hears the answer has heard what came before it
            self._door.send(client, self._answer(frame))
        elif isinstance(frame, Forget):
            self._buried.add(frame.client)
            self._forget(frame.client, logging.DEBUG)  # whoever says so has told why
        elif isinstance(frame, Watch):
            self._watcher = client
        elif isinstance(frame, Shutdown):
            self._stopping = True

    def _admit(self, client: bytes, request: Request) -> None:
        request_id = request.request_id
        if request_id in self._owners:
            error = RequestError(f"request id {request_id!r} is already in use", "request_id")
            self._send(client, [refusal(request_id, error)])
            return
        try:
            self._core.add(request)
        except TurretError as error:
            self._send(client, [refusal(request_id, error)])
        except Exception as error:
            logger.exception("request %s could not be taken in", request_id)
            self._core.abort([request_id])
            self._send(client, [refusal(request_id, error)])
        else:
            self._owners[request_id] = client

    def _answer(self, frame: Utility) -> UtilityReply:
        try:
            return UtilityReply(call_id=frame.call_id, result=self._core.call(frame.method, frame.args))
        except Exception as error:
            if not isinstance(error, TurretError):
                logger.exception("engine method %s failed", frame.method)
            return UtilityReply(call_id=frame.call_id, error=f"{frame.method}: {error}")

    def _deliver(self) -> None:
        """Send what is in the outbox: one frame a client, with statistics when they are due. An engine that works for
        long without an event (the chunks of a long prompt) or has become idle without one (all its requests were
        aborted, or a step ran past their end) tells its statistics at least."""
        working, now = self._core.has_work, time.monotonic()
        overdue = working and now - max(self._stats_due, self._working_since) >= STATS_INTERVAL
        leaving = overdue or not (self._told_idle or working)
        if not self._outbox and not leaving:
            return
        events, self._outbox = self._outbox, []
        by_client: dict[bytes, list[TokenEvent]] = {}
        owners = self._owners
        for event in events:
            request_id = event.request_id
            client = owners.get(request_id) if event.finish_reason is None else owners.pop(request_id, None)
            if client is not None:
                by_client.setdefault(client, []).append(event)
        stats = self._due_stats()
        watcher = self._watcher
        if watcher is not None:
            if stats is not None:
                by_client.setdefault(watcher, [])
        elif leaving:
            for client in self._clients:
                by_client.setdefault(client, [])
        for client, its_events in by_client.items():
            self._send(client, its_events, stats if watcher in (None, client) else None)

    def _send(self, client: bytes, events: list[TokenEvent], stats: EngineStats | None = None) -> None:
        if not self._door.send(client, Events(events=events, stats=stats)):
            self._forget(client)

    def _forget(self, client: bytes, level: int = logging.WARNING) -> None:
        """A client went away without a word: nobody waits for its requests."""
        theirs = [request_id for request_id, owner in self._owners.items() if owner == client]
        if client in self._clients or theirs:
            logger.log(level, "client %s is gone; aborting its %d open requests", _shown(client), len(theirs))
        self._clients.discard(client)
        if self._watcher == client:
            self._watcher = None
        self._core.abort(theirs)
        for request_id in theirs:
            del self._owners[request_id]

    def _due_stats(self) -> EngineStats | None:
        now = time.monotonic()
        self._told_idle = not self._core.has_work
        if now < self._stats_due and not self._told_idle:
            return None
        self._stats_due = now + STATS_INTERVAL
        return self._core.stats()

    def _stall(self) -> None:
        """Requests are open, nothing runs, nothing was planned: a policy holds them back, or something is wrong."""
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since < STALL_LIMIT:
            self._door.wait(STALL_RETRY)
            return
        message = f"the scheduler planned nothing for {STALL_LIMIT:.0f} s while {len(self._owners)} requests were open"
        logger.error("%s; ending them", message)
        self._stalled_since = None
        self._core.abort(list(self._owners))
        for request_id, client in self._owners.items():
            self._send(client, [refusal(request_id, TurretError(message))])
        self._owners.clear()

    def _close(self, reason: str | None) -> None:
        """Last words: an end for every open request, and the reason for every client when there is one."""
        try:
            self._outbox.extend(self._core.shutdown())
        except Exception:
            logger.exception("the worker did not shut down cleanly")
        self._deliver()
        for request_id, client in list(self._owners.items()):
            self._send(client, [ended(request_id, reason)])
        self._owners.clear()
        if reason is not None:
            for client in list(self._clients):
                self._door.send(client, EngineFailure(message=reason))


def _shown(client: bytes) -> str:
    """A client's name where it has one to read, else its bytes."""
    return client.decode() if client.isascii() and client.decode().isprintable() else client.hex()
