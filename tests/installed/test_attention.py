"""`turret plugins new attention acme`, unedited: tested, installed, explained, chosen, serving in every process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import serve
from venvs import Venv

MODULE = "turret_attention_acme.plugin"
PROMPT = "The capital of France is"
OFFLINE = """
import os, sys
from turret import LLM, SamplingParams
with LLM(model="demo", attention_backend="acme", max_model_len=128, kv_cache_memory_bytes=33554432) as llm:
    (answer,) = llm.generate(["The capital of France is"], SamplingParams(max_tokens=6, temperature=0), use_tqdm=False)
print("TEXT", os.getpid(), answer.outputs[0].text)
"""


@pytest.fixture(scope="module")
def acme(venv: Venv, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    parent = tmp_path_factory.mktemp("new")
    written = venv.json("plugins", "new", "attention", "acme", "--output", str(parent))
    venv.install(Path(written["directory"]))
    return venv


def witnesses(path: Path) -> set[int]:
    """Processes that imported the plugin."""
    return {int(line.split()[1]) for line in path.read_text().splitlines()} if path.exists() else set()


def test_listed_and_shown(acme: Venv) -> None:
    listed = acme.json("plugins", "list", "--kind", "attention")["plugins"]
    (mine,) = [entry for entry in listed if entry["name"] == "acme"]
    assert (mine["distribution"], mine["state"]) == ("turret-attention-acme", "discovered")
    assert "head_sizes" in acme.turret("plugins", "show", "acme").stdout


def test_passes_the_conformance_kit(acme: Venv, tmp_path: Path) -> None:
    output = tmp_path / "conformance.json"
    done = acme.turret("plugins", "test", "turret-attention-acme", "--output", str(output))
    assert done.returncode == 0, done.stdout
    result = json.loads(output.read_text())
    assert result["failed"] == 0 and result["passed"] > 40
    assert {"numeric", "honesty", "lifecycle", "end_to_end"} <= {case["section"] for case in result["cases"]}


@pytest.mark.model
def test_explained_for_a_model(acme: Venv) -> None:
    said = acme.json("plugins", "explain", "attention", "--model", "demo", "--explicit", "acme")
    assert said["chosen"] == "attention:acme"
    others = [entry for entry in said["candidates"] if entry["name"] != "acme"]
    assert others and all("the user chose 'acme'" in entry["reasons"][0] or not entry["ok"] for entry in others)


@pytest.mark.model
def test_serves_in_the_one_process_of_an_offline_llm(acme: Venv, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    done = acme.run("-c", OFFLINE, WITNESS_MODULES=MODULE, WITNESS_FILE=str(witness))
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TEXT")]
    _, pid, text = line.split(" ", 2)
    assert "Paris" in text and witnesses(witness) == {int(pid)}


@pytest.mark.model
def test_serves_in_the_engine_process(acme: Venv, tmp_path: Path, port: int) -> None:
    witness = tmp_path / "witness"
    extra = {"WITNESS_MODULES": MODULE, "WITNESS_FILE": str(witness)}
    with serve(acme, tmp_path / "log", port, "demo", "--attention-backend", "acme", **extra) as served:
        assert "Paris" in served.complete(model="demo", prompt=PROMPT)["choices"][0]["text"]
        found = witnesses(witness)
        assert len(found) == 1 and served.pid not in found, "the engine's process loads it, the front does not"


@pytest.mark.model
def test_serves_in_a_spawned_worker(acme: Venv, tmp_path: Path, port: int) -> None:
    witness = tmp_path / "witness"
    extra = {"WITNESS_MODULES": MODULE, "WITNESS_FILE": str(witness)}
    argv = ["demo", "--attention-backend", "acme", "--distributed-executor-backend", "mp"]
    with serve(acme, tmp_path / "log", port, *argv, **extra) as served:
        assert "Paris" in served.complete(model="demo", prompt=PROMPT)["choices"][0]["text"]
        found = witnesses(witness)
        assert len(found) == 2 and served.pid not in found, "the engine's process decides, the worker's computes"


def test_denied_it_stops_the_start_with_one_line(acme: Venv) -> None:
    done = acme.turret("serve", "demo", "--attention-backend", "acme", "--plugins-deny", "attention:acme")
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert done.returncode != 0 and "turret-attention-acme 0.1.0" in line and "failed at deny" in line
