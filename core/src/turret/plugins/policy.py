"""Policy: what the user allows, denies, pins and prefers.

Owns the reading of qualified names. Knows nothing of what is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from turret.errors import ConfigError
from turret.plugins.candidate import Candidate

__all__ = ["Policy", "matches"]


def matches(candidate: Candidate, text: str) -> bool:
    """Whether a user's word means this candidate: `kind:name`, `kind:*`, a bare name or a distribution's name."""
    return text in (candidate.label, f"{candidate.kind}:*", candidate.name, candidate.distribution)


@dataclass(frozen=True, slots=True)
class Policy:
    """The user's say over plugins.

    An empty `allow` allows all. `enable` turns on plugins of kinds that are off until named. `pins` maps `kind:name` to
    the distribution that shall provide it. `prefer` lists names, best first.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)

    def denied(self, candidate: Candidate) -> bool:
        return any(matches(candidate, text) for text in self.deny)

    def allowed(self, candidate: Candidate) -> bool:
        return not self.allow or any(matches(candidate, text) for text in self.allow)

    def enabled(self, candidate: Candidate) -> bool:
        return any(matches(candidate, text) for text in (*self.enable, *self.allow))

    def pinned(self, candidate: Candidate) -> str | None:
        """The distribution pinned for this candidate's (kind, name), if any."""
        return self.pins.get(candidate.label)

    @staticmethod
    def read_pins(items: Iterable[str]) -> dict[str, str]:
        """Parse `kind:name=distribution` items; raises ConfigError."""
        pins = {}
        for item in items:
            label, _, distribution = item.partition("=")
            if ":" not in label or not distribution:
                raise ConfigError(f"a pin reads kind:name=distribution, got {item!r}", option="--plugin-pin")
            pins[label.strip()] = distribution.strip()
        return pins
