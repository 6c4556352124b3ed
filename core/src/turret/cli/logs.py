"""Where log lines go and how they look.

Owns: the logging set-up of a turret process with a terminal. Knows nothing of what is logged.
"""

from __future__ import annotations

import logging
import logging.config

from turret.config import Config

__all__ = ["setup_logging"]


def setup_logging(config: Config) -> None:
    """Lines on standard error. The web server says what goes wrong; its start and stop are turret's to tell."""
    level = config.observability.log_level.upper()
    access = config.server.uvicorn_log_level
    web = {"trace": "DEBUG", "debug": "DEBUG", "info": "WARNING"}.get(access, access.upper())
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s", "datefmt": "%H:%M:%S"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "line"},
        },
        "loggers": {
            "turret": {"level": level},
            "uvicorn.error": {"level": web},
            "uvicorn.access": {"level": "INFO" if access in ("info", "debug", "trace") else "ERROR"},
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    })
