"""`turret serve`: options, start, and the lines that say how it goes.

Owns: the order of a start as a person sees it. Knows nothing of engines or routes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from turret.cli.arguments import read_options
from turret.cli.hook_options import HookOptions, take_hook_options
from turret.cli.interrupts import Interrupts
from turret.cli.logs import setup_server_logging
from turret.cli.progress import StartProgress
from turret.config import Config

if TYPE_CHECKING:
    from turret.server.listening import Listener

__all__ = ["ready_lines", "run"]


def run(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    rest, added = take_hook_options(argv, os.environ)
    options = read_options(rest, os.environ)
    config = Config.from_options(options)
    setup_server_logging(config)
    with Interrupts() as interrupts:
        _serve(config, tuple(options), added, interrupts)
    return 0


def _serve(config: Config, user_set: tuple[str, ...], added: HookOptions, interrupts: Interrupts) -> None:
    progress = StartProgress(show_bars=config.load.use_tqdm_on_load)
    progress.say(f"turret {version('turret')}: serving {config.model.model or 'demo'}")
    # Imported here and not at the top: a mistake on the command line is told before anything heavy loads.
    from turret.compose.server import begin_server
    from turret.server.listening import bind
    from turret.server.middleware import load_middleware
    from turret.server.tracing import check_tracing

    load_middleware(config.server.middleware)
    check_tracing(config.observability.otlp_traces_endpoint)
    listener = bind(config.server, config.tls)
    try:
        if config.parallel.api_server_count > 1:
            from turret.cli.serve_fronts import serve_fronts

            serve_fronts((config, user_set, added), listener, progress, interrupts)
            return
        pending = begin_server(config, user_set, added.hooks, added.values)
        # The engine's process loads torch meanwhile.
        import uvloop

        from turret.server.run import HttpServer, run_server

        async def main() -> None:
            parts = await interrupts.until(pending.finish(progress.update))
            progress.end()
            lines = ready_lines(listener, parts.model_names[0], bool(config.server.api_key))

            def ready(_: HttpServer) -> None:
                progress.say(f"ready after {progress.seconds:.1f} s: {lines[0]}")
                progress.say(f"  try: {lines[1]}")

            await run_server(parts, config, listener, ready)

        uvloop.run(main())
    finally:
        listener.close()


def ready_lines(listener: Listener, model: str, keyed: bool) -> tuple[str, str]:
    """Where the server is, and a command to copy."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello!"}]}
    key = " -H 'authorization: Bearer $KEY'".replace("'", '"') if keyed else ""
    url = listener.url
    command = f"curl -N {listener.curl_option}{url}/v1/chat/completions -H 'content-type: application/json'{key}"
    return f"{url}/v1 (model {model})", f"{command} -d '{json.dumps(body)}'"
