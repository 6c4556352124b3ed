"""Every way a plugin can be broken ends in one line that names distribution, version, stage and remedy."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import threading

import pytest

import turret.errors
from turret.contracts import (
    AttentionBackend,
    ModelArchitecture,
    OpProvider,
    ParserSession,
    Platform,
    QuantMethod,
    ReasoningParser,
    SchedulerPolicy,
    ToolParser,
)
from turret.errors import LoadError, PluginError
from turret.plugins import HostSettings, PluginHost, Policy, State, unguarded
from turret.plugins.loading import public_members
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import Site, manifest_text

DEADLINE = 0.3


def host_of(
    *distributions: str, policy: Policy | None = None, contracts: dict[str, type] | None = None
) -> PluginHost:
    settings = HostSettings(deadline=DEADLINE, contracts=contracts or {})
    return PluginHost.discover(policy, settings, scan=scan_distributions(distributions))


def assert_one_line(error: pytest.ExceptionInfo[PluginError], *told: str) -> None:
    text = str(error.value)
    assert "\n" not in text and "remedy: " in text
    for part in told:
        assert part in text


def refused(site: Site, code: str, *told: str, stage: str, query: object = "q", **install: str) -> PluginHost:
    """Install `turret-attention-acme`; the explicit choice of it must fail with `told`."""
    site.attention("acme", code, **install)
    host = host_of("turret-attention-acme")
    with pytest.raises(PluginError) as caught:
        host.select("attention", query, explicit="acme")
    assert_one_line(caught, "turret-attention-acme 0.1.0", *told)
    assert caught.value.stage == stage
    return host


def test_import_error(site: Site) -> None:
    refused(site, "import no_such_module_here", "install the module 'no_such_module_here'", stage="import")


def test_any_exception_at_import(site: Site) -> None:
    refused(site, "raise SystemExit(3)", "SystemExit", stage="import")


def test_entry_point_names_what_is_not_there(site: Site) -> None:
    refused(site, "Backendd = 1", "AttributeError", stage="import")


def test_missing_shared_library(site: Site) -> None:
    code = "import ctypes\nctypes.CDLL('libacme_kernels.so.7')\n"
    refused(site, code, "libacme_kernels.so.7", "install the shared library", stage="import")


def test_constructor_that_raises(site: Site) -> None:
    code = "class Backend:\n    def __init__(self):\n        raise OSError('no scratch space')\n"
    refused(site, code, "no scratch space", stage="create")


def test_wrong_api_major(site: Site) -> None:
    refused(site, "raise RuntimeError", "attention API >=2.0,<3", "newer turret", stage="api", api=">=2.0,<3")
    assert "turret_attention_acme.plugin" not in sys.modules, "a version mismatch is refused before import"


def test_wrong_api_major_without_manifest(site: Site) -> None:
    site.install("plain", {"turret.attention/plain": "plain.plugin:B"}, "class B:\n    api = '2.0'\n")
    with pytest.raises(PluginError) as caught:
        host_of("plain").select("attention", "q", explicit="plain")
    assert_one_line(caught, "plain 0.1.0", "failed at api", "newer turret")


def test_neither_manifest_nor_api(site: Site) -> None:
    site.install("plain", {"turret.attention/plain": "plain.plugin:B"}, "class B: ...\n")
    with pytest.raises(PluginError) as caught:
        host_of("plain").select("attention", "q", explicit="plain")
    assert_one_line(caught, "plain 0.1.0", 'add `api = "1.0"`')


def test_two_distributions_with_one_name(site: Site) -> None:
    site.attention("acme", name="flash")
    site.attention("rival", name="flash")
    both = ("turret-attention-acme", "turret-attention-rival")
    with pytest.raises(PluginError) as caught:
        host_of(*both).select("attention", "q")
    assert_one_line(caught, *(f"{name} 0.1.0" for name in both), "--plugin-pin attention:flash=")
    assert caught.value.stage == "selection"
    pinned = host_of(*both, policy=Policy(pins={"attention:flash": "turret-attention-rival"}))
    assert pinned.select("attention", "q").require().distribution == "turret-attention-rival"
    denied = host_of(*both, policy=Policy(deny=("turret-attention-rival",)))
    assert denied.select("attention", "q").require().distribution == "turret-attention-acme"


def test_manifest_that_lies_about_a_capability(site: Site) -> None:
    code = """
        class Backend:
            capabilities = {"head_sizes": (64,), "sinks": False}
            def supports(self, query): ...
    """
    extra = "[provides.capabilities]\nhead_sizes = [64]\nsinks = true"
    refused(site, code, "sinks: manifest True, object False", stage="contract", extra=extra)


def test_denied_plugin(site: Site) -> None:
    site.attention("acme", "raise RuntimeError('imported')")
    host = host_of("turret-attention-acme", policy=Policy(deny=("attention:acme",)))
    with pytest.raises(PluginError) as caught:
        host.select("attention", "q", explicit="acme")
    assert_one_line(caught, "turret-attention-acme 0.1.0", "failed at deny", "remove it from --plugins-deny")
    assert host.select("attention", "q").chosen is None


def test_explicit_choice_that_is_ineligible_never_falls_back(site: Site) -> None:
    site.attention("other")
    site.attention("acme", extra="[provides.capabilities]\nhead_sizes = [128]")
    host = host_of("turret-attention-acme", "turret-attention-other")
    with pytest.raises(PluginError) as caught:
        host.select("attention", {"head_size": 64}, explicit="acme")
    assert_one_line(caught, "turret-attention-acme 0.1.0", "failed at capabilities", "head_size = 64")


@pytest.mark.parametrize("body", ["time.sleep(60)", "threading.Event().wait()"])
def test_hanging_probe(site: Site, body: str) -> None:
    code = f"import threading, time\nclass Backend:\n    def supports(self, query):\n        {body}\n"
    host = refused(site, code, "no answer within 0.3 s", stage="supports")
    (item,) = host.registry.find("attention", "acme")
    assert host.state(item) is State.BROKEN
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("turret-deadline"))


def test_slow_probe_is_named(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    code = """
        import time
        from turret.plugins import Verdict
        class Backend:
            def supports(self, query):
                time.sleep(0.05)
                return Verdict.yes()
    """
    site.attention("acme", code)
    settings = HostSettings(slow=0.01)
    host = PluginHost.discover(settings=settings, scan=scan_distributions(["turret-attention-acme"]))
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        assert host.select("attention", "q").chosen is not None
    assert "turret-attention-acme 0.1.0) took" in caplog.text


def test_slow_import_is_named(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.attention("acme", "import time\ntime.sleep(0.6)\n" + textwrap.dedent("class Backend: ...\n"))
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        host_of("turret-attention-acme").select("attention", "q")
    assert "turret-attention-acme 0.1.0) has been importing" in caplog.text


def test_answer_that_is_no_verdict(site: Site) -> None:
    code = "class Backend:\n    def supports(self, q):\n        return 'yes'\n"
    refused(site, code, "returned str", stage="supports")


def platform(site: Site, body: str, extra: str = "", top: str = "") -> PluginHost:
    code = f"{top}\nclass P:\n    api = '1.0'\n    def probe(self):\n        {body}\n"
    entry = {"turret.platforms/gpu": "turret_platform_gpu.plugin:P"}
    manifest = manifest_text("platform", "gpu", extra=f"class = 'specialised'\n{extra}")
    site.install("turret-platform-gpu", entry, code, manifest=manifest)
    cpu = "class P:\n    api = '1.0'\n    def probe(self):\n        return [1]\n"
    entry = {"turret.platforms/cpu": "turret_platform_cpu2.plugin:P"}
    site.install("turret-platform-cpu2", entry, cpu, manifest=manifest_text("platform", "cpu"))
    return host_of("turret-platform-gpu", "turret-platform-cpu2")


def test_absent_hardware_is_passed_over(site: Site) -> None:
    assert platform(site, "return []").select("platform").require().name == "cpu"


@pytest.mark.parametrize(
    ("body", "told"),
    [("raise OSError('driver 470 too old')", "driver 470"), ("import time; time.sleep(60)", "no answer")],
)
def test_failing_probe_is_fatal(site: Site, body: str, told: str) -> None:
    host = platform(site, body)
    with pytest.raises(PluginError) as caught:
        host.select("platform")
    assert_one_line(caught, "turret-platform-gpu 0.1.0", told, "--plugins-deny platform:gpu")
    assert caught.value.stage == "probe"
    assert host.select("platform", explicit="cpu").require().name == "cpu", "the user may choose the CPU in words"


def test_broken_platform_is_fatal_where_its_hardware_shows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    host = platform(site, "return []", "detect = { env = ['ACME_DEVICES'] }", top="raise ImportError('libacme')")
    assert host.select("platform").require().name == "cpu"
    monkeypatch.setenv("ACME_DEVICES", "2")
    with pytest.raises(PluginError) as caught:
        host.select("platform")
    assert_one_line(caught, "its hardware is present ($ACME_DEVICES)", "libacme")


@pytest.mark.parametrize(
    ("patch", "name"),
    [
        ("import turret.errors\nturret.errors.LoadError = ValueError", "turret.errors.LoadError"),
        ("import turret.errors\nturret.errors.extra = 1", "turret.errors.extra"),
        ("import turret.errors\ndel turret.errors.LoadError", "turret.errors.LoadError"),
        ("import turret.errors\nturret.errors.TurretError.status = 200", "turret.errors.TurretError.status"),
        (
            "import turret.plugins.policy as p\np.matches.__code__ = (lambda candidate, text: True).__code__",
            "turret.plugins.policy.matches.__code__",
        ),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '77'", "os.environ['OMP_NUM_THREADS']"),
        ("import os\nos.environ['ACME_NEW'] = '1'", "os.environ['ACME_NEW']"),
        ("import os\nos.environ.pop('ACME_OLD')", "os.environ['ACME_OLD']"),
    ],
)
def test_patching_at_import_is_named_and_undone(
    site: Site, monkeypatch: pytest.MonkeyPatch, patch: str, name: str
) -> None:
    monkeypatch.setenv("ACME_OLD", "1")
    before = (dict(os.environ), dict(vars(turret.errors)), turret.errors.TurretError.status)
    refused(site, f"{patch}\nclass Backend: ...", f"its import changed {name}", stage="import")
    assert (dict(os.environ), dict(vars(turret.errors)), turret.errors.TurretError.status) == before


def test_patching_a_core_module_it_loads_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "turret.plugins.deadline")
    code = "import turret.plugins.deadline as d\ndef mine(*a): ...\nd.run_with_deadline = mine\nclass Backend: ..."
    refused(site, code, "its import changed turret.plugins.deadline.run_with_deadline", stage="import")


def test_importing_core_modules_is_no_patch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "turret.testing.sites")
    site.attention("acme", "import turret.testing.sites\nclass Backend:\n    ...\n")
    assert host_of("turret-attention-acme").select("attention", "q").chosen is not None


CONTRACTS: dict[str, tuple[str, type]] = {
    "platform": ("turret.platforms", Platform),
    "attention": ("turret.attention", AttentionBackend),
    "quant": ("turret.quant", QuantMethod),
    "model": ("turret.models", ModelArchitecture),
    "op": ("turret.ops", OpProvider),
    "policy": ("turret.policies", SchedulerPolicy),
    "tool_parser": ("turret.parsers", ToolParser),
    "reasoning_parser": ("turret.parsers", ReasoningParser),
}
METHODS = [
    (kind, name)
    for kind, (_, contract) in CONTRACTS.items()
    for name in sorted(public_members(contract))
    if callable(getattr(contract, name, None))
]


def raising_plugin(site: Site, kind: str) -> PluginHost:
    group, contract = CONTRACTS[kind]
    lines = ["class Session:", *_raising(ParserSession), "class P:"]
    lines += [f"    {name} = '{kind}'" for name in ("name", "kind")] + ["    api = '1.0'"]
    lines += _raising(contract) if not kind.endswith("_parser") else ["    def open(self, ctx): return Session()"]
    if kind == "tool_parser":
        lines += ["    def grammar(self, tools): raise ValueError('boom')"]
    site.install("faulty", {f"{group}/it": "faulty.plugin:P"}, "\n".join(lines), manifest=manifest_text(kind, "it"))
    return host_of("faulty", contracts={kind: contract})


def _raising(contract: type) -> list[str]:
    names = [name for name in sorted(public_members(contract)) if callable(getattr(contract, name, None))]
    return [f"    def {name}(self, *args): raise ValueError('boom')" for name in names]


@pytest.mark.parametrize(("kind", "method"), [item for item in METHODS if item[1] != "open"])
def test_exception_in_each_contract_method(site: Site, kind: str, method: str) -> None:
    host = raising_plugin(site, kind)
    plugin = host.load(host.registry.find(kind, "it")[0])
    with pytest.raises(PluginError) as caught:
        getattr(plugin, method)("any", "arguments") if method == "weights" else getattr(plugin, method)("any")
    assert_one_line(caught, "faulty 0.1.0", f"failed at {method}: ValueError: boom")
    assert caught.value.stage == method and isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("kind", ["tool_parser", "reasoning_parser"])
@pytest.mark.parametrize("method", sorted(public_members(ParserSession)))
def test_exception_in_a_parser_session(site: Site, kind: str, method: str) -> None:
    host = raising_plugin(site, kind)
    session = host.load(host.registry.find(kind, "it")[0]).open(None)
    with pytest.raises(PluginError) as caught:
        getattr(session, method)()
    assert_one_line(caught, "faulty 0.1.0", f"failed at open().{method}")


def test_plugin_that_lacks_a_contract_method(site: Site) -> None:
    site.attention("acme", "class Backend:\n    api = '1.0'\n    name = 'acme'\n    def supports(self, q): ...\n")
    host = host_of("turret-attention-acme", contracts={"attention": AttentionBackend})
    with pytest.raises(PluginError) as caught:
        host.select("attention", "q", explicit="acme")
    assert_one_line(caught, "AttentionBackend asks for build, kv_layout, run, which it lacks")


def test_turrets_own_errors_and_memory_errors_pass_with_a_note(site: Site) -> None:
    code = """
        from turret.errors import LoadError
        class Backend:
            def load(self): raise LoadError("model.gguf is cut short")
            def grow(self): raise MemoryError
    """
    site.attention("acme", code)
    host = host_of("turret-attention-acme")
    plugin = host.load(host.registry.find("attention", "acme")[0])
    with pytest.raises(LoadError) as caught:
        plugin.load()
    assert caught.value.__notes__ == ["raised by plugin attention:acme (turret-attention-acme 0.1.0) in load"]
    with pytest.raises(MemoryError):
        plugin.grow()


def test_guard_is_transparent(site: Site) -> None:
    code = """
        class Inner: ...
        class Backend:
            name = "acme"
            worker_class = Inner
            def __init__(self): self.count = 0
            def add(self, n): self.count += n; return self.count
    """
    site.attention("acme", code)
    host = host_of("turret-attention-acme")
    plugin = host.load(host.registry.find("attention", "acme")[0])
    bare = unguarded(plugin)
    assert isinstance(plugin, type(bare)) and type(bare).__name__ == "Backend"
    assert plugin.worker_class is type(bare).worker_class and plugin.name == "acme"
    assert plugin.add(2) == 2 and plugin.count == 2 and bare.count == 2
    plugin.count = 7
    assert bare.count == 7 and plugin.add is plugin.add
    assert "turret-attention-acme" in repr(plugin) and unguarded(bare) is bare
    assert not hasattr(plugin, "nothing")


def test_what_a_plugin_opens_is_guarded_one_level_deep(site: Site) -> None:
    code = """
        class Provider:
            name = "acme"
            def ops(self): return {"scale": print}
            def linear_kernels(self): raise ValueError("boom")
        class P:
            api = "1.0"
            def ops(self): return Provider()
            def probe(self): return None
    """
    manifest = manifest_text("platform", "acme")
    site.install("acme", {"turret.platforms/acme": "acme.plugin:P"}, code, manifest=manifest)
    host = host_of("acme")
    provider = host.load(host.registry.find("platform", "acme")[0]).ops()
    assert provider.ops() == {"scale": print} and provider.name == "acme"
    with pytest.raises(PluginError, match=r"acme 0\.1\.0\) failed at ops\(\)\.linear_kernels: ValueError: boom"):
        provider.linear_kernels()


def test_wrong_process_is_refused_at_load(site: Site) -> None:
    site.attention("acme")
    settings = HostSettings(roles=frozenset({"front"}))
    host = PluginHost.discover(settings=settings, scan=scan_distributions(["turret-attention-acme"]))
    with pytest.raises(PluginError) as caught:
        host.load(host.registry.find("attention", "acme")[0])
    assert_one_line(caught, "failed at load", "this process is ['front']")
