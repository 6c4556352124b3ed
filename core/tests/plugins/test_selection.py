"""Selection: the tiers in their order, the ranking, and what is an error."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import pytest

from turret.errors import PluginError
from turret.plugins import ApiTable, PluginHost, Policy, Request, State, Tier
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import Site, manifest_text

REFUSES = """
    from turret.plugins import Verdict

    class Backend:
        def supports(self, query):
            return Verdict.no("not on a Monday")
"""


@dataclass(frozen=True)
class Query:
    head_size: int = 64
    dtype: str = "float32"
    sliding_window: bool = False


def host_of(*leaves: str, policy: Policy | None = None) -> PluginHost:
    return PluginHost.discover(policy, scan=scan_distributions([f"turret-attention-{leaf}" for leaf in leaves]))


def verdict(host: PluginHost, name: str, query: object = None, **request: object) -> tuple[State, Tier, str]:
    selection = host.consider(Request("attention", query or Query(), **request))  # type: ignore[arg-type]
    judged = next(item for item in selection.judged if item.candidate.name == name)
    return judged.state, judged.tier, "; ".join(judged.verdict.reasons)


@pytest.mark.parametrize("text", ["attention:acme", "acme", "turret-attention-acme", "attention:*"])
def test_denied_by_any_of_its_names(site: Site, text: str) -> None:
    package = site.attention("acme")
    host = host_of("acme", policy=Policy(deny=(text,)))
    assert verdict(host, "acme") == (State.BLOCKED, Tier.DENY, "denied by --plugins-deny")
    assert package not in sys.modules


def test_allow_list_blocks_the_rest(site: Site) -> None:
    site.attention("acme")
    site.attention("other")
    host = host_of("acme", "other", policy=Policy(allow=("attention:acme",)))
    assert verdict(host, "other")[:2] == (State.BLOCKED, Tier.ALLOW)
    assert host.select("attention", Query()).require().name == "acme"


def test_deny_wins_over_allow(site: Site) -> None:
    site.attention("acme")
    assert verdict(host_of("acme", policy=Policy(allow=("acme",), deny=("acme",))), "acme")[1] is Tier.DENY


def test_requirements_and_hardware(site: Site) -> None:
    site.attention("acme", extra="requires = { modules = ['no_such_module_here'], hardware = ['cpu::amx'] }")
    host = host_of("acme")
    host.found_hardware(["cpu", "cpu::avx2"])
    state, tier, reasons = verdict(host, "acme")
    assert (state, tier) == (State.INELIGIBLE, Tier.REQUIREMENTS)
    assert "'no_such_module_here' is not installed" in reasons and "cpu::amx is not here" in reasons


def test_process_tier(site: Site) -> None:
    site.attention("acme", extra="processes = ['front']")
    assert verdict(host_of("acme"), "acme")[:2] == (State.INELIGIBLE, Tier.PROCESS)


@pytest.mark.parametrize(
    ("capabilities", "query", "ok"),
    [
        ("head_sizes = [64, 128]", Query(head_size=128), True),
        ("head_sizes = [64, 128]", Query(head_size=80), False),
        ("head_sizes = { min = 32, max = 256, multiple_of = 8 }", Query(head_size=80), True),
        ("head_sizes = { min = 32, max = 256, multiple_of = 8 }", Query(head_size=84), False),
        ("head_sizes = { min = 32, max = 256, multiple_of = 8 }", Query(head_size=512), False),
        ("head_sizes = ['*']", Query(head_size=7), True),
        ("dtypes = ['bfloat16']", Query(), False),
        ("dtype = 'float32'", Query(), True),
        ("sliding_window = false", Query(sliding_window=True), False),
        ("sliding_window = false", Query(), True),
        ("sliding_window = true", Query(sliding_window=True), True),
    ],
)
def test_declared_capabilities_decide_before_import(site: Site, capabilities: str, query: Query, ok: bool) -> None:
    package = site.attention("acme", extra=f"[provides.capabilities]\n{capabilities}")
    selection = host_of("acme").select("attention", query)
    assert (selection.chosen is not None) is ok
    assert (package in sys.modules) is ok
    if not ok:
        assert selection.judged[0].tier is Tier.CAPABILITIES


def test_plugin_may_refuse_and_the_next_is_asked(site: Site) -> None:
    site.attention("acme", REFUSES, extra="class = 'specialised'")
    site.attention("other", extra="class = 'reference'")
    host = host_of("acme", "other")
    assert verdict(host, "acme") == (State.INELIGIBLE, Tier.SUPPORTS, "not on a Monday")
    assert host.select("attention", Query()).require().name == "other"


def test_rank_user_then_platform_then_class_then_distribution(site: Site) -> None:
    site.attention("a", extra="class = 'reference'")
    site.attention("b", extra="class = 'generic'")
    site.attention("c", extra="class = 'specialised'")
    site.attention("d", extra="class = 'specialised'")
    leaves = ("a", "b", "c", "d")
    assert host_of(*leaves).select("attention", Query()).require().name == "c"
    assert host_of(*leaves).select("attention", Query(), preferences=("b", "d")).require().name == "b"
    preferring = host_of(*leaves, policy=Policy(prefer=("attention:a",)))
    assert preferring.select("attention", Query(), preferences=("b",)).require().name == "a"
    assert preferring.select("attention", Query(), explicit="d").require().name == "d"


def test_outranked_candidates_are_not_imported(site: Site) -> None:
    site.attention("best", extra="class = 'specialised'")
    package = site.attention("other")
    host = host_of("best", "other")
    selection = host.select("attention", Query())
    judged = next(item for item in selection.judged if item.candidate.name == "other")
    assert judged.tier is Tier.RANK and "outranked by attention:best" in judged.line()
    assert package not in sys.modules


def test_without_asking_nothing_is_imported(site: Site) -> None:
    package = site.attention("acme", REFUSES)
    selection = host_of("acme").consider(Request("attention", Query()), ask=False)
    assert selection.require().name == "acme" and package not in sys.modules


def test_selection_is_repeatable(site: Site) -> None:
    site.attention("acme", REFUSES)
    site.attention("other")
    host = host_of("acme", "other")
    assert host.consider(Request("attention", Query())) == host.consider(Request("attention", Query()))


def test_a_kind_looked_up_by_name_prefers_the_name_to_a_catch_all(site: Site) -> None:
    catch_all = '[[provides]]\nkind = "model"\nname = "any"\napi = ">=1.0"\ncovers_any = true'
    tables = manifest_text("model", "Llama") + catch_all
    entries = {"turret.models/Llama": "models.plugin:M", "turret.models/any": "models.plugin:M"}
    site.install("models", entries, "class M:\n    api = '1.0'\n", manifest=tables)
    host = PluginHost.discover(scan=scan_distributions(["models"]))
    assert host.select("model", key="Llama").require().name == "Llama"
    assert host.select("model", key="Other").require().name == "any"
    assert host.select("model", key="Llama", explicit="any").require().name == "any"


def test_nothing_provides_it(site: Site) -> None:
    selection = PluginHost.discover(scan=scan_distributions([])).select("quant", key="gptq")
    assert selection.chosen is None
    with pytest.raises(PluginError, match="no plugin provides quant:gptq; remedy: install"):
        selection.require()


def test_all_refused_gives_every_reason(site: Site) -> None:
    site.attention("acme", REFUSES)
    site.attention("other", extra="[provides.capabilities]\nhead_sizes = [128]")
    with pytest.raises(PluginError, match=r"not on a Monday.*outside the declared head_sizes") as caught:
        host_of("acme", "other").select("attention", Query()).require()
    assert "\n" not in str(caught.value)


def test_unknown_explicit_choice_suggests_a_name(site: Site) -> None:
    site.attention("flashinfer")
    with pytest.raises(PluginError, match="attention:flashinfr; did you mean flashinfer"):
        host_of("flashinfer").select("attention", Query(), explicit="flashinfr")


def test_opt_in_kind_is_off_until_named(site: Site) -> None:
    manifest = manifest_text("endpoint", "extra")
    code = "class E:\n    api = '1.0'\n"
    site.install("ends", {"turret.endpoints/extra": "ends.plugin:E"}, code, manifest=manifest)
    scan = scan_distributions(["ends"])
    assert PluginHost.discover(scan=scan).select("endpoint").judged[0].tier is Tier.ALLOW
    assert PluginHost.discover(scan=scan).select("endpoint", explicit="extra").require().name == "extra"
    assert PluginHost.discover(Policy(enable=("extra",)), scan=scan).select("endpoint").require().name == "extra"


def test_automatic_broken_candidate_is_skipped_with_one_warning(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.attention("acme", "import no_such_module_here", extra="class = 'specialised'")
    site.attention("other")
    host = host_of("acme", "other")
    with caplog.at_level(logging.WARNING, "turret.plugins"):
        assert host.select("attention", Query()).require().name == "other"
        assert host.select("attention", Query(head_size=128)).require().name == "other"
    (record,) = caplog.records
    assert "turret-attention-acme 0.1.0" in record.getMessage() and "(skipped)" in record.getMessage()
    (broken,) = host.registry.find("attention", "acme")
    fault = host.fault(broken)
    assert host.state(broken) is State.BROKEN
    assert fault is not None and fault.stage == "import" and "ModuleNotFoundError" in fault.traceback


def test_states_of_a_life(site: Site) -> None:
    site.attention("acme")
    host = host_of("acme")
    (item,) = host.registry.find("attention", "acme")
    assert host.state(item) is State.DISCOVERED
    host.select("attention", Query())
    assert host.state(item) is State.SELECTED
    assert host.load(item) is host.load(item)
    assert host.state(item) is State.ACTIVE


def test_api_ranges() -> None:
    class Old:
        kind = "attention"
        version = "0.9"

        def adapt(self, plugin: object) -> object:
            return ("adapted", plugin)

    table = ApiTable.of([Old()])
    assert table.served("attention") == ("1.0", "0.9")
    assert table.match("attention", ">=1.0,<2").adapter is None
    assert table.match("attention", "1.0").version == "1.0"
    assert table.match("attention", ">=0.4,<1").adapter is not None
    assert "newer turret" in table.match("attention", ">=2.0,<3").remedy
    assert "newer turret" in table.match("attention", "1.7").remedy
    assert "API 1.x" in ApiTable().match("attention", ">=0.4,<1").remedy
    with pytest.raises(ValueError, match="must serve major 0"):
        ApiTable.of([type("Wrong", (Old,), {"version": "1.3"})()])


def test_previous_major_is_served_through_an_adapter(site: Site) -> None:
    class Old:
        kind = "attention"
        version = "0.9"

        def adapt(self, plugin: object) -> object:
            return type("Adapted", (), {"inner": plugin, "supports": lambda self, query: plugin.can(query)})()  # type: ignore[attr-defined]

    code = """
        from turret.plugins import Verdict
        class Backend:
            def can(self, query):
                return Verdict.yes("through the adapter")
    """
    site.attention("acme", code, api=">=0.5,<1")
    from turret.plugins import HostSettings

    settings = HostSettings(api=ApiTable.of([Old()]))
    host = PluginHost.discover(settings=settings, scan=scan_distributions(["turret-attention-acme"]))
    selection = host.select("attention", Query())
    assert selection.judged[0].verdict.reasons == ("through the adapter",)
    assert type(host.load(selection.require()).inner).__name__ == "Backend"
