"""The plugin host: the one object through which a process finds, chooses, loads and freezes plugins.

Owns the states of this process's plugins and their instances. Knows nothing of what any of them does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turret.errors import ConfigError, PluginError, TurretError
from turret.plugins.calls import guard, guarded_call
from turret.plugins.candidate import Candidate, State
from turret.plugins.deadline import run_with_deadline
from turret.plugins.faults import Fault, FaultError, one_line, traceback_of
from turret.plugins.hooks import Hooks
from turret.plugins.kinds import ROLES, kind_named
from turret.plugins.loading import check_object, import_code, instantiate
from turret.plugins.metadata import Scan, scan_distributions, scan_installed
from turret.plugins.options import Setting, check_known, options_for
from turret.plugins.plan import Plan
from turret.plugins.policy import Policy
from turret.plugins.registry import Registry
from turret.plugins.requirements import hardware_shown
from turret.plugins.selection import Judged, Request, Selection, Surroundings, choose, judge
from turret.plugins.verdict import Verdict
from turret.plugins.versions import ApiTable

__all__ = ["HostSettings", "PluginHost"]

logger = logging.getLogger("turret.plugins")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How a host behaves.

    `roles` are the parts this process plays. `contracts` maps a kind to the Protocol its plugins must satisfy.
    `deadline` is the time, in seconds, that a plugin has to answer a query or a probe; one that takes longer than
    `slow` is named in the log, as is an import that takes longer than `deadline`, which nothing can interrupt.
    """

    roles: frozenset[str] = ROLES
    api: ApiTable = field(default_factory=ApiTable)
    contracts: Mapping[str, type] = field(default_factory=dict)
    deadline: float = 30.0
    slow: float = 5.0


class PluginHost:
    """Find, choose, load, freeze.

    A parent process calls `discover`, then `select` and `load`, then `freeze`; its children call `from_plan`, which
    knows exactly what the plan holds, and `select` or `planned` and `load` there.
    """

    def __init__(self, registry: Registry, policy: Policy, settings: HostSettings) -> None:
        self.registry = registry
        self.policy = policy
        self.settings = settings
        self._hardware: frozenset[str] | None = None
        self._options: Mapping[tuple[str, str, str], Mapping[str, Any]] = {}
        self._given: tuple[Setting, ...] = ()
        self._states: dict[tuple[str, str, str], State] = {}
        self._faults: dict[tuple[str, str, str], Fault] = {}
        self._loaded: dict[tuple[str, str, str], object] = {}
        self._probed: dict[tuple[str, str, str], Sequence[Any]] = {}
        self._warned: set[tuple[str, str, str]] = set()
        self._lock = threading.RLock()

    @classmethod
    def discover(
        cls,
        policy: Policy | None = None,
        settings: HostSettings | None = None,
        *,
        given: Sequence[Setting] = (),
        lock: Plan | None = None,
        scan: Scan | None = None,
    ) -> PluginHost:
        """A host over what is installed. `given` are the user's plugin options, `lock` a lockfile to enforce.

        Raises ConfigError for options of plugins that are not there, PluginError (stage lock) when what is installed
        differs from the lockfile.
        """
        registry = Registry.build(scan_installed() if scan is None else scan)
        if lock is not None:
            registry = _enforced(lock, registry, "lock", "reinstall what was locked, or write a new lockfile")
        check_known(given, registry)
        host = cls(registry, policy or Policy(), settings or HostSettings())
        host._given = tuple(given)
        return host

    @classmethod
    def from_plan(cls, plan: Plan, settings: HostSettings | None = None) -> PluginHost:
        """A host that holds exactly the plan's plugins with the plan's options; raises PluginError (stage plan)."""
        registry = Registry.build(scan_distributions(plan.distributions()))
        remedy = "install the same distributions in every process and on every machine of this run, and start it anew"
        host = cls(_enforced(plan, registry, "plan", remedy), Policy(), settings or HostSettings())
        # The parent's policy chose them, opt-in kinds included.
        host.policy = Policy(enable=tuple(entry.label for entry in plan.entries))
        host._options = {(entry.kind, entry.name, entry.distribution): entry.options for entry in plan.entries}
        return host

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Further candidates, found otherwise than by metadata (`turret.plugins.files`)."""
        every = sorted((*self.registry.candidates, *candidates), key=lambda item: (item.kind, item.name))
        self.registry = replace(self.registry, candidates=tuple(every))

    def found_hardware(self, features: Iterable[str]) -> None:
        """Tell what the platform's probe found (`cpu`, `cpu::avx2`, …); until then hardware is not judged."""
        self._hardware = frozenset(features)

    def select(
        self,
        kind: str,
        query: object = None,
        *,
        explicit: str | None = None,
        preferences: Sequence[str] = (),
        key: str | None = None,
    ) -> Selection:
        """Choose one plugin, asking the candidates in order of rank; use `.require()` where one is needed.

        `key` is the name that a checkpoint says, for kinds that are looked up by name. Raises PluginError when the
        explicit choice fails, when two distributions offer the name, and when hardware is present whose platform is
        broken. A broken candidate that nobody asked for is skipped with one warning.
        """
        request = Request(kind_named(kind).name, query, key, explicit, tuple(preferences))
        selection = self.consider(request)
        selection.check()
        for judged in selection.judged:
            self._note(judged)
        if kind == "platform" and explicit is None:
            _refuse_broken_accelerator(selection)
        return selection

    def consider(self, request: Request, *, ask: bool = True) -> Selection:
        """The selection without its consequences: raises nothing, selects nothing. Without `ask`, imports nothing."""
        around = Surroundings(self.settings.api, self._hardware, self._ask if ask else None)
        return choose(request, self.registry.of_kind(request.kind), self.policy, around)

    def survey(self) -> tuple[Judged, ...]:
        """Every candidate with its verdict by metadata, manifest and policy alone. Imports nothing."""
        around = Surroundings(self.settings.api, self._hardware)
        return tuple(judge(item, Request(item.kind), self.policy, around) for item in self.registry.candidates)

    def planned(self, kind: str) -> tuple[Candidate, ...]:
        """The candidates of a kind: in a host made from a plan, exactly those the parent chose."""
        return self.registry.of_kind(kind)

    def load(self, candidate: Candidate) -> Any:
        """The plugin's instance: imported, made with its options, checked, adapted, guarded; one per host.

        Raises PluginError that names distribution, version, stage and remedy.
        """
        with self._lock:
            if candidate.id not in self._loaded:
                self._loaded[candidate.id] = guard(candidate, self._create(candidate))
            self._states[candidate.id] = State.ACTIVE
            return self._loaded[candidate.id]

    def devices(self, candidate: Candidate) -> Sequence[Any]:
        """What the probe of a platform that was selected here found; it is asked once, and under the deadline."""
        return self._probed[candidate.id]

    def options(self, candidate: Candidate) -> Mapping[str, Any]:
        """The candidate's options, validated; raises ConfigError."""
        frozen = self._options.get(candidate.id)
        return options_for(candidate, self._given) if frozen is None else frozen

    def hooks(self) -> Hooks:
        """All listeners the policy lets through, loaded and registered; broken ones are skipped with a warning."""
        listeners = []
        for item in self.registry.of_kind("hook"):
            selection = self.select("hook", explicit=None, key=item.name)
            if selection.chosen is None or selection.chosen.id != item.id:
                continue
            try:
                # pluggy inspects the methods themselves, so listeners are registered bare; Hooks wraps each call.
                listeners.append((item, self._create(item)))
                self._states[item.id] = State.ACTIVE
            except PluginError as exc:
                logger.warning("%s (skipped)", exc)
        return Hooks(listeners)

    def freeze(self) -> Plan:
        """All plugins selected or loaded so far, exactly, for the children."""
        live = [item for item in self.registry.candidates if self.state(item) in (State.SELECTED, State.ACTIVE)]
        return Plan.of((item, self.options(item)) for item in live)

    def lock(self) -> Plan:
        """Everything the policy lets through, exactly, for a lockfile. Imports nothing."""
        kept = [item for item in self.registry.candidates if item.fault is None]
        kept = [item for item in kept if self.policy.allowed(item) and not self.policy.denied(item)]
        return Plan.of((item, {}) for item in kept)

    def state(self, candidate: Candidate) -> State:
        if candidate.fault is not None:
            return State.BROKEN
        return self._states.get(candidate.id, State.DISCOVERED)

    def fault(self, candidate: Candidate) -> Fault | None:
        """What broke the candidate, with the traceback, if anything did."""
        return candidate.fault or self._faults.get(candidate.id)

    def _create(self, candidate: Candidate) -> object:
        if candidate.fault is not None:
            raise candidate.fault.error()
        if not candidate.processes & self.settings.roles:
            reason = f"it may be loaded in {sorted(candidate.processes)}, this process is {sorted(self.settings.roles)}"
            raise candidate.broken("load", reason, "choose a plugin that serves this process").error()
        options = self.options(candidate)
        try:
            target = self._imported(candidate)
            plugin = instantiate(candidate, target, options)
            contract = self.settings.contracts.get(candidate.kind)
            match = self._match(candidate, plugin)
            if match is not None:
                plugin = guarded_call(candidate, "adapt", match.adapt, plugin)
            check_object(candidate, plugin, self.settings.api, contract)
        except PluginError as exc:
            self._broke(candidate, exc, "load")
            raise
        return plugin

    def _match(self, candidate: Candidate, plugin: object) -> Any:
        """The adapter for this plugin's API version, if it needs one."""
        api = candidate.provided.api if candidate.provided else getattr(plugin, "api", None)
        if not isinstance(api, str):
            return None
        match = self.settings.api.match(candidate.kind, api)
        if candidate.provided is not None and not match.ok:
            raise candidate.broken("api", match.reason, match.remedy).error()
        return match.adapter

    def _imported(self, candidate: Candidate) -> object:
        """Import with an eye on the clock: nothing can interrupt an import, but its name can be told."""
        told = "%s has been importing for %.0f s; to go on without it use --plugins-deny %s"
        seconds = self.settings.deadline
        watch = threading.Timer(seconds, logger.warning, (told, candidate.identity, seconds, candidate.label))
        watch.daemon = True
        watch.start()
        try:
            return import_code(candidate)
        finally:
            watch.cancel()

    def _ask(self, candidate: Candidate, query: object) -> Verdict | Fault:
        """The plugin's own answer to a query (for platforms: whether its probe finds a device)."""
        with self._lock:
            if candidate.id in self._faults:
                return self._faults[candidate.id]
            known = self._states.get(candidate.id)
            try:
                plugin = self.load(candidate)
            except ConfigError:
                raise  # its options are the user's, and so is the mistake
            except TurretError as exc:
                return self._broke(candidate, exc, "load")
            self._states[candidate.id] = known or State.DISCOVERED
        kind = kind_named(candidate.kind)
        method = getattr(plugin, kind.asks, None)
        if method is None or (query is None and kind.asks == "supports"):
            return Verdict.yes("it takes any query" if method is None else "no query to ask about")
        arguments = () if kind.asks == "probe" else (query,)
        started = time.monotonic()
        try:
            answer = run_with_deadline(lambda: method(*arguments), self.settings.deadline, candidate.label)
        except TimeoutError as exc:
            remedy = f"deny it with --plugins-deny {candidate.label}, or look at what it waits for"
            reason = f"no answer within {self.settings.deadline:g} s"
            return self._record(candidate, candidate.broken(kind.asks, reason, remedy, traceback_of(exc)))
        except (Exception, SystemExit) as exc:
            return self._broke(candidate, exc, kind.asks)
        spent = time.monotonic() - started
        if spent > self.settings.slow:
            logger.warning("%s took %.1f s to answer %s()", candidate.identity, spent, kind.asks)
        return self._verdict(candidate, kind.asks, answer)

    def _verdict(self, candidate: Candidate, asked: str, answer: object) -> Verdict | Fault:
        if isinstance(answer, Verdict):
            return answer
        if isinstance(answer, (list, tuple)):
            self._probed[candidate.id] = answer
            return Verdict.yes(f"{len(answer)} device(s)") if answer else Verdict.no("its probe found no device")
        reason = f"{asked}() returned {type(answer).__name__}, not a Verdict"
        remedy = f"report it to the authors of {candidate.distribution}"
        return self._record(candidate, candidate.broken(asked, reason, remedy))

    def _broke(self, candidate: Candidate, exc: BaseException, stage: str) -> Fault:
        """Keep what broke a candidate."""
        if isinstance(exc, FaultError):
            return self._record(candidate, exc.fault)
        remedy = f"report it to {candidate.distribution}'s authors, or deny it with --plugins-deny {candidate.label}"
        reason = one_line(f"{type(exc).__name__}: {exc}")
        return self._record(candidate, candidate.broken(stage, reason, remedy, traceback_of(exc)))

    def _record(self, candidate: Candidate, fault: Fault) -> Fault:
        self._states[candidate.id] = State.BROKEN
        self._faults[candidate.id] = fault
        self._loaded.pop(candidate.id, None)
        return fault

    def _note(self, judged: Judged) -> None:
        """Take over a verdict's state; a broken candidate that nobody asked for is named once."""
        item = judged.candidate
        if self._states.get(item.id) is not State.ACTIVE:
            self._states[item.id] = judged.state
        if judged.fault is not None and item.id not in self._warned:
            self._warned.add(item.id)
            logger.warning("%s (skipped)", judged.fault.line())


def _enforced(plan: Plan, registry: Registry, stage: str, remedy: str) -> Registry:
    """Only the plan's plugins, after a check that they are installed exactly so."""
    mismatches = plan.mismatches(registry)
    if mismatches:
        text = f"plugins differ from the {stage}, failed at {stage}: {'; '.join(mismatches)}; remedy: {remedy}"
        raise PluginError(one_line(text), stage=stage)
    ids = {(entry.kind, entry.name, entry.distribution) for entry in plan.entries}
    return replace(registry, candidates=tuple(item for item in registry.candidates if item.id in ids))


def _refuse_broken_accelerator(selection: Selection) -> None:
    """Hardware whose platform is broken stops the start: the CPU is never an implicit fallback from it.

    A probe that fails says that hardware is there but unusable; a platform that cannot even be asked counts when the
    signs in its manifest (device files, environment) show its hardware.
    """
    for judged in selection.judged:
        item = judged.candidate
        if judged.state not in (State.BROKEN, State.INCOMPATIBLE):
            continue
        signs = hardware_shown(item.provided.detect) if item.provided is not None else ()
        probed = judged.fault is not None and judged.fault.stage == kind_named("platform").asks
        if signs or probed:
            shown = f"its hardware is present ({', '.join(signs)}), but " if signs else ""
            reason = f"{shown}{'; '.join(judged.verdict.reasons)}"
            remedy = f"{judged.remedy}, or say --plugins-deny {item.label} to run without that hardware"
            raise item.broken("probe" if probed else judged.tier, reason, remedy).error()
