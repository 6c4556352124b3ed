"""Models, tokenizer routes, health, metrics, keys, CORS, request ids, the OpenAPI document."""

from __future__ import annotations

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from turret.config import ServerConfig
from turret.errors import ConfigError
from turret.server.listening import bind


def metrics(running):
    """Samples of a scrape: {(name, labels): value}."""
    response = httpx.get(f"{running.url}/metrics", headers={"authorization": "Bearer k"})
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def value(samples, name, **labels):
    return samples[name, tuple(sorted({"model_name": "tiny", "engine": "0", **labels}.items()))]


def test_models(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none") as client:
        cards = client.models.list().data
        assert [c.id for c in cards] == ["tiny", "alias"]
        assert cards[0].model_extra["max_model_len"] == 512 and cards[0].model_extra["root"] == "/models/tiny"
        assert client.models.retrieve("alias").id == "alias"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("none")


def test_tokenize_and_back(tiny):
    answer = httpx.post(f"{tiny.url}/tokenize", json={"prompt": "Hé", "return_token_strs": True}).json()
    assert answer["tokens"] == tiny.text.tokenizer.encode("Hé")
    assert answer["count"] == 3 and answer["max_model_len"] == 512 and answer["token_strs"][0] == "H"
    back = httpx.post(f"{tiny.url}/detokenize", json={"tokens": answer["tokens"]}).json()
    assert back == {"prompt": "Hé"}
    chat = httpx.post(f"{tiny.url}/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert chat["tokens"] == tiny.text.tokenizer.encode("<user>Hi<assistant>")
    for bad in ({}, {"prompt": "x", "messages": []}):
        assert httpx.post(f"{tiny.url}/tokenize", json=bad).status_code == 400
    assert httpx.post(f"{tiny.url}/detokenize", json={"tokens": [999]}).status_code == 400


def test_probes(tiny):
    assert httpx.get(f"{tiny.url}/health").content == b"" and httpx.post(f"{tiny.url}/ping").status_code == 200
    assert httpx.get(f"{tiny.url}/version").json()["version"]
    assert httpx.get(f"{tiny.url}/load").json() == {"server_load": 0}


def test_metrics_exist_at_zero_and_count(serve):
    with serve(parts={"cache_facts": ({"block_size": 16},)}) as running:
        before = metrics(running)
        for reason in ("stop", "length", "abort", "error"):
            assert value(before, "turret:request_success_total", finished_reason=reason) == 0
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
                     "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
                     "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
                     "iteration_tokens_total_count", "e2e_request_latency_seconds_count"):  # fmt: skip
            assert value(before, f"turret:{name}") == 0, name
        assert before["turret:cache_config_info", (("block_size", "16"), ("engine", "0"))] == 1
        httpx.post(f"{running.url}/v1/completions", json={"prompt": "Hello", "max_tokens": 5, "n": 2})
        after = metrics(running)
        assert value(after, "turret:request_success_total", finished_reason="length") == 2
        assert value(after, "turret:prompt_tokens_total") == 10 and value(after, "turret:generation_tokens_total") == 10
        assert value(after, "turret:time_to_first_token_seconds_count") == 2
        assert value(after, "turret:inter_token_latency_seconds_count") == 8
        assert value(after, "turret:request_prompt_tokens_sum") == 10
        assert value(after, "turret:request_generation_tokens_sum") == 10
        assert value(after, "turret:request_params_n_sum") == 2
        assert value(after, "turret:iteration_tokens_total_sum") == 10 + 8
        assert value(after, "turret:num_requests_running") == 0


def test_engine_series_can_be_switched_off(serve):
    with serve(disable_log_stats=True) as running:
        assert not any("num_requests_running" in name for name, _ in metrics(running))


def test_keys_guard_all_but_probes(serve):
    with serve(api_key=["k", "other"]) as running:
        for path in ("/health", "/ping", "/version"):
            assert httpx.get(running.url + path).status_code == 200
        for path in ("/v1/models", "/metrics", "/load", "/docs", "/openapi.json"):
            denied = httpx.get(running.url + path)
            assert denied.status_code == 401 and denied.json() == {"error": "Unauthorized"}
            assert httpx.get(running.url + path, headers={"authorization": "Bearer k"}).status_code == 200
        body = {"prompt": "x", "max_tokens": 1}
        for key, status in (("k", 200), ("other", 200), ("k2", 401), ("K", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.post(f"{running.url}/v1/completions", json=body, headers=headers).status_code == status
            assert httpx.post(f"{running.url}/tokenize", json={"prompt": "x"}, headers=headers).status_code == status
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0).models.list()


def test_preflight_needs_no_key(serve):
    with serve(api_key=["k"], allowed_origins=["https://here.example"]) as running:
        ask = {"origin": "https://here.example", "access-control-request-method": "POST"}
        answer = httpx.options(f"{running.url}/v1/completions", headers=ask)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://here.example"
        assert httpx.options(f"{running.url}/v1/completions", headers={**ask, "origin": "https://x"}).status_code == 400


def test_request_ids(serve, tiny):
    body = {"prompt": "x", "max_tokens": 1}
    url = f"{tiny.url}/v1/completions"
    assert httpx.post(url, json={**body, "request_id": "mine"}).json()["id"] == "cmpl-mine"
    assert httpx.post(url, json={**body, "request_id": "a"}, headers={"X-Request-Id": "b"}).json()["id"] == "cmpl-b"
    assert "x-request-id" not in httpx.post(url, json=body).headers
    with serve(enable_request_id_headers=True) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json=body)
        assert answer.json()["id"] == "cmpl-" + answer.headers["x-request-id"]
        assert httpx.get(f"{running.url}/nothing", headers={"X-Request-Id": "b"}).headers["x-request-id"] == "b"
        named = httpx.post(f"{running.url}/v1/completions", json={**body, "request_id": "mine"})
        assert (named.json()["id"], named.headers["x-request-id"]) == ("cmpl-mine", "mine")
        for odd in ("a\r\nx-other: b", "łódź", "a" * 5000):
            named = httpx.post(f"{running.url}/v1/completions", json={**body, "request_id": odd})
            assert named.status_code == 200 and named.json()["id"] == f"cmpl-{odd}" and "x-other" not in named.headers
            assert len(named.headers["x-request-id"]) == 32


def test_document(serve, tiny):
    document = httpx.get(f"{tiny.url}/openapi.json").json()
    fields = document["components"]["schemas"]["ChatRequest"]["properties"]
    assert {"messages", "top_k", "min_p", "stream_options"} <= set(fields)
    body = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["$ref"].endswith("/CompletionRequest")
    assert "422" not in document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert httpx.get(f"{tiny.url}/docs").status_code == 200
    with serve(disable_fastapi_docs=True) as running:
        for path in ("/docs", "/redoc", "/openapi.json"):
            assert httpx.get(running.url + path).status_code == 404


def test_prompt_tokens_details(serve):
    with serve(enable_prompt_tokens_details=True, enable_force_include_usage=True) as running:
        body = {"prompt": "x" * 40, "max_tokens": 1}
        first = httpx.post(f"{running.url}/v1/completions", json=body).json()["usage"]
        again = httpx.post(f"{running.url}/v1/completions", json=body).json()["usage"]
        assert first["prompt_tokens_details"] == {"cached_tokens": 0}
        assert again["prompt_tokens_details"] == {"cached_tokens": 32}
        salted = httpx.post(f"{running.url}/v1/completions", json={**body, "cache_salt": "s"}).json()["usage"]
        assert salted["prompt_tokens_details"] == {"cached_tokens": 0}
        streamed = httpx.post(f"{running.url}/v1/completions", json={**body, "stream": True}).text
        assert '"cached_tokens":32' in streamed


def test_generation_config_fills_in_what_a_request_leaves_out(serve):
    with serve(parts={"generation_defaults": {"temperature": 0.0, "max_new_tokens": 7}}) as running:
        url = f"{running.url}/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "x"}]}
        assert httpx.post(url, json=body).json()["usage"]["completion_tokens"] == 7
        assert httpx.post(url, json={**body, "max_tokens": 9}).json()["usage"]["completion_tokens"] == 9
        refused = httpx.post(url, json={**body, "n": 2})
        assert refused.status_code == 400 and "greedy" in refused.text
        assert httpx.post(url, json={**body, "n": 2, "temperature": 1}).status_code == 200
    capped = {"temperature": 0.0, "max_new_tokens": 7}
    with serve(parts={"generation_defaults": capped}, override_generation_config={"max_new_tokens": 7}) as running:
        answer = httpx.post(f"{running.url}/v1/chat/completions", json={**body, "max_tokens": 9})
        assert answer.json()["usage"]["completion_tokens"] == 7


def test_a_request_larger_than_the_cache_is_refused_with_numbers(serve):
    with serve(parts={"kv_capacity": 64}) as running:
        url = f"{running.url}/v1/completions"
        refused = httpx.post(url, json={"prompt": "x" * 60, "max_tokens": 10})
        assert refused.status_code == 400
        assert "70 tokens of KV cache, but this server has 64" in refused.json()["error"]["message"]
        assert httpx.post(url, json={"prompt": "x" * 50, "max_tokens": 10}).status_code == 200


def test_unix_socket(tmp_path, serve):
    path = tmp_path / "turret.sock"
    with serve(uds=str(path)) as running:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get(f"{running.url}/health").status_code == 200
        with pytest.raises(ConfigError, match="another server uses it"):
            bind(ServerConfig(uds=str(path)))
    assert not path.exists()
    path.write_text("not a socket")
    with pytest.raises(ConfigError, match="is not a socket"):
        bind(ServerConfig(uds=str(path)))


def test_a_taken_port_is_told_at_once(tiny):
    port = int(tiny.url.rsplit(":", 1)[1])
    with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1 port {port}: .*--port"):
        bind(ServerConfig(host="127.0.0.1", port=port))


def test_behind_a_proxy_with_a_prefix(serve):
    with serve(root_path="/models/one", api_key=["k"]) as running:
        key = {"authorization": "Bearer k"}
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert httpx.get(f"{running.url}/v1/models").status_code == 401
        assert httpx.get(f"{running.url}/v1/models", headers=key).status_code == 200
        document = httpx.get(f"{running.url}/openapi.json", headers=key).json()
        assert document["servers"] == [{"url": "/models/one"}]
