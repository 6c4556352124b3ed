"""Routes for people who develop against a server: mounted with --server-dev-mode only.

Owns: what they show and do. Knows nothing of models.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from turret.config import Config
from turret.server.json_answer import as_json
from turret.server.state import ServerState

__all__ = ["development_routes"]

SECRET = frozenset({"key", "token", "password", "secret"})
"""Words in names of options whose values nobody is shown."""
PREFIX = "TURRET_"


def development_routes(state: ServerState) -> APIRouter:
    """The router."""
    router = APIRouter(tags=["development"])

    async def server_info(config_format: Literal["text", "json"] = "text") -> Response:
        """The options in force, the environment that sets options, and the system."""
        shown = _shown(state.config)
        text = "\n".join(f"{section}.{name}={value!r}" for section, options in shown.items()
                         for name, value in options.items())  # fmt: skip
        return as_json({
            "vllm_config": text if config_format == "text" else shown,
            "vllm_env": {name: value for name, value in sorted(os.environ.items()) if _may_show(name)},
            "system_env": _system(),
        })  # fmt: skip

    async def reset_prefix_cache(reset_running_requests: bool = False, reset_external: bool = False) -> Response:
        """Forget cached prefixes; blocks that running requests hold stay, unless those are to run again from the
        start. There is no external cache."""
        await state.parts.client.call("reset_prefix_cache", reset_running_requests)
        return Response()

    router.add_api_route("/server_info", server_info, methods=["GET"], response_class=Response)
    router.add_api_route("/reset_prefix_cache", reset_prefix_cache, methods=["POST"], response_class=Response)
    return router


def _shown(config: Config) -> dict[str, dict[str, Any]]:
    """Options by section, secrets left out."""
    sections = msgspec.to_builtins(dataclasses.asdict(config), enc_hook=str)
    return {
        section: {name: "***" if value and _secret(name) else value for name, value in options.items()}
        for section, options in sections.items()
        if isinstance(options, Mapping)
    }


def _secret(name: str) -> bool:
    return not SECRET.isdisjoint(name.lower().split("_"))


def _may_show(name: str) -> bool:
    return name.startswith(PREFIX) and not _secret(name)


def _system() -> dict[str, str]:
    return {
        "turret": version("turret"), "python": sys.version.split()[0], "platform": platform.platform(),
        "machine": platform.machine(), "cpus": str(os.cpu_count()),
    }  # fmt: skip
