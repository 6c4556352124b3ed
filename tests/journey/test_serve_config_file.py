"""`turret serve` from a configuration file on a Unix socket, behind a key: the options a deployment is made of."""

from __future__ import annotations

import re
import signal
import stat

import httpx
import pytest

CONFIG = """
model: {model}
served-model-name: [small, smaller]
uds: {uds}
api-key: secret
max-model-len: 128
max-num-seqs: 4
max_num_batched_tokens: 64
gpu-memory-utilization: 0.5
kv-cache-memory-bytes: 4M
block-size: 32
enable-prefix-caching: true
seed: 7
dtype: float32
device: fake
disable-frontend-multiprocessing: true
"""
KEY = {"authorization": "Bearer secret"}
BODY = {"model": "smaller", "prompt": [5, 6, 7] * 20, "max_tokens": 4, "temperature": 0}


@pytest.fixture
def client(serve, until, tiny_llama, tmp_path):
    uds = tmp_path / "turret.sock"
    file = tmp_path / "turret.yaml"
    file.write_text(CONFIG.format(model=tiny_llama, uds=uds))
    with serve("--config", str(file), "--enable-prompt-tokens-details") as started:
        until(lambda: any("ready after" in line for line in started.lines) or started.process.poll(), 180,
              lambda: started.said)  # fmt: skip
        assert stat.S_ISSOCK(uds.stat().st_mode), started.said
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(uds)), base_url="http://turret", timeout=60) as client:
            yield client
        assert started.stop(signal.SIGINT) == 0 and not uds.exists(), started.said


def test_a_deployment(client) -> None:
    assert client.get("/health").status_code == 200 and client.get("/v1/models").status_code == 401
    client.headers.update(KEY)
    models = client.get("/v1/models").json()["data"]
    assert [m["id"] for m in models] == ["small", "smaller"] and models[0]["max_model_len"] == 128
    answers = [client.post("/v1/completions", json=BODY).json() for _ in range(2)]
    assert [a["model"] for a in answers] == ["small"] * 2, "the first name is what answers say"
    assert answers[0]["choices"][0]["text"] == answers[1]["choices"][0]["text"]
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert cached == [0, 32], "one whole block of 32 of the 60 tokens"
    refused = client.post("/v1/completions", json={**BODY, "max_tokens": 100})
    assert refused.status_code == 400 and "128" in refused.json()["error"]["message"]
    facts = re.search(r"turret:cache_config_info\{(.*)\}", client.get("/metrics").text)
    assert facts and 'block_size="32"' in facts[1] and 'gpu_memory_utilization="0.5"' in facts[1]
