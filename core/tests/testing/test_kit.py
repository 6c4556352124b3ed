"""The kit finds faults: each mutant of a template fails the case that is there to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from turret.cli.plugins_new import TEMPLATES, write_package
from turret.testing import Case, cases
from turret.testing.sites import Site

PLUGIN = "plugin.py"
MANIFEST = "turret_plugin.toml"


def mutant(site: Site, tmp_path: Path, kind: str, file: str, old: str, new: str) -> list[Case]:
    root, files = write_package(kind, "acme", tmp_path)
    place = root / next(name for name in files if name.endswith(f"/{file}"))
    text = place.read_text()
    assert old in text, f"{old!r} is not in {file} any more"
    place.write_text(text.replace(old, new))
    return cases(site.install_project(root))


def outcome(case: Case) -> str:
    """What is wrong, or nothing."""
    try:
        case.check()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return ""


LESS = "class Less(DecoderFamily):\n    def {}: return {}\n\n\nARCHITECTURE = Less("

MUTANTS = [
    ("attention", PLUGIN, "hidden = there > here\n", "hidden = there > here + 1\n", "numeric/float32-d64-h8of2-b16"),
    ("attention", PLUGIN, "* call.scale", "", "numeric/float32-d64-h8of2-b16"),
    ("attention", PLUGIN, "if window is not None:", "if False:", "b16-sliding_window"),
    ("attention", PLUGIN, "if call.softcap > 0:", "if False:", "b16-softcap"),
    ("attention", PLUGIN, "// batch.block_size]", "// 16]", "numeric/float32-d64-h8of2-b8"),
    ("attention", PLUGIN, "width * item)", "width)", "numeric/float32-d64-h8of2-b16"),
    (
        "attention",
        PLUGIN,
        "query.head_size > 256",
        "query.head_size > 10**9",
        "honesty/undeclared_head_size=100003_is_refused",
    ),
    ("attention", PLUGIN, '("sinks", ', "(", "honesty/undeclared_sinks_is_refused"),
    ("attention", PLUGIN, 'DTYPES = ("float32", "bfloat16")', 'DTYPES = ("float32",)', "honesty/declared_is_served"),
    (
        "attention",
        PLUGIN,
        "pages = call.kv",
        "call.kv.nan_to_num_()\n        pages = call.kv",
        "honesty/only_its_own_slots_are_written",
    ),
    ("attention", PLUGIN, "import torch\n", "import torch\nprint('hello')\n", "static/import"),
    ("attention", PLUGIN, "def build(self, batch: AttentionBatch)", "def build(self)", "contract/build"),
    ("attention", PLUGIN, "def build(", "def prepare(", "contract/build"),
    ("attention", MANIFEST, 'modules = ["torch"]', 'modules = ["no_such_module_here"]', "static/requirements"),
    ("attention", MANIFEST, 'name = "acme"', 'name = "acmee"', "static/manifest"),
    ("attention", MANIFEST, "sinks = false", "sinks = true", "honesty/declared_is_served"),
    (
        "platform",
        PLUGIN,
        "        return [DeviceInfo",
        "        import torch\n\n        return [DeviceInfo",
        "contract/probe_needs_no_torch",
    ),
    ("platform", PLUGIN, "import os\n", "import os\n\nimport torch\n", "static/import"),
    ("platform", PLUGIN, 'if "dtype" in view.options:', "if False:", "contract/patch_leaves_the_users_options"),
    ("platform", PLUGIN, "free=free", "free=2 * total", "contract/devices_and_memory"),
    ("platform", PLUGIN, "torch.set_num_threads(env.threads)", "raise OSError", "lifecycle/worker_starts"),
    ("platform", PLUGIN, 'return {"attention": ("torch",)}.get(kind, ())', "return 7", "contract/preferences"),
    ("quant", PLUGIN, '.params["scales"][:, None]', '.params["scales"][:, None] * 1.01', "numeric/dequantize"),
    ("quant", PLUGIN, '"int8", shard_dim', '"uint8", shard_dim', "numeric/parse_and_params"),
    ("quant", PLUGIN, 'suffix = ".qweight"', 'suffix = ".weights"', "numeric/parse_and_params"),
    ("quant", PLUGIN, "if TYPE_CHECKING:", "if True:", "contract/parse_needs_no_torch"),
    ("quant", PLUGIN, "return weight\n", "weight.params['scales'] *= 2\n        return weight\n", "numeric/linear"),
    (
        "model", PLUGIN, "ARCHITECTURE = DecoderFamily(",
        LESS.format("attention_needs(self, c)", "[]"),
        "attention_needs_agree",
    ),
    (
        "model", PLUGIN, "ARCHITECTURE = DecoderFamily(",
        LESS.format("weights(self, c)", "lambda n: None"),
        "weights_cover_parameters",
    ),
    ("tool_parser", PLUGIN, "keep = _tail(self._held, OPEN)", "keep = 0", "semantic/cuts"),
    ("tool_parser", PLUGIN, "self._calls, self._calls + 1", "self._calls, self._calls", "semantic/samples"),
    ("tool_parser", PLUGIN, "return _content(held)", "return []", "semantic/samples"),
    ("tool_parser", PLUGIN, "except (ValueError, TypeError, KeyError):", "except KeyError:", "semantic/samples"),
    (
        "tool_parser",
        PLUGIN,
        "return Session()",
        "return self.__dict__.setdefault('s', Session())",
        "sessions_are_independent",
    ),
    ("reasoning_parser", PLUGIN, "keep = _tail(self._held, self._tag)", "keep = 0", "semantic/cuts"),
    ("reasoning_parser", PLUGIN, "return self._said(held)", "return []", "semantic/samples"),
]


@pytest.mark.parametrize(("kind", "file", "old", "new", "case"), MUTANTS)
def test_mutant_is_found(site: Site, tmp_path: Path, kind: str, file: str, old: str, new: str, case: str) -> None:
    found = [one for one in mutant(site, tmp_path, kind, file, old, new) if str(one).endswith(case)]
    assert found, f"no case is called {case}"
    problems = [outcome(one) for one in found]
    assert any(problems) and not any("NotApplicable" in problem for problem in problems), problems


@pytest.mark.parametrize("kind", TEMPLATES)
def test_template_itself_passes(site: Site, tmp_path: Path, kind: str) -> None:
    root, _ = write_package(kind, "acme", tmp_path)
    problems = {str(case): outcome(case) for case in cases(site.install_project(root))}
    wrong = {name: text for name, text in problems.items() if text and not text.startswith("NotApplicable")}
    assert not wrong
    assert sum(not text for text in problems.values()) >= 12


def test_distribution_that_is_not_installed() -> None:
    (case,) = cases("no-such-distribution")
    assert "install it first" in outcome(case)
