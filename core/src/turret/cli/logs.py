"""How much a server says.

Owns: the reading of the options for logs. Knows nothing of where lines go or what is logged.
"""

from __future__ import annotations

from turret.compose.logs import setup_logging
from turret.config import Config

__all__ = ["setup_server_logging"]


def setup_server_logging(config: Config) -> None:
    """The web server says what goes wrong; its start and stop are turret's to tell.

    Raises `ConfigError` for a --log-config-file that is no log configuration.
    """
    access = config.server.uvicorn_log_level
    web = {"trace": "DEBUG", "debug": "DEBUG", "info": "WARNING"}.get(access, access)
    shown = access in ("info", "debug", "trace")
    others = {"uvicorn.error": web, "uvicorn.access": "INFO" if shown else "ERROR"}
    log = config.observability
    setup_logging(log.log_level, others, log.log_config_file)
