"""Fault: what is wrong with one plugin, said in one line.

Owns the wording that every plugin error shares: distribution, version, stage, reason, remedy. Knows nothing of how the
fault was found.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from turret.errors import PluginError

__all__ = ["Fault", "FaultError", "one_line", "traceback_of"]


def one_line(text: str) -> str:
    """Fold any text into a single line."""
    return " ".join(text.split())


def traceback_of(exc: BaseException) -> str:
    """The full traceback of `exc`, kept beside the one line for those who debug the plugin."""
    return "".join(traceback.format_exception(exc))


@dataclass(frozen=True, slots=True)
class Fault:
    """One plugin's fault. `plugin` is its qualified name, `stage` where it showed, `remedy` what to do about it."""

    plugin: str
    distribution: str
    version: str
    stage: str
    reason: str
    remedy: str
    traceback: str = ""

    def line(self) -> str:
        """The one line that users see."""
        return one_line(
            f"plugin {self.plugin} ({self.distribution} {self.version}) failed at {self.stage}: {self.reason}; "
            f"remedy: {self.remedy}"
        )

    def error(self) -> FaultError:
        return FaultError(self)


class FaultError(PluginError):
    """A PluginError that still holds its fault. Other rooms see a PluginError."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.line(), plugin=fault.plugin, stage=fault.stage)
        self.fault = fault
