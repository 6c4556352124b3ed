"""Selection: which candidate serves a query, and why each of the others does not.

Owns the order of the tiers and the ranking. A pure function of the request, the candidates, the policy and the
surroundings; it imports no plugin itself: the surroundings' `ask` does, for the candidates that come that far.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from turret.errors import PluginError
from turret.plugins.candidate import Candidate, State
from turret.plugins.capabilities import facts_of, judge_capabilities, signs_of
from turret.plugins.faults import Fault, one_line
from turret.plugins.kinds import kind_named
from turret.plugins.policy import Policy, matches
from turret.plugins.requirements import judge_requirements
from turret.plugins.verdict import Verdict
from turret.plugins.versions import ApiTable

__all__ = ["Ask", "Judged", "Request", "Selection", "Surroundings", "Tier", "choose", "judge"]

STANDINGS = ("specialised", "generic", "reference")

Ask = Callable[[Candidate, object], Verdict | Fault]


class Tier(StrEnum):
    """The check a verdict came from, in the order in which they are made."""

    METADATA = "metadata"
    DENY = "deny"
    ALLOW = "allow"
    PIN = "pin"
    API = "api"
    PROCESS = "process"
    REQUIREMENTS = "requirements"
    CAPABILITIES = "capabilities"
    SUPPORTS = "supports"
    RANK = "rank"


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted: a kind, and a query that the kind's plugins understand.

    `key` is the name a checkpoint says (kinds that are looked up by name); `explicit` the user's own choice, which
    never falls back; `preferences` the platform's list, best first.
    """

    kind: str
    query: object = None
    key: str | None = None
    explicit: str | None = None
    preferences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What selection may know of the world. Without `ask` it stops at what manifests declare."""

    api: ApiTable = field(default_factory=ApiTable)
    hardware: frozenset[str] | None = None
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One candidate's verdict and the tier it came from. `fault` is set where the candidate is broken."""

    candidate: Candidate
    state: State
    tier: Tier
    verdict: Verdict
    remedy: str = ""
    fault: Fault | None = None

    def line(self) -> str:
        reasons = "; ".join(self.verdict.reasons)
        return one_line(f"{self.candidate.identity}: {self.state} [{self.tier}] {reasons}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The outcome. `chosen` is None when nobody qualifies; `problem` says what makes that an error in any case."""

    request: Request
    chosen: Candidate | None
    judged: tuple[Judged, ...]
    problem: str = ""
    stage: str = ""

    def require(self) -> Candidate:
        """The chosen candidate; raises PluginError that gives every candidate's reason."""
        self.check()
        if self.chosen is not None:
            return self.chosen
        wanted = self.request.kind if self.request.key is None else f"{self.request.kind}:{self.request.key}"
        if not self.judged:
            remedy = f"install a plugin that provides it, or see `turret plugins list` (kind {self.request.kind})"
            raise PluginError(f"no plugin provides {wanted}; remedy: {remedy}", plugin=wanted, stage="selection")
        lines = " | ".join(item.line() for item in self.judged)
        remedy = f"`turret plugins explain {self.request.kind}` shows each candidate"
        raise PluginError(f"no plugin can serve {wanted}: {lines}; remedy: {remedy}", plugin=wanted, stage="selection")

    def check(self) -> None:
        """Raise PluginError for what is an error whether or not a plugin is needed."""
        if self.problem:
            raise PluginError(self.problem, plugin=self.request.explicit or self.request.kind, stage=self.stage)

    def of(self, candidate: Candidate) -> Judged | None:
        return next((item for item in self.judged if item.candidate.id == candidate.id), None)


def choose(request: Request, candidates: Sequence[Candidate], policy: Policy, around: Surroundings) -> Selection:
    """Judge all candidates of a kind, then ask the survivors in order of rank until one agrees."""
    relevant = [item for item in candidates if _relevant(item, request)]
    judged = {item.id: judge(item, request, policy, around) for item in relevant}
    alive = [item for item in relevant if judged[item.id].verdict.ok]
    conflict = _conflict(alive, request)
    if conflict:
        return Selection(request, None, tuple(judged.values()), conflict, "selection")
    chosen: Candidate | None = None
    for item in sorted(alive, key=lambda one: _rank(one, request, policy)):
        if not _wanted(item, request):
            judged[item.id] = _passed_over(item, f"the user chose {request.explicit!r}")
        elif chosen is not None:
            judged[item.id] = _passed_over(item, f"outranked by {chosen.identity}, not asked")
        else:
            judged[item.id] = _asked(item, request, around)
            chosen = item if judged[item.id].verdict.ok else None
    selection = Selection(request, chosen, tuple(judged.values()))
    return selection if chosen or request.explicit is None else _explicit_failed(selection, candidates)


def _relevant(item: Candidate, request: Request) -> bool:
    if item.kind != request.kind:
        return False
    if request.explicit is not None and matches(item, request.explicit):
        return True
    return request.key is None or item.name == request.key or item.covers_any


def _wanted(item: Candidate, request: Request) -> bool:
    return request.explicit is None or matches(item, request.explicit)


def judge(item: Candidate, request: Request, policy: Policy, around: Surroundings) -> Judged:
    """All tiers that need no code, in order; the first refusal stands."""
    if policy.denied(item):
        return _refused(item, State.BLOCKED, Tier.DENY, "denied by --plugins-deny", "remove it from --plugins-deny")
    if not policy.allowed(item):
        return _refused(item, State.BLOCKED, Tier.ALLOW, "not in --plugins-allow", "add it to --plugins-allow")
    off = _off_until_named(item)
    if off and not (request.explicit is not None and matches(item, request.explicit)) and not policy.enabled(item):
        return _refused(item, State.BLOCKED, Tier.ALLOW, off, f"name {item.name} in the option that chooses it")
    pin = policy.pinned(item)
    if pin is not None and pin != item.distribution:
        return _refused(item, State.BLOCKED, Tier.PIN, f"{item.label} is pinned to {pin}", "change --plugin-pin")
    if item.fault is not None:
        return Judged(item, State.BROKEN, Tier.METADATA, Verdict.no(item.fault.reason), item.fault.remedy, item.fault)
    return _judge_manifest(item, request, around)


def _off_until_named(item: Candidate) -> str:
    """Why a candidate takes no part unless the user names it; empty when it does."""
    if kind_named(item.kind).opt_in:
        return f"{item.kind} plugins are off until named"
    experimental = item.provided is not None and item.provided.status == "experimental"
    return "experimental plugins are off until named" if experimental else ""


def _judge_manifest(item: Candidate, request: Request, around: Surroundings) -> Judged:
    """The tiers that read the manifest; without one all is known only after load."""
    provided = item.provided
    if provided is None:
        return Judged(item, State.DISCOVERED, Tier.METADATA, Verdict.yes("no manifest: capabilities known after load"))
    match = around.api.match(item.kind, provided.api)
    if not match.ok:
        return _refused(item, State.INCOMPATIBLE, Tier.API, match.reason, match.remedy)
    lacking = sorted(kind_named(item.kind).roles - item.processes)
    if lacking:
        where = ", ".join(sorted(item.processes))
        reason = f"a {item.kind} plugin is loaded in the {', '.join(lacking)} process, it allows only {where}"
        return _refused(item, State.INELIGIBLE, Tier.PROCESS, reason, "ask its authors to allow that process")
    needs = judge_requirements(provided.requires, around.hardware)
    if not needs.ok:
        remedy = f"install what {item.distribution} needs, or choose another {item.kind}"
        return Judged(item, State.INELIGIBLE, Tier.REQUIREMENTS, needs, remedy)
    able = judge_capabilities(provided.capabilities, request.query)
    if not able.ok:
        return Judged(item, State.INELIGIBLE, Tier.CAPABILITIES, able, f"choose another {item.kind}")
    return Judged(item, State.DISCOVERED, Tier.CAPABILITIES, able)


def _refused(item: Candidate, state: State, tier: Tier, reason: str, remedy: str) -> Judged:
    return Judged(item, state, tier, Verdict.no(reason), remedy)


def _passed_over(item: Candidate, remark: str) -> Judged:
    return Judged(item, State.DISCOVERED, Tier.RANK, Verdict.yes(remark))


def _asked(item: Candidate, request: Request, around: Surroundings) -> Judged:
    """The plugin's own answer, where it may be asked."""
    if around.ask is None:
        return Judged(item, State.SELECTED, Tier.RANK, Verdict.yes("best ranked by its manifest; not asked"))
    answer = around.ask(item, request.query)
    if isinstance(answer, Fault):
        told = Verdict.no(f"{answer.stage}: {answer.reason}")
        return Judged(item, State.BROKEN, Tier.SUPPORTS, told, answer.remedy, answer)
    if not answer.ok:
        return Judged(item, State.INELIGIBLE, Tier.SUPPORTS, answer, f"choose another {item.kind}")
    return Judged(item, State.SELECTED, Tier.SUPPORTS, answer)


def _conflict(alive: Sequence[Candidate], request: Request) -> str:
    """Two distributions that offer one (kind, name): an error that names both."""
    for item in alive:
        others = [one for one in alive if one.name == item.name and _wanted(one, request)]
        if len(others) > 1:
            offers = " and ".join(f"{one.distribution} {one.version}" for one in others)
            return one_line(
                f"{item.label} is offered by {offers}, failed at selection: two distributions use one name; "
                f"remedy: pin one with --plugin-pin {item.label}={others[0].distribution}, or uninstall the other"
            )
    return ""


def _rank(item: Candidate, request: Request, policy: Policy) -> tuple[int, int, int, int, int, str, str]:
    """Sort key, best first: the user's list, the platform's, the name before a catch-all, how many signs of a text it
    knows, class, distribution."""
    user = next((place for place, text in enumerate(policy.prefer) if matches(item, text)), len(policy.prefer))
    platform = next(
        (place for place, text in enumerate(request.preferences) if matches(item, text)), len(request.preferences)
    )
    catch_all = int(request.key is not None and item.name != request.key)
    able = item.provided.capabilities if item.provided is not None else {}
    signs = sum(signs_of(able[name], fact) for name, fact in facts_of(request.query).items() if name in able)
    return (user, platform, catch_all, -signs, STANDINGS.index(item.standing), item.distribution, item.name)


def _explicit_failed(selection: Selection, candidates: Sequence[Candidate]) -> Selection:
    """The user's choice failed: say which and why, and never fall back."""
    request = selection.request
    asked = [item for item in selection.judged if matches(item.candidate, request.explicit or "")]
    if not asked:
        names = sorted({item.name for item in candidates if item.kind == request.kind})
        near = difflib.get_close_matches((request.explicit or "").rpartition(":")[2], names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"installed: {', '.join(names) or 'none'}"
        wanted = f"{request.kind}:{(request.explicit or '').removeprefix(f'{request.kind}:')}"
        text = f"no installed plugin provides {wanted}; {hint}; remedy: install its distribution"
        return replace(selection, problem=text, stage="selection")
    item = asked[0]
    if item.fault is not None:
        return replace(selection, problem=item.fault.line(), stage=item.fault.stage)
    remedy = item.remedy or f"`turret plugins explain {request.kind}` shows each candidate"
    reason = f"chosen by name but {item.state}: {'; '.join(item.verdict.reasons)}"
    fault = item.candidate.broken(item.tier, reason, remedy)
    return replace(selection, problem=fault.line(), stage=item.tier)
