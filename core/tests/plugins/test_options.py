"""Plugin options: syntax, schema, defaults."""

from __future__ import annotations

import re

import pytest

from turret.errors import ConfigError, PluginError
from turret.plugins import PluginHost, parse_settings
from turret.plugins.metadata import scan_distributions
from turret.testing.sites import Site

SCHEMA = """
[provides.options.properties]
level = { type = "integer", minimum = 0, default = 3 }
path = { type = "string" }
exact = { type = "boolean" }
tuning = { type = "object", properties = { tile = { type = "integer" } }, additionalProperties = false }
"""
CODE = "class Backend:\n    def __init__(self, options): self.options = options\n"


def options(site: Site, *items: str, extra: str = SCHEMA, code: str = CODE) -> dict[str, object]:
    site.attention("acme", code, extra=extra)
    scan = scan_distributions(["turret-attention-acme"])
    host = PluginHost.discover(scan=scan, given=parse_settings([f"attention:acme.{item}" for item in items]))
    return dict(host.load(host.registry.find("attention", "acme")[0]).options)


def test_values_are_json_and_strings_are_taken_as_written(site: Site) -> None:
    given = options(site, "level=5", "path=7", "exact=true", "tuning.tile=16")
    assert given == {"level": 5, "path": "7", "exact": True, "tuning": {"tile": 16}}


def test_defaults_come_from_the_schema(site: Site) -> None:
    assert options(site) == {"level": 3}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("level=-1", "level: -1 is less than the minimum"),
        ("level=high", "'high' is not of type 'integer'"),
        ("colour=red", "'colour' was unexpected"),
        ("tuning.tiles=1", "tuning: Additional properties"),
        ("level.deep=1", "level is no table"),
    ],
)
def test_values_outside_the_schema(site: Site, item: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        options(site, item)
    assert "attention:acme" in str(caught.value)


def test_plugin_without_a_schema_takes_no_options(site: Site) -> None:
    with pytest.raises(ConfigError, match="turret-attention-acme takes no options"):
        options(site, "level=1", extra="")


def test_class_that_takes_no_options(site: Site) -> None:
    with pytest.raises(PluginError, match="failed at create: it takes no options"):
        options(site, "level=1", code="class Backend: ...\n")


def test_invalid_schema_is_the_plugins_fault(site: Site) -> None:
    with pytest.raises(PluginError, match=r"failed at options: its options schema is invalid"):
        options(site, "level=1", extra="[provides.options.properties]\nlevel = { type = 'cannon' }")


@pytest.mark.parametrize("item", ["acme.level=1", "attention:acme=1", "attention:acme.level", "a:.x=1", "a:b.=1"])
def test_syntax(item: str) -> None:
    with pytest.raises(ConfigError, match=r"reads kind:name\.key=value"):
        parse_settings([item])


def test_option_of_a_plugin_that_is_not_installed(site: Site) -> None:
    site.attention("acme")
    scan = scan_distributions(["turret-attention-acme"])
    with pytest.raises(ConfigError, match="did you mean attention:acme"):
        PluginHost.discover(scan=scan, given=parse_settings(["attention:acmee.level=1"]))
