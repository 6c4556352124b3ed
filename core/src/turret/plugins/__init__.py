"""Plugins: discovery, manifests, registry, selection, plan and hooks.

Owns how turret finds and chooses everything that is not core. Knows nothing of what a plugin does; imports nothing of
turret but errors, and no plugin before it is selected.
"""

from __future__ import annotations

from turret.plugins.calls import guard, guarded_call, unguarded
from turret.plugins.candidate import Candidate, State
from turret.plugins.faults import Fault
from turret.plugins.hooks import Hooks, hookimpl
from turret.plugins.host import HostSettings, PluginHost
from turret.plugins.kinds import GROUPS, KINDS, Kind
from turret.plugins.manifest import Manifest, Provided
from turret.plugins.metadata import Scan, scan_installed
from turret.plugins.options import Setting, parse_settings
from turret.plugins.plan import Plan, PlanEntry, read_plan, write_plan
from turret.plugins.policy import Policy
from turret.plugins.registry import Registry
from turret.plugins.selection import Judged, Request, Selection, Tier
from turret.plugins.verdict import Verdict
from turret.plugins.versions import Adapter, ApiTable

__all__ = [
    "GROUPS",
    "KINDS",
    "Adapter",
    "ApiTable",
    "Candidate",
    "Fault",
    "Hooks",
    "HostSettings",
    "Judged",
    "Kind",
    "Manifest",
    "Plan",
    "PlanEntry",
    "PluginHost",
    "Policy",
    "Provided",
    "Registry",
    "Request",
    "Scan",
    "Selection",
    "Setting",
    "State",
    "Tier",
    "Verdict",
    "guard",
    "guarded_call",
    "hookimpl",
    "parse_settings",
    "read_plan",
    "scan_installed",
    "unguarded",
    "write_plan",
]
