"""What one client does to another: hanging up at any stage costs nothing, a very long prompt holds up nobody."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import socket

import httpx
import pytest

LONG = 2000


@contextlib.contextmanager
def asking(running, **body):
    """An open request; leaving the block hangs up."""
    host, port = running.url.removeprefix("http://").split(":")
    sent = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + sent)
        yield


def figures(running):
    """Running, waiting, share of the cache in use and steps made, as the metrics say."""
    text = httpx.get(f"{running.url}/metrics").text
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "iteration_tokens_total_count",
             "generation_tokens_total")  # fmt: skip
    return {name: float(re.search(rf"^turret:{name}{{.*}} (\S+)$", text, re.MULTILINE)[1]) for name in names}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_hanging_up_in_the_queue(serve, until, stream, n):
    with serve({"step_seconds": 0.02, "max_num_seqs": 1}) as running, asking(running, prompt="x", max_tokens=400):
        until(lambda: figures(running)["num_requests_running"] == 1)
        with asking(running, prompt="Hello", max_tokens=400, n=n, stream=stream):
            until(lambda: figures(running)["num_requests_waiting"] == n)
            assert running.state.generator.queue.num_requests == n
        until(lambda: figures(running)["num_requests_waiting"] == 0)
        assert running.state.generator.queue.num_requests == 0
        assert figures(running)["num_requests_running"] == 1, "the one that runs goes on"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("n", [1, 3])
def test_hanging_up_gives_the_blocks_back_within_the_steps_under_way(serve, until, stream, stage, n):
    null = {"max_model_len": 4096, "max_num_batched_tokens": 64, "token_seconds": 0.0005, "step_seconds": 0.01}
    with serve(null) as running:
        prompt = "x" * (LONG if stage == "prefill" else 40)
        with asking(running, prompt=prompt, max_tokens=900, n=n, stream=stream):
            until(lambda: figures(running)["kv_cache_usage_perc"] > 0)
            if stage == "decode":
                until(lambda: figures(running)["generation_tokens_total"] >= 3 * n)
            else:
                assert figures(running)["generation_tokens_total"] == 0
        before = figures(running)["iteration_tokens_total_count"]
        until(lambda: figures(running)["kv_cache_usage_perc"] == 0)
        after = figures(running)
        assert after["num_requests_running"] == after["num_requests_waiting"] == 0
        # One step under way, one planned ahead, and the numbers come with the step after.
        assert after["iteration_tokens_total_count"] - before <= 4
        assert running.state.lifecycle.num_open == 0


def test_a_short_request_behind_a_very_long_prompt_is_answered_first(serve, until):
    """Between two tenants under `fair`; the long prompt is dozens of steps from its first token when it comes."""
    null = {"max_model_len": 4096, "max_num_batched_tokens": 64, "token_seconds": 0.002, "policy": "fair"}
    with serve(null) as running, concurrent.futures.ThreadPoolExecutor() as pool:
        url = f"{running.url}/v1/completions"
        long = pool.submit(
            httpx.post, url, json={"prompt": "x" * LONG, "max_tokens": 1}, timeout=60, headers={"X-Turret-Tenant": "a"}
        )
        until(lambda: figures(running)["num_requests_running"] == 1)
        before = figures(running)["iteration_tokens_total_count"]
        body = {"prompt": "y" * 16, "max_tokens": 1}
        short = httpx.post(url, json=body, headers={"X-Turret-Tenant": "b"})
        after = figures(running)["iteration_tokens_total_count"]
        assert short.status_code == 200 and not long.done()
        # Steps under way when it came, its own, and those until the numbers are told.
        assert after - before <= 8 < LONG / 64
        assert long.result(60).status_code == 200
