"""Every option that users of vLLM may bring along works or is refused with a sentence, and somebody reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import turret
from turret.cli.arguments import read_options
from turret.config import Config, Option, option_table
from turret.config.refused import refusal, refused_names
from turret.errors import ConfigError

WORKING = {o.name: o for o in option_table(Config)}
SHORT = {short: o for o in option_table(Config) for short in o.short}
ONE_WAY = {"config-format", "tensor-parallel-size", "pipeline-parallel-size"}
"""Options whose every accepted value asks for the same; the other values are refused."""
READ_WITHIN = {"structured-outputs-config"}
"""Options whose own section takes them apart: what is read elsewhere are its properties (core/tests/config)."""
SAMPLES = {
    "str": ["words"], "int": ["7"], "size": ["2k"], "float": ["0.5"], "json": ["{}", "[]"], "list": ["a", "b"],
    "flag": [],
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """One row of the list."""

    spellings: tuple[str, ...]
    need: str
    words: tuple[str, ...]


def rows() -> list[Known]:
    text = (Path(__file__).parent / "data" / "known_options.txt").read_text()
    found = []
    for line in text.splitlines():
        if line.startswith("-"):
            spellings, need, *words = line.split("\t")
            found.append(Known(tuple(spellings.split()), need, tuple(words[0].split()) if words else ()))
    return found


KNOWN = rows()
SPELLED = [(spelling, known) for known in KNOWN for spelling in known.spellings]


def working(spelling: str) -> Option | None:
    name = spelling.lstrip("-")
    return WORKING.get(name) or SHORT.get(name)


def told(argv: list[str], environ: dict[str, str] | None = None) -> str:
    """The sentence that refuses these options."""
    with pytest.raises(ConfigError) as caught:
        read_options(argv, environ or {})
    sentence = str(caught.value)
    assert len(sentence.split()) > 6 and "\n" not in sentence and "is not one of" not in sentence
    return sentence


@pytest.mark.parametrize(("spelling", "known"), SPELLED, ids=[s for s, _ in SPELLED])
def test_every_known_option_works_or_is_refused(spelling: str, known: Known) -> None:
    option, name = working(spelling), spelling.lstrip("-")
    if option is None and name != "config":
        assert told([spelling, "surely-not-neutral"]).startswith(f"{spelling}: ")
        if spelling.startswith("--"):
            variable = "TURRET_" + name.replace("-", "_").upper()
            assert told([], {variable: "surely-not-neutral"}).startswith(variable)
        return
    assert refusal(name) is None, "an option that works must not be refused"
    for word in known.words:
        assert_word_is_taken_or_refused(spelling, option, word)


def assert_word_is_taken_or_refused(spelling: str, option: Option | None, word: str) -> None:
    assert option is not None
    if option.complaint(word) is None:
        assert str(read_options([spelling, word], {})[option.field]) == str(option.words.get(word, word))
    else:
        assert told([spelling, word]).startswith(f"{spelling}: ")


def test_what_every_server_needs_works() -> None:
    missing = {k.spellings[0] for k in KNOWN if k.need == "core" and not working(k.spellings[0])} - {"--config"}
    assert not missing


@pytest.mark.parametrize("option", WORKING.values(), ids=WORKING)
def test_the_file_and_the_environment_know_every_option(option: Option, tmp_path: Path) -> None:
    texts = [option.choices[0]] if option.choices else SAMPLES[option.kind]
    if option.kind == "json":
        texts = ["{}" if isinstance(option.default, dict) else "[]"]
    if option.kind == "flag":
        argv, plain = [f"--{option.name}"], "true"
    elif option.kind == "list":
        argv, plain = [f"--{option.name}", *texts], '["a", "b"]'
    else:
        argv, plain = [f"--{option.name}", *texts], texts[0]
    expected = read_options(argv, {})
    assert list(expected) == [option.field]
    file = tmp_path / "options.yaml"
    file.write_text(f"{option.name}: {plain}\n")
    assert read_options(["--config", str(file)], {}) == expected
    variable = "TURRET_" + option.name.replace("-", "_").upper()
    assert read_options([], {variable: plain}) == expected


@pytest.fixture(scope="module")
def sources() -> str:
    """The text of every module but those that declare options."""
    root = Path(turret.__file__).parent
    files = [f for f in root.rglob("*.py") if f.parent.name != "config"]
    return "\n".join(f.read_text() for f in files)


@pytest.mark.parametrize("option", WORKING.values(), ids=WORKING)
def test_somebody_reads_every_option(option: Option, sources: str) -> None:
    """No option is accepted and ignored."""
    if option.name in ONE_WAY or option.name in READ_WITHIN:
        return
    assert re.search(rf"\.{option.field}\b|[\"']{option.field}[\"']", sources), "nobody reads it"


def test_nothing_works_and_is_refused() -> None:
    assert not set(refused_names()) & set(WORKING)
    assert len(refused_names()) == len(set(refused_names()))
