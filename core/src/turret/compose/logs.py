"""Log lines of turret's own processes.

Owns: where lines go and how they look. Knows nothing of what is logged. A library leaves logging to its caller: only
processes that turret itself started call this.
"""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Mapping
from pathlib import Path

from turret.errors import ConfigError

__all__ = ["setup_logging"]

_OURS = ("turret", "uvicorn")
"""Plugins are packages `turret_<kind>_<leaf>`, so this prefix is theirs too."""


class _OursOrWarning(logging.Filter):
    """What turret and its plugins say, and only warnings of everybody else."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or record.name.startswith(_OURS)


def setup_logging(level: str, others: Mapping[str, str] | None = None, file: str | None = None) -> None:
    """Lines on standard error from `level` on; `others` are levels by logger name.

    With `file` its settings (JSON, as `logging.config.dictConfig` takes them) hold instead of all that; raises
    `ConfigError` when it cannot be read or is no such configuration.
    """
    if file is not None:
        _from_file(file)
        return
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s", "datefmt": "%H:%M:%S"}},
        "filters": {"ours": {"()": _OursOrWarning}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler", "stream": "ext://sys.stderr", "formatter": "line",
                "filters": ["ours"],
            },
        },
        "loggers": {name: {"level": its.upper()} for name, its in (others or {}).items()},
        "root": {"level": level.upper(), "handlers": ["stderr"]},
    })  # fmt: skip


def _from_file(file: str) -> None:
    try:
        logging.config.dictConfig({"disable_existing_loggers": False, **json.loads(Path(file).read_text("utf-8"))})
    except OSError as error:
        raise ConfigError(f"--log-config-file {file}: {error.strerror or error}", "log-config-file") from error
    except (ValueError, TypeError, AttributeError, ImportError) as error:
        # dictConfig wraps what went wrong; its cause is what a person can act on.
        reason = error.__cause__ or error
        raise ConfigError(f"--log-config-file {file} is no log configuration: {reason}", "log-config-file") from error
