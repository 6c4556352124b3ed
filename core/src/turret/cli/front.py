"""A front end's process of `turret serve`, as its main process started it.

Owns: its log lines and the listeners it loads. Knows nothing of routes.
"""

from __future__ import annotations

from turret.cli.logs import setup_server_logging
from turret.compose.fronts import FrontSpec, open_front
from turret.compose.hosts import plugin_host
from turret.server.front_child import FrontOpening

__all__ = ["open_front_process"]


def open_front_process(text: str) -> FrontOpening:
    """What the front of a `FrontSpec` (JSON) serves."""
    spec = FrontSpec.from_json(text)
    setup_server_logging(spec.config)
    hooks = plugin_host(spec.config.plugins, frozenset({"front"})).hooks()
    if spec.hook_values:
        hooks.cli_options()  # plugins that add options expect to have been asked for them
    return open_front(spec, hooks)
