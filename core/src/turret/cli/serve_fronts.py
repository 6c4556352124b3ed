"""`turret serve --api-server-count N`: the main process of a server with several front ends.

Owns: the order of such a start as a person sees it. Knows nothing of routes.
"""

from __future__ import annotations

import asyncio

import uvloop

from turret.cli.hook_options import HookOptions
from turret.cli.interrupts import Interrupts
from turret.cli.progress import StartProgress
from turret.compose.fronts import PendingFronts, begin_fronts
from turret.config import Config
from turret.plugins.events import Shutdown
from turret.server.fronts import Fronts
from turret.server.listening import Listener
from turret.server.request_log import tell_metrics, tell_pace

__all__ = ["serve_fronts"]


def serve_fronts(
    options: tuple[Config, tuple[str, ...], HookOptions], listener: Listener, progress: StartProgress,
    interrupts: Interrupts,
) -> None:  # fmt: skip
    """Serve until Ctrl-C; `options` are the configuration, which of it the user set, and what hook plugins added."""
    # Imported here: most servers have one front end.
    from turret.cli.serve import ready_lines

    config, user_set, added = options
    pending = begin_fronts(config, user_set, added.hooks, added.values)
    try:
        interrupts.check()
        lines = ready_lines(listener, pending.model_name, bool(config.server.api_key))
        uvloop.run(_serve(pending, listener, progress, lines))
    finally:
        pending.close()


async def _serve(pending: PendingFronts, listener: Listener, progress: StartProgress, lines: tuple[str, str]) -> None:
    fronts = Fronts(pending.plan, listener)
    tasks: list[asyncio.Task[None]] = []

    def ready() -> None:
        progress.say(f"ready after {progress.seconds:.1f} s: {lines[0]}, {pending.plan.count} front ends")
        progress.say(f"  try: {lines[1]}")

    try:
        await fronts.launch()
        await fronts.meanwhile(pending.finish(progress.update))
        progress.end()
        client = pending.client
        if not pending.config.observability.disable_log_stats:
            tasks.append(asyncio.ensure_future(tell_pace(lambda: client.stats)))
        if pending.hooks.active:
            tasks.append(asyncio.ensure_future(tell_metrics(pending.hooks, lambda: client.stats)))
        await fronts.run(client, pending.addresses, ready)
    finally:
        for task in tasks:
            task.cancel()
        pending.hooks.notify("shutdown", Shutdown("the server was stopped"))
        fronts.end()
        await pending.client.shutdown()
