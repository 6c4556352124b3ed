"""Memory limits, placement and failures of a device, tried on the pretend one through `LLM`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import pytest

from turret import LLM, SamplingParams
from turret.compose.placement import choose_device
from turret.errors import ConfigError, EngineDeadError, PluginError, RequestError
from turret.llm import RequestOutput
from turret.plugins import HostSettings, PluginHost, Policy, parse_settings
from turret_platform_fake.platform import FakePlatform

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, logprobs=0)
BYTES_PER_BLOCK = 3 * 2 * 2 * 16 * 16 * 4
"""Layers, keys and values, KV heads, tokens, head size, bytes."""
TRIAL_RUNS = 2
"""Forwards of a start, before any request."""


def option(**values: object) -> list[str]:
    """`--plugin-config` for the fake device."""
    return [f"platform:fake.{key}={value}" for key, value in values.items()]


@pytest.fixture
def fake(tiny_llama: str) -> Callable[..., LLM]:
    """Starts the tiny model on a fake device."""

    def start(plugin_config: list[str] | None = None, **options: object) -> LLM:
        chosen = {"device": "fake", "max_model_len": 256, "kv_cache_memory_bytes": 8 << 20, **options}
        return LLM(tiny_llama, plugin_config=plugin_config or [], **chosen)

    return start


def ask(llm: LLM, *lengths: int) -> list[RequestOutput]:
    """One greedy request per prompt length."""
    prompts = [{"prompt_token_ids": [(7 * i + n) % 250 + 2 for i in range(n)]} for n in lengths]
    return llm.generate(prompts, GREEDY, use_tqdm=False)


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_no_memory_is_told_with_numbers(fake) -> None:
    megabytes = 60
    with pytest.raises(ConfigError) as told:
        fake(option(memory_bytes=megabytes << 20), kv_cache_memory_bytes=None, gpu_memory_utilization=0.5)
    said = str(told.value)
    assert f"0.5 of {megabytes / 1024:.2f} GiB is {megabytes / 2048:.2f} GiB" in said
    assert "no memory is left for the KV cache" in said and "Raise the share" in said


def test_the_memory_of_the_device_bounds_the_cache(fake) -> None:
    """The share of a gibibyte more is the cache's alone: the model and the scratch are paid already."""
    sizes = []
    for gigabytes in (1, 2):
        memory = option(memory_bytes=gigabytes << 30)
        with fake(memory, kv_cache_memory_bytes=None, gpu_memory_utilization=0.5) as llm:
            sizes.append(llm._parts.engine.ready.num_blocks * BYTES_PER_BLOCK)
    assert sizes[1] - sizes[0] == pytest.approx((1 << 30) / 2, rel=0.1)


def test_a_context_that_cannot_fit_is_told_with_the_length_that_does(fake) -> None:
    with pytest.raises(ConfigError, match=r"one of --max-model-len 256 needs .* lower --max-model-len to") as told:
        fake(kv_cache_memory_bytes=160_000)
    fits = int(re.search(r"lower --max-model-len to (\d+)", str(told.value))[1])
    assert 0 < fits < 256
    with fake(kv_cache_memory_bytes=160_000, max_model_len=fits) as llm:
        (output,) = ask(llm, fits - 8)
        assert len(output.outputs[0].token_ids) == 8
    with pytest.raises(ConfigError):
        fake(kv_cache_memory_bytes=160_000, max_model_len=fits + 1)


@pytest.mark.parametrize("asked", ["auto", -1])
def test_a_context_can_be_fitted_to_the_memory(fake, asked: str | int) -> None:
    with fake(kv_cache_memory_bytes=160_000, max_model_len=asked) as llm:
        fits = llm._parts.max_model_len
        assert fits % 16 == 0 and 0 < fits < 512, "whole blocks, and less than the model's own"
        with pytest.raises(RequestError, match=f"{fits} tokens"):
            ask(llm, fits)
        (output,) = ask(llm, fits - 8)
        assert len(output.outputs[0].token_ids) == 8
    with fake(max_model_len=asked) as llm:
        assert llm._parts.max_model_len == 512, "all of it where there is room"


def test_the_device_that_was_named_is_used(fake, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="turret_platform_fake"), fake(option(devices=2), device="fake:1") as llm:
        assert len(tokens(ask(llm, 5))[0]) == 8
    assert "computing on fake device 1, threads: 1" in caplog.messages


def test_a_device_that_is_not_there(fake) -> None:
    with pytest.raises(ConfigError, match=r"--device fake:2 is not there; found fake:0, fake:1"):
        fake(option(devices=2), device="fake:2")
    with pytest.raises(PluginError, match=r"platform:fake \(turret-platform-fake .*its probe found no device"):
        fake(option(devices=0))


@pytest.mark.parametrize("method", ["probe", "patch_config", "start_worker", "memory", "ops"])
@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_a_platform_that_raises_is_named(fake, method: str, executor: str) -> None:
    if executor == "mp" and method in ("probe", "patch_config"):
        pytest.skip("it fails before a worker starts")
    with pytest.raises(PluginError) as told:
        fake(option(fail=f'["{method}"]'), distributed_executor_backend=executor)
    said = str(told.value)
    assert "platform:fake (turret-platform-fake 0." in said and f"failed at {method}" in said
    assert "was told to fail" in said and "remedy" in said and "\n" not in said


def test_options_are_checked(fake) -> None:
    for wrong in (option(devices=-1), option(fail='["prob"]'), option(step_second=1)):
        with pytest.raises(ConfigError, match="fake"):
            fake(wrong)


def test_a_probe_that_hangs_is_given_up_and_one_that_is_slow_is_told(caplog) -> None:
    def host(**values: object) -> PluginHost:
        given = parse_settings(option(**values))
        return PluginHost.discover(Policy(), HostSettings(deadline=0.3, slow=0.05), given=given)

    began = time.monotonic()
    with pytest.raises(PluginError, match=r"turret-platform-fake .* failed at probe: no answer within 0\.3 s"):
        choose_device("fake", host(probe_seconds=30))
    assert time.monotonic() - began < 15
    with caplog.at_level(logging.WARNING, logger="turret.plugins"):
        assert choose_device("fake", host(probe_seconds=0.1))[1].index == 0
    assert re.search(r"turret-platform-fake.* took 0\.\d s to answer probe\(\)", caplog.text)


def test_a_device_is_asked_once(fake, monkeypatch) -> None:
    """A probe may take seconds."""
    probe, calls = FakePlatform.probe, []
    monkeypatch.setattr(FakePlatform, "probe", lambda self: calls.append(1) or probe(self))
    with fake():
        assert len(calls) == 1


@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_a_step_that_does_not_fit_is_run_in_parts(fake, executor: str) -> None:
    lengths = (30, 20, 5, 40)
    with fake() as llm:
        expected = tokens(ask(llm, *lengths))
    with fake(option(out_of_memory_tokens=20), distributed_executor_backend=executor) as llm:
        outputs = ask(llm, *lengths)
    assert [output.outputs[0].error for output in outputs] == [None] * 4
    assert tokens(outputs) == expected


@pytest.mark.parametrize("executor", ["uni", "mp"])
def test_only_the_request_that_cannot_fit_is_refused(fake, executor: str) -> None:
    """Pieces of 16 tokens are the smallest that a request is cut into."""
    with fake() as llm:
        expected = tokens(ask(llm, 9, 5))
    with fake(option(out_of_memory_tokens=10), distributed_executor_backend=executor) as llm:
        small, large, tiny = ask(llm, 9, 30, 5)
        assert large.outputs[0].finish_reason == "error" and "does not fit (10 do)" in large.outputs[0].error
        assert tokens([small, tiny]) == expected
        assert tokens(ask(llm, 9, 5)) == expected, "the engine goes on"


def test_a_worker_that_dies_ends_every_request_and_the_engine(fake) -> None:
    with fake(option(die_at_step=TRIAL_RUNS + 3), distributed_executor_backend="mp") as llm:
        for _ in range(2):  # at the step, and ever after
            with pytest.raises(EngineDeadError, match="worker process was killed by SIGKILL"):
                ask(llm, 5, 9)


def test_a_worker_that_dies_while_starting(fake) -> None:
    with pytest.raises(EngineDeadError, match="worker process was killed by SIGKILL"):
        fake(option(die_at_step=1), distributed_executor_backend="mp")
