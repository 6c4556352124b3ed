"""Hooks: every listener is told, none can stop the others."""

from __future__ import annotations

import logging

import pytest

from turret.plugins import Hooks, PluginHost, Policy
from turret.plugins.events import RequestFinished, Shutdown
from turret.plugins.hooks import HOOKS
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import Site, manifest_text

HEAR = """
    from turret.plugins import hookimpl
    from turret.plugins.events import CliOption
    heard = []
    class Listener:
        @hookimpl
        def request_finished(self, event): heard.append(event.request_id)
        @hookimpl
        def add_cli_options(self): return [CliOption("audit-log", "where to write")]
"""
RAISE = """
    from turret.plugins import hookimpl
    class Listener:
        calls = 0
        @hookimpl(tryfirst=True)
        def request_finished(self, event):
            Listener.calls += 1
            if event.request_id != "fine":
                raise ValueError("boom")
"""
WRONG = """
    from turret.plugins import hookimpl
    class Listener:
        @hookimpl
        def request_finnished(self, event): ...
"""


def install(site: Site, leaf: str, code: str) -> str:
    entry = {f"turret.hooks/{leaf}": f"turret_hook_{leaf}.plugin:Listener"}
    site.install(f"turret-hook-{leaf}", entry, code, manifest=manifest_text("hook", leaf))
    return f"turret-hook-{leaf}"


def hooks(*distributions: str, policy: Policy | None = None) -> Hooks:
    return PluginHost.discover(policy, scan=scan_distributions(distributions)).hooks()


def finished(request_id: str) -> RequestFinished:
    return RequestFinished(request_id, "stop", 3, 5, 0.1)


def heard(leaf: str = "good") -> list[str]:
    import importlib

    return list(importlib.import_module(f"turret_hook_{leaf}.plugin").heard)


def test_one_raising_listener_does_not_stop_the_others(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    told = hooks(install(site, "bad", RAISE), install(site, "good", HEAR))
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        told.notify("request_finished", finished("a"))
    assert heard() == ["a"]
    assert "turret-hook-bad 0.1.0" in caplog.text and "failed at request_finished: ValueError: boom" in caplog.text


def test_listener_is_switched_off_after_errors_in_a_row(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    told = hooks(install(site, "bad", RAISE), install(site, "good", HEAR))
    for name in ("a", "b", "fine", "c", "d"):
        told.notify("request_finished", finished(name))
    assert told.active == ("hook:bad", "hook:good"), "a call that works forgives the errors before it"
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        told.notify("request_finished", finished("e"))
        told.notify("request_finished", finished("f"))
    assert told.active == ("hook:good",) and "switched off after 3 errors" in caplog.text
    assert heard() == ["a", "b", "fine", "c", "d", "e", "f"]


def test_errors_of_one_hook_count_though_others_work(site: Site) -> None:
    code = HEAR.replace("heard.append(event.request_id)", "1 / 0")
    code += "        @hookimpl\n        def shutdown(self, event): ...\n"
    told = hooks(install(site, "good", code))
    for name in ("a", "b", "c"):
        told.notify("request_finished", finished(name))
        told.notify("shutdown", Shutdown())
    assert told.active == ()


def test_hook_that_nobody_hears(site: Site) -> None:
    hooks(install(site, "good", HEAR)).notify("shutdown", Shutdown())


def test_options_that_listeners_add(site: Site) -> None:
    ((candidate, option),) = hooks(install(site, "good", HEAR)).cli_options()
    assert candidate.label == "hook:good" and option.name == "audit-log"


def test_misspelt_hook_is_named_and_skipped(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        told = hooks(install(site, "wrong", WRONG), install(site, "good", HEAR))
    assert told.active == ("hook:good",)
    assert "turret-hook-wrong 0.1.0" in caplog.text and "request_finnished" in caplog.text


def test_broken_and_denied_listeners_are_left_out(site: Site) -> None:
    names = (install(site, "bad", "import no_such_module_here"), install(site, "good", HEAR), install(site, "no", HEAR))
    assert hooks(*names, policy=Policy(deny=("hook:no",))).active == ("hook:good",)


def test_all_hooks_of_the_design_exist() -> None:
    assert {
        "add_cli_options",
        "config_resolved",
        "model_loaded",
        "request_received",
        "request_first_token",
        "request_finished",
        "metrics",
        "shutdown",
    } == HOOKS
