"""Running the app: uvicorn, signals and the drain.

Owns: the way from the first request to a clean end. Knows nothing of routes. The first Ctrl-C (or SIGTERM) takes no new
work and lets open calls finish within --shutdown-timeout; the second ends them now; each gets an answer either way.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import uvicorn

from turret.config import Config, ServerConfig
from turret.plugins.events import Shutdown
from turret.server.app import create_app, state_of
from turret.server.http_protocol import HttpLimits, bounded_http
from turret.server.lifecycle import Lifecycle
from turret.server.listeners import Listeners
from turret.server.listening import Listener
from turret.server.parts import ServerParts
from turret.server.request_log import tell_metrics, tell_pace
from turret.server.tls import TlsFiles, watch_tls

__all__ = ["HttpServer", "RunOptions", "run_server"]

log = logging.getLogger("turret.server")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_FLUSH_SECONDS = 5.0
"""Time for the last words to calls that were ended."""
_TICK_SECONDS = 1.0
"""How often the Date header is renewed: the only thing that happens on an idle server."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a server process does by itself: `signals`, hear Ctrl-C and SIGTERM; `alone`, speak for the engines (deaths,
    pace). A front end that is one of several does neither: the main process tells it when to stop, and speaks."""

    signals: bool = True
    alone: bool = True


_BY_ITSELF = RunOptions()


class HttpServer(uvicorn.Server):
    """uvicorn with turret's end: drain, then stop."""

    def __init__(
        self, config: uvicorn.Config, lifecycle: Lifecycle, drain_seconds: float, ready: Callable[[HttpServer], None],
        signals: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._ready = ready
        self._signals = signals
        self._lifecycle = lifecycle
        self._drain_seconds = drain_seconds
        self._wake = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()

    async def main_loop(self) -> None:
        """Sleep until told to stop, but for the Date header."""
        self._ready(self)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _TICK_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM mean `stop`; only a main thread can hear them."""
        if not self._signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """First call: drain, then end. Second call: end now."""
        task = asyncio.ensure_future(self._end() if not self._ending else self._end_now())
        self._ending.add(task)

    async def _end(self) -> None:
        waiting = self._lifecycle.num_open
        if waiting:
            log.warning(
                "stopping: %d open requests get %g s to finish; Ctrl-C again stops now", waiting, self._drain_seconds
            )
        ended = await self._lifecycle.drain(self._drain_seconds)
        if ended:
            log.warning("stopping: %d requests did not finish in time and were ended", ended)
            await self._lifecycle.wait_idle(_FLUSH_SECONDS)
        self._finish()

    async def _end_now(self) -> None:
        log.warning("stopping now: %d requests are ended", await self._lifecycle.expire())
        await self._lifecycle.wait_idle(_FLUSH_SECONDS)
        self._finish()

    def _finish(self) -> None:
        self.should_exit = True
        self._wake.set()


async def run_server(
    parts: ServerParts, config: Config, listener: Listener, ready: Callable[[HttpServer], None],
    options: RunOptions = _BY_ITSELF,
) -> None:  # fmt: skip
    """Serve until a signal, or until the `stop` of the server that `ready` is given once the socket accepts.

    Ends the engine and closes the listener.
    """
    app = create_app(parts, config)
    state = state_of(app)
    web = _uvicorn_config(app, config.server, listener.tls)
    server = HttpServer(web, state.lifecycle, config.server.shutdown_timeout, ready, options.signals)
    listeners = Listeners(state, parts.endpoints)
    tasks = _spokesman(parts, config, state.lifecycle) if options.alone else []
    if listener.tls is not None and config.tls.enable_ssl_refresh:
        tasks.append(asyncio.ensure_future(watch_tls(listener.tls)))
    try:
        await listeners.start()
        await server.serve(sockets=[listener.sock])
    finally:
        await listeners.stop()
        parts.hooks.notify("shutdown", Shutdown("the server was stopped"))
        for task in tasks:
            task.cancel()
        listener.close()
        if parts.grammars is not None:
            await asyncio.to_thread(parts.grammars.close)
        await parts.client.shutdown()
        if (tracer := state.generator.tracer) is not None:
            await asyncio.to_thread(tracer.close)


def _spokesman(parts: ServerParts, config: Config, lifecycle: Lifecycle) -> list[asyncio.Task[None]]:
    """What is told of the engines while the server runs."""
    tasks = [asyncio.ensure_future(_watch_engine(parts, lifecycle))]
    if not config.observability.disable_log_stats:
        tasks.append(asyncio.ensure_future(tell_pace(lambda: parts.client.stats)))
    if parts.hooks.active:
        tasks.append(asyncio.ensure_future(tell_metrics(parts.hooks, lambda: parts.client.stats)))
    return tasks


async def _watch_engine(parts: ServerParts, lifecycle: Lifecycle) -> None:
    """Say it once for each engine that dies; /health says it from then on."""
    client = parts.client
    async for reason in client.deaths():
        if lifecycle.draining:
            return
        left = sum(engine.dead_reason is None for engine in client.engines)
        rest = f"the other {left} go on" if left else "restart the server"
        log.error("the engine is gone: %s; its open requests got an error, /health answers 503; %s", reason, rest)


def _uvicorn_config(app: object, server: ServerConfig, tls: TlsFiles | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=bounded_http(HttpLimits.of(server)),  # type: ignore[arg-type]
        ssl_context_factory=None if tls is None else lambda _config, _default: tls.context,
        timeout_keep_alive=server.timeout_keep_alive,  # type: ignore[arg-type]  # handed to call_later as it is
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=None,  # set with everybody else's, by turret.cli.logs
        access_log=not server.disable_uvicorn_access_log,
        root_path=server.root_path or "",
        server_header=False,
        timeout_graceful_shutdown=round(_FLUSH_SECONDS),
    )
