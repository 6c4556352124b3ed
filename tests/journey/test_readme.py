"""Every command of the README works as it is written (ports apart)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
README = (ROOT / "README.md").read_text()
PORT = "8000"

pytestmark = pytest.mark.model


def blocks(language: str) -> list[str]:
    """Code blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Shell commands: lines joined at backslashes, comments dropped."""
    joined = "\n".join(blocks("sh")).replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line.split(" #")[0]).strip() for line in joined.splitlines() if line.strip()]


def named(pattern: str) -> list[str]:
    return [c for c in commands() if re.search(pattern, c)]


def argv(command: str, **places: str) -> list[str]:
    """A command's words, with this environment's programs and the given replacements."""
    words = [str(BIN / w.removeprefix(".venv/bin/")) if w.startswith(".venv/bin/") else w for w in shlex.split(command)]
    return [places.get(w, w) for w in words]


def run(words: list[str], cwd: Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=seconds)


HANDLED = (
    r"^make (serve|test)$", r"^curl -N ", r"turret serve ", r"turret plugins (list|explain) ?",
    r"turret plugins (new|test) ",
)  # fmt: skip


def test_no_command_is_left_out():
    """Whoever adds a command to the README adds what runs it here."""
    assert [c for c in commands() if not any(re.search(p, c) for p in HANDLED)] == []
    assert len(blocks("python")) == 2


@pytest.mark.parametrize("target", ["serve", "test"])
def test_make_targets_are_what_they_say(target):
    assert f"make {target}" in commands()
    done = run(["make", "-n", target], ROOT)
    assert done.returncode == 0, done.stderr
    assert {"serve": "turret serve demo --port", "test": "test.sh"}[target] in done.stdout


def test_curl(demo, tmp_path):
    (command,) = named("^curl")
    words = [w.replace(f"http://127.0.0.1:{PORT}", demo) for w in argv(command)]
    done = run(words, tmp_path)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("data: [DONE]")
    assert '"delta":{"role":"assistant"' in done.stdout


def test_openai_client(demo, tmp_path):
    (code,) = (b for b in blocks("python") if "openai" in b)
    done = run([sys.executable, "-c", code.replace(f"http://127.0.0.1:{PORT}", demo)], tmp_path)
    assert done.returncode == 0 and len(done.stdout.split()) > 3, done.stderr


def test_offline(tmp_path):
    (code,) = (b for b in blocks("python") if "LLM" in b)
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The capital of France is ->  Paris" in done.stdout and "Water boils at ->" in done.stdout


@pytest.mark.parametrize("command", named("turret serve "))
def test_serve(command, serve, tmp_path):
    words = argv(command)[2:]
    reference = words[0]
    if reference == "./my-model":
        write_model(tmp_path / "my-model")
    elif reference.endswith(".gguf"):
        (tmp_path / reference).symlink_to(a_gguf())
    elif reference != "demo":
        return a_hub_id_without_network_says_so(words, tmp_path)
    words = words[:1] + [w for w in words[1:] if w not in ("--port", PORT)]
    with serve(*words, "--kv-cache-memory-bytes", "256M", cwd=tmp_path) as started:
        url = started.wait_ready()
        answer = run(["curl", "-sf", f"{url}/v1/models"], tmp_path)
        assert answer.returncode == 0
        if "--served-model-name" in words:
            assert '"id":"mine"' in answer.stdout


def a_hub_id_without_network_says_so(words: list[str], cwd: Path) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cwd)}
    done = subprocess.run(
        [str(BIN / "turret"), "serve", *words, "--host", "127.0.0.1", "--port", "0"], capture_output=True, text=True,
        env=env, cwd=cwd, timeout=120,
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("turret: error: ") and words[0] in last


@pytest.mark.parametrize("command", named("turret plugins (list|explain)"))
def test_plugins(command, tmp_path):
    done = run(argv(command), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "attention" in done.stdout


def test_a_new_plugin_can_be_written(tmp_path):
    """That it passes its own tests once installed is shown in tests/installed."""
    (command,) = named("turret plugins new ")
    done = run(argv(command), tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("turret_plugin.toml")) and list(tmp_path.rglob("test_conformance.py"))


def write_model(directory: Path) -> None:
    """A tiny random Llama as Hugging Face's library saves one."""
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers

    config = transformers.LlamaConfig(
        vocab_size=258, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>").save_pretrained(directory)


def a_gguf() -> Path:
    """The file of some GGUF model that is installed here."""
    from turret.checkpoint import resolve

    return Path(resolve(None).weight_files[0])
