"""Options show their effect in a whole engine or server: none is accepted and ignored."""

from __future__ import annotations

import logging
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from turret import LLM, SamplingParams
from turret.errors import LoadError, PluginError, RequestError

PROMPT = {"prompt_token_ids": [(11 * i) % 250 + 2 for i in range(50)]}
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, logprobs=1)


@pytest.fixture
def llm(tiny_llama: str) -> Callable[..., LLM]:
    """The tiny model on the fake device, with options."""

    def start(**options: object) -> LLM:
        chosen = {"device": "fake", "max_model_len": 128, "kv_cache_memory_bytes": 4 << 20, **options}
        return LLM(tiny_llama, **chosen)

    return start


def ready(engine: LLM):
    return engine._parts.engine.ready


def answer(engine: LLM, params: SamplingParams = GREEDY, prompt: object = PROMPT):
    (output,) = engine.generate(prompt, params, use_tqdm=False)
    return output


def tokens(engine: LLM, params: SamplingParams = GREEDY) -> list[int]:
    return answer(engine, params).outputs[0].token_ids


def test_sizes_of_the_cache(llm) -> None:
    with llm() as plain, llm(kv_cache_dtype="bfloat16") as half, llm(block_size=32) as large:
        assert ready(half).num_blocks == 2 * ready(plain).num_blocks
        assert ready(large).block_size == 32 and ready(large).num_blocks == ready(plain).num_blocks // 2
    with llm(num_gpu_blocks_override=20, kv_cache_memory_bytes=None) as told:
        assert ready(told).num_blocks == 20


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_prefix_caching(llm, algorithm: str) -> None:
    with llm(prefix_caching_hash_algo=algorithm) as engine:
        first, again = answer(engine), answer(engine)
        assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 48)
    with llm(enable_prefix_caching=False) as engine:
        assert [answer(engine).num_cached_tokens for _ in range(2)] == [0, 0]


def test_logprobs_modes(llm) -> None:
    """One token's value before and after a rule that forbids half of the vocabulary, as logit and as probability."""
    rule = SamplingParams(temperature=0.0, max_tokens=1, logprobs=0, allowed_token_ids=list(range(100)))
    seen = {}
    for mode in ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"):
        with llm(logprobs_mode=mode) as engine:
            (entry,) = answer(engine, rule).outputs[0].logprobs[0].values()
            seen[mode] = entry.logprob
    assert seen["raw_logits"] == seen["processed_logits"] > 0, "the rule leaves this token's logit as it is"
    assert seen["raw_logprobs"] < seen["processed_logprobs"] < 0, "what is forbidden has no share any more"


def test_a_ceiling_on_logprobs(llm) -> None:
    many = SamplingParams(temperature=0.0, max_tokens=1, logprobs=30)
    with llm() as engine, pytest.raises(RequestError, match="20"):
        answer(engine, many)
    with llm(max_logprobs=-1) as engine:
        assert len(answer(engine, many).outputs[0].logprobs[0]) in (30, 31)


def test_seeds_of_requests_and_of_weights(llm) -> None:
    drawn = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
    answers = []
    for options in ({"seed": 1}, {"seed": 1}, {"seed": 2}):
        with llm(**options) as engine:
            answers.append(tokens(engine, drawn))
    assert answers[0] == answers[1] != answers[2]
    made_up = []
    for seed in (1, 2):
        with llm(seed=seed, load_format="dummy") as engine:
            made_up.append(next(iter(answer(engine).outputs[0].logprobs[0].values())).logprob)
    assert made_up[0] != made_up[1]


def test_types_and_backends(llm) -> None:
    with llm(dtype="half") as engine:
        assert ready(engine).facts["dtype"] == "float16"
    with llm(attention_backend="cpu") as native, llm() as plain:
        assert (ready(native).facts["attention"], ready(plain).facts["attention"]) == ("cpu", "torch")
        assert tokens(native) == tokens(plain)


def test_overrides_reach_the_model(llm) -> None:
    with llm() as plain, llm(hf_overrides={"rope_theta": 100.0}) as other:
        assert answer(plain).outputs[0].logprobs != answer(other).outputs[0].logprobs


def test_threads(llm, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="turret_platform_fake"), llm(cpu_threads=2):
        assert "computing on fake device 0, threads: 2" in caplog.messages


@pytest.mark.parametrize("mode", ["auto", "hf", "slow"])
def test_tokenizers_of_each_mode_agree(llm, mode: str) -> None:
    with llm(tokenizer_mode=mode) as engine:
        output = answer(engine, prompt="Straße")
        assert bytes(engine.get_tokenizer().decode(output.prompt_token_ids), "utf-8").decode() == "Straße"
        assert len(output.prompt_token_ids) == 7


def test_a_tokenizer_from_elsewhere(tiny_llama: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(tiny_llama, bare, ignore=shutil.ignore_patterns("tokenizer*", "special_tokens*"))
    options = {"device": "fake", "max_model_len": 128, "kv_cache_memory_bytes": 4 << 20}
    with pytest.raises(LoadError, match="tokenizer"):
        LLM(str(bare), **options)
    with LLM(str(bare), tokenizer=tiny_llama, **options) as engine:
        assert len(answer(engine, prompt="words").prompt_token_ids) == 5


def test_without_a_tokenizer(llm) -> None:
    with llm(skip_tokenizer_init=True) as engine:
        output = answer(engine)
        assert len(output.outputs[0].token_ids) == 4 and output.outputs[0].text == ""
        with pytest.raises(RequestError, match="skip-tokenizer-init"):
            answer(engine, prompt="words")


def test_sampling_defaults(llm) -> None:
    with llm(generation_config="none", override_generation_config={"top_k": 3}) as engine:
        assert engine.get_default_sampling_params().top_k == 3


def test_plugins_that_are_not_allowed_serve_nothing(llm) -> None:
    with pytest.raises(PluginError, match="not in --plugins-allow"):
        llm(plugins_allow=["turret-platform-fake"])
    allowed = ["platform:fake", "turret-model-decoder", "attention:torch", "turret"]
    with llm(plugins_allow=allowed) as engine:
        assert len(tokens(engine)) == 4


def unfinished_head(url: str, size: int) -> str:
    """What the server answers to `size` bytes of a head that is still going on; empty when it waits for the rest."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nx-long: ".ljust(size, b"y"))
        try:
            return connection.recv(65536).decode().split("\r\n")[0]
        except TimeoutError:
            return ""


def test_options_of_the_http_server(serve, tiny_llama: str) -> None:
    options = [
        "--host", "127.0.0.1", "--disable-frontend-multiprocessing", "--disable-uvicorn-access-log",
        "--h11-max-incomplete-event-size", "3000", "--response-role", "robot", "--enable-server-load-tracking",
        "--chat-template", "{{ messages[0].content }}", "--allowed-origins", '["http://a.example"]',
        "--allowed-methods", '["POST"]', "--allowed-headers", '["x-a"]', "--allow-credentials", "--log-level", "debug",
        "--kv-cache-memory-bytes", "4M", "--device", "fake",
    ]  # fmt: skip
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        assert started.children() == [], "the engine runs in the server's process"
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        chat = httpx.post(f"{url}/v1/chat/completions", json=body)
        assert chat.json()["choices"][0]["message"]["role"] == "robot"
        assert 'cache_dtype="float32"' in httpx.get(f"{url}/metrics").text, "what auto came to"
        assert httpx.get(f"{url}/load").json() == {"server_load": 0}
        asked = {"origin": "http://a.example", "access-control-request-method": "POST"}
        allowed = httpx.options(f"{url}/v1/models", headers={**asked, "access-control-request-headers": "x-a"})
        assert allowed.status_code == 200 and allowed.headers["access-control-allow-credentials"] == "true"
        for wrong in (
            {"origin": "http://b.example"}, {"access-control-request-method": "GET"},
            {"access-control-request-headers": "x-b"},
        ):  # fmt: skip
            assert httpx.options(f"{url}/v1/models", headers={**asked, **wrong}).status_code == 400
        too_large = "HTTP/1.1 431 Request Header Fields Too Large"
        assert [unfinished_head(url, size) for size in (2000, 4000)] == ["", too_large]
        assert "uvicorn.access" not in started.said
        assert "DEBUG turret.compose: platform fake set" in started.said
