"""Contract versions: which ranges the core can serve, natively or through an adapter.

Owns the match of a plugin's API range against the served versions. Knows nothing of any contract: an adapter is an
object that is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from turret.plugins.kinds import kind_named

__all__ = ["Adapter", "ApiMatch", "ApiTable", "as_range"]


class Adapter(Protocol):
    """Serves plugins of the previous major of one contract.

    `version` is the last MAJOR.MINOR of that major. `adapt` takes a plugin written for it and returns an object that
    satisfies today's contract.
    """

    kind: str
    version: str

    def adapt(self, plugin: object) -> object: ...


@dataclass(frozen=True, slots=True)
class ApiMatch:
    """How a range is served: `version` through `adapter` (None is natively), or not at all with `reason`, `remedy`."""

    version: str = ""
    adapter: Adapter | None = None
    reason: str = ""
    remedy: str = ""

    @property
    def ok(self) -> bool:
        return bool(self.version)


def as_range(api: str) -> str:
    """A plain MAJOR.MINOR (what an object without a manifest carries) means that version and later minors."""
    if not api or not api[0].isdigit():
        return api
    version = Version(api)
    return f">={version.major}.{version.minor},<{version.major + 1}"


@dataclass(frozen=True, slots=True)
class ApiTable:
    """The served versions of each kind: N from the table of kinds, N-1 where an adapter was passed."""

    adapters: tuple[Adapter, ...] = ()

    @classmethod
    def of(cls, adapters: Iterable[Adapter] = ()) -> ApiTable:
        """Check the adapters: each must serve the major just below the native one."""
        table = tuple(adapters)
        for adapter in table:
            native = Version(kind_named(adapter.kind).api)
            if Version(adapter.version).major != native.major - 1:
                raise ValueError(
                    f"an adapter for {adapter.kind} must serve major {native.major - 1}, not {adapter.version}"
                )
        return cls(table)

    def served(self, kind: str) -> tuple[str, ...]:
        """Served versions of a kind, the native one first."""
        older = tuple(adapter.version for adapter in self.adapters if adapter.kind == kind)
        return (kind_named(kind).api, *older)

    def match(self, kind: str, api: str) -> ApiMatch:
        """Match a range (or a plain MAJOR.MINOR) against what is served, the native version first."""
        wanted = SpecifierSet(as_range(api))
        native = kind_named(kind).api
        if wanted.contains(native):
            return ApiMatch(native)
        for adapter in self.adapters:
            if adapter.kind == kind and wanted.contains(adapter.version):
                return ApiMatch(adapter.version, adapter)
        return self._refusal(kind, api, wanted)

    def _refusal(self, kind: str, api: str, wanted: SpecifierSet) -> ApiMatch:
        native = Version(kind_named(kind).api)
        served = ", ".join(self.served(kind))
        reason = f"it is written for {kind} API {api}, this turret serves {served}"
        floors = [spec for spec in wanted if spec.operator in {">=", ">", "==", "~="}]
        lower = [Version(spec.version.removesuffix(".*")) for spec in floors]
        if any(version > native for version in lower):
            return ApiMatch(reason=reason, remedy="install a newer turret, or an older version of the plugin")
        return ApiMatch(reason=reason, remedy=f"install a version of the plugin built for {kind} API {native.major}.x")
