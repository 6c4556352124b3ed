"""The real hub client against a hub on this machine: what is downloaded, what is kept, how refusals are told."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

COMMIT, NEWER = "1" * 40, "2" * 40
CODE = """
from transformers import PretrainedConfig

class HomemadeConfig(PretrainedConfig):
    model_type = "homemade"

    def __init__(self, **fields):
        super().__init__(**fields)
        self.made_by = "{}"
"""
CONFIG = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()
REPOS = {
    "org/good": {
        "config.json": CONFIG, "model.safetensors": save({"w": torch.ones(2)}), "tokenizer.json": b"{}",
        "original/consolidated.safetensors": b"x" * 10, "pytorch_model.bin": b"pickle", "README.md": b"# hello",
    },
    "org/pickled": {"config.json": CONFIG, "pytorch_model.bin": b"pickle", "training_args.bin": b"pickle"},
    "org/bare": {"config.json": CONFIG},
    "org/homemade": {
        "config.json": json.dumps({"model_type": "homemade", "auto_map": {"AutoConfig": "homemade.HomemadeConfig"}}
                                  ).encode(),
        "model.safetensors": save({"w": torch.ones(2)}), "homemade.py": CODE.format("the first").encode(),
    },
    "org/just-gguf": {"m-Q4_0.gguf": b"GGUFxxxx", "m-Q8_0.gguf": b"GGUFyyyy"},
}  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """The answers the client needs: a repository's facts and files, a file's facts, a file."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        if "org/gated" in path or "org/missing" in path:
            code = "GatedRepo" if "gated" in path else "RepoNotFound"
            self.reply(403 if "gated" in path else 404, b"", {"X-Error-Code": code}, body)
            return
        repo = next((r for r in REPOS if r in path), None)
        if repo is None:
            self.reply(404, b"", {}, body)
            return
        files = REPOS[repo]
        if path.startswith("api/models/"):
            if "/revision/nowhere" in path:
                self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"}, body)
                return
            listing = [{"rfilename": name} for name in files]
            told: object = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": listing, "private": False}
            if "/tree/" in path:
                told = [{"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in files.items()]
            self.reply(200, json.dumps(told).encode(), {"Content-Type": "application/json"}, body)
            return
        revision, name = path.split("/resolve/", 1)[1].split("/", 1)
        newer = revision in (NEWER, "newer")
        self.server.asked.append(name)  # type: ignore[attr-defined]
        if name not in files:
            self.reply(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
            return
        data = files[name].replace(b"the first", b"the newer") if newer else files[name]
        commit = NEWER if newer else COMMIT
        facts = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit}
        self.reply(200, data, facts, body)

    def reply(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def resolve_apart(hub: ThreadingHTTPServer, cache: Path, *asked: tuple[str, dict[str, str]]) -> list[str]:
    """Each reference with its options, in one process apart: the client reads its endpoint from the environment once.

    Answers are checkpoints as JSON, or "LoadError: " and what it says.
    """
    code = (
        "import json, msgspec; from turret.checkpoint import ResolveOptions, resolve\n"
        "from turret.errors import LoadError\n"
        "def answer(reference, options):\n"
        f"    options = ResolveOptions(download_dir={str(cache)!r}, **options)\n"
        "    try: return msgspec.json.encode(resolve(reference, options))\n"
        "    except LoadError as exc: return f'LoadError: {exc}'.encode()\n"
        f"print(json.dumps([answer(*one).decode() for one in {asked!r}]))"
    )
    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):  # the client takes either for its offline mode
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    answers: list[str] = json.loads(done.stdout)
    return answers


def test_what_is_needed_is_downloaded_once(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    found = [json.loads(answer) for answer in resolve_apart(hub, tmp_path, ("org/good", {}))]
    assert found[0]["name"] == "org/good"
    assert [Path(p).name for p in found[0]["weight_files"]] == ["model.safetensors"]
    assert set(hub.asked) == {"config.json", "model.safetensors", "tokenizer.json"}  # type: ignore[attr-defined]
    hub.asked.clear()  # type: ignore[attr-defined]
    assert [json.loads(answer) for answer in resolve_apart(hub, tmp_path, ("org/good", {}))] == found
    assert hub.asked == []  # type: ignore[attr-defined]


def test_files_of_torch_save_are_downloaded_where_there_are_no_others(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    asked = ("org/pickled", {}), ("org/good", {"prefer_pt": True})
    for answer in resolve_apart(hub, tmp_path, *asked):
        found = json.loads(answer)
        assert found["kind"] == "pt" and [Path(p).name for p in found["weight_files"]] == ["pytorch_model.bin"]
    assert "model.safetensors" not in hub.asked and "training_args.bin" not in hub.asked  # type: ignore[attr-defined]


def config_apart(hub: ThreadingHTTPServer, cache: Path, **code: object) -> str:
    """What the code of org/homemade makes of its config, in a process apart."""
    program = (
        "from turret.checkpoint import RemoteCode, ResolveOptions, normalized_config, resolve\n"
        f"hub = ResolveOptions(download_dir={str(cache)!r})\n"
        "checkpoint = resolve('org/homemade', hub)\n"
        f"print(normalized_config(checkpoint, code=RemoteCode(hub=hub, **{code!r}))['made_by'])"
    )
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_MODULES_CACHE": str(cache / "modules"),
    }
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_code_of_a_model_runs_when_it_may_and_at_its_own_revision(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    assert "turret runs such code only with --trust-remote-code" in config_apart(hub, tmp_path)
    assert "homemade.py" not in hub.asked  # type: ignore[attr-defined]
    assert config_apart(hub, tmp_path, trust=True) == "the first"
    assert config_apart(hub, tmp_path, trust=True, revision="newer") == "the newer"


REFUSALS = [
    ("org/gated", {}, "'org/gated' is gated: accept its terms"),
    ("org/missing", {}, "'org/missing' does not exist, or is private"),
    ("org/good", {"revision": "nowhere"}, "'org/good' has no revision 'nowhere'"),
    ("org/bare", {}, "there are no .safetensors, .gguf or .bin files"),
    ("org/just-gguf", {}, "name one by its quantization: org/just-gguf:Q4_K_M"),
    ("org/just-gguf:Q4_0", {}, "m-Q4_0.gguf: it has version"),
]


def test_refusals_are_one_sentence(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    told = resolve_apart(hub, tmp_path, *((reference, extra) for reference, extra, _ in REFUSALS))
    for answer, (_, _, message) in zip(told, REFUSALS, strict=True):
        assert answer.startswith("LoadError:") and message in answer and "\n" not in answer, answer
