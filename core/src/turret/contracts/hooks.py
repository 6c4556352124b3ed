"""Contract `hook`: what lifecycle listeners implement and are told.

Owns nothing: the marker and the events stand in `turret.plugins` and are repeated here as the names that plugin authors
import. A listener marks methods with `hookimpl`; each takes one `event`. Version 1.0.
"""

from turret.plugins.events import (
    CliOption,
    ConfigResolved,
    MetricsSnapshot,
    ModelLoaded,
    RequestFinished,
    RequestFirstToken,
    RequestReceived,
    Shutdown,
)
from turret.plugins.hooks import hookimpl

__all__ = [
    "CliOption",
    "ConfigResolved",
    "MetricsSnapshot",
    "ModelLoaded",
    "RequestFinished",
    "RequestFirstToken",
    "RequestReceived",
    "Shutdown",
    "hookimpl",
]
