"""Each page of docs/plugins builds a whole plugin: written from the page alone, installed, tested, chosen, serving."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import write_page
from serving import serve
from tiny_checkpoints import llama_tensors, quantized, write_checkpoint
from venvs import Venv

PAGES = {
    "platform": "platform.md",
    "quant": "quant.md",
    "model": "model.md",
    "tool_parser": "tool-parser.md",
}
NAMES = {"model": "AcmeForCausalLM"}
PROMPT = [5, 17, 80, 2, 9, 41]
GENERATE = """
import json, sys
from turret import LLM, SamplingParams
model, prompt, options = json.loads(sys.argv[1])
with LLM(model=model, max_model_len=64, kv_cache_memory_bytes=33554432, **options) as llm:
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    (answer,) = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
print("IDS", json.dumps(answer.outputs[0].token_ids))
"""
FRONT = """
from turret.contracts import ParserContext, ToolParser
from turret.plugins import HostSettings, Plan, PluginHost
settings = HostSettings(roles=frozenset({"front"}), contracts={"tool_parser": ToolParser})
host = PluginHost.discover(settings=settings)
host.load(host.select("tool_parser", key="acme", explicit="acme").require())
child = PluginHost.from_plan(Plan.from_json(host.freeze().to_json()), settings)
session = child.load(child.planned("tool_parser")[0]).open(ParserContext())
text = 'Now: <acme_call>{"name": "now", "arguments": {}}</acme_call>'
print([type(event).__name__ for event in session.feed(text, []) + session.finish()])
"""


@pytest.fixture(scope="module")
def installed(venv: Venv, docs: Path, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    for kind, page in PAGES.items():
        venv.install(write_page(docs / page, tmp_path_factory.mktemp(kind)))
    return venv


def generate(venv: Venv, model: Path | str, **options: object) -> list[int]:
    """Greedy token ids of an offline LLM in a process of its own."""
    argument = json.dumps([str(model), PROMPT, options])
    done = venv.run("-c", GENERATE, argument)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("IDS")]
    ids: list[int] = json.loads(line.removeprefix("IDS"))
    return ids


@pytest.mark.parametrize("kind", PAGES)
def test_listed_and_explained(installed: Venv, kind: str) -> None:
    name = NAMES.get(kind, "acme")
    listed = installed.json("plugins", "list", "--kind", kind)["plugins"]
    assert name in {entry["name"] for entry in listed}
    said = installed.json("plugins", "explain", kind, "--explicit", name)
    assert said["chosen"] == f"{kind}:{name}" and not said["problem"]


@pytest.mark.parametrize("kind", PAGES)
def test_passes_the_conformance_kit(installed: Venv, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "conformance.json"
    distribution = f"turret-{'parser' if kind == 'tool_parser' else kind}-acme"
    done = installed.turret("plugins", "test", distribution, "--output", str(output))
    assert done.returncode == 0, done.stdout
    result = json.loads(output.read_text())
    assert result["failed"] == 0 and result["passed"] >= 12


def test_attention_page_is_a_whole_package_too(docs: Path, tmp_path: Path) -> None:
    root = write_page(docs / "attention.md", tmp_path / "page")
    assert (root / "src" / "turret_attention_acme" / "plugin.py").is_file()


def test_model_from_the_page_equals_llama(installed: Venv, tmp_path: Path) -> None:
    tensors = llama_tensors()
    mine = write_checkpoint(tmp_path / "acme", tensors, architectures=["AcmeForCausalLM"], model_type="acme")
    llama = write_checkpoint(tmp_path / "llama", tensors)
    options = {"skip_tokenizer_init": True, "dtype": "float32"}
    ids = generate(installed, mine, **options)
    assert len(ids) == 12 and ids == generate(installed, llama, **options)


def test_quant_method_from_the_page_equals_its_weights_written_out(installed: Venv, tmp_path: Path) -> None:
    stored, plain = quantized(llama_tensors())
    mine = write_checkpoint(tmp_path / "acme", stored, quantization_config={"quant_method": "acme"})
    written_out = write_checkpoint(tmp_path / "plain", plain)
    options = {"skip_tokenizer_init": True, "dtype": "float32"}
    ids = generate(installed, mine, **options)
    assert len(ids) == 12 and ids == generate(installed, written_out, **options)


@pytest.mark.model
@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_platform_from_the_page_serves(installed: Venv, tmp_path: Path, port: int, executor: str) -> None:
    argv = ["demo", "--device", "acme", "--distributed-executor-backend", executor]
    with serve(installed, tmp_path / "log", port, *argv) as served:
        answer = served.complete(model="demo", prompt="The capital of France is")
        assert "Paris" in answer["choices"][0]["text"]


def test_model_and_quant_serve_in_a_spawned_worker(installed: Venv, tmp_path: Path, port: int) -> None:
    stored, _ = quantized(llama_tensors())
    changes = {"architectures": ["AcmeForCausalLM"], "model_type": "acme"}
    mine = write_checkpoint(tmp_path / "acme", stored, quantization_config={"quant_method": "acme"}, **changes)
    argv = [str(mine), "--served-model-name", "acme", "--skip-tokenizer-init", "--distributed-executor-backend", "mp"]
    with serve(installed, tmp_path / "log", port, *argv) as served:
        assert served.complete(model="acme", prompt=PROMPT)["usage"]["completion_tokens"] >= 1


def test_tool_parser_from_the_page_in_front_and_child(installed: Venv) -> None:
    done = installed.run("-c", FRONT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['ContentDelta', 'ToolCallStart', 'ToolArgumentsDelta', 'ToolCallEnd']"


@pytest.mark.model
def test_tool_parser_from_the_page_serves_in_the_front_alone(installed: Venv, tmp_path: Path, port: int) -> None:
    witness = tmp_path / "witness"
    extra = {"WITNESS_MODULES": "turret_parser_acme.plugin", "WITNESS_FILE": str(witness)}
    argv = ["demo", "--enable-auto-tool-choice", "--tool-call-parser", "acme"]
    # The model continues a message that shows the call twice, so it writes it once more.
    shown = '<acme_call>{"name": "now", "arguments": {}}</acme_call>\n' * 2
    messages = [{"role": "user", "content": "Say the call."}, {"role": "assistant", "content": shown}]
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    body = {"messages": messages, "tools": [tool], "continue_final_message": True, "add_generation_prompt": False}
    with serve(installed, tmp_path / "log", port, *argv, **extra) as served:
        limits = {"max_tokens": 40, "stop": ["\n"]}
        answer = served.complete(path="chat/completions", model="demo", **body, **limits)
        assert {int(line.split()[1]) for line in witness.read_text().splitlines()} == {served.pid}
    choice = answer["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"} and choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
