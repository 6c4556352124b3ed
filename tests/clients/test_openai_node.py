"""The official OpenAI SDK for Node; npm puts it into a folder of its own for each run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SDK = "openai@6"
END = "<|im_end|>"
"""The token that ends a message is among its tokens, not in its text."""


@pytest.fixture(scope="module")
def seen(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    shutil.copy(HERE / "openai_node.mjs", folder)
    (folder / "package.json").write_text('{"private": true}')
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", SDK], cwd=folder, check=True, timeout=300)
    done = subprocess.run(
        ["node", "openai_node.mjs", demo], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_answers(seen):
    assert seen["models"] == ["demo"] and "Paris" in seen["content"] and "Paris" in seen["completion"]
    assert seen["logprobs"].removesuffix(END) == seen["content"] and set(seen["alternatives"]) == {2}
    assert seen["usage"]["total_tokens"] == seen["usage"]["prompt_tokens"] + seen["usage"]["completion_tokens"]


def test_streams(seen):
    assert seen["streamed"] == seen["finalContent"] == seen["content"]
    assert seen["streamUsage"] == seen["usage"]
    assert seen["completionStreamed"] == seen["completion"]


def test_errors_and_aborts(seen):
    assert seen["error"]["kind"] == "BadRequestError" and seen["error"]["status"] == 400
    assert seen["error"]["param"] == "max_tokens" and "8192" in seen["error"]["message"]
    assert 3 <= seen["aborted"] < 400
