"""--kv-cache-dtype: what each type costs in memory and in numbers, on the native kernels and on torch's."""

from __future__ import annotations

import pytest

from turret import LLM, SamplingParams

PROMPT = {"prompt_token_ids": [(7 * i) % 250 + 2 for i in range(50)]}
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True, logprobs=1, prompt_logprobs=0)
MEMORY = 4 << 20

BOUNDS = {"bfloat16": 0.06, "float16": 0.006, "int8": 0.12, "fp8": 0.5, "fp8_e4m3": 0.5, "fp8_e5m2": 1.5}
"""Most that a token's log-probability may move from that of a float32 cache, in this model of random weights."""

SIZES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}
"""Bytes of a number; int8 has scales besides."""


def prompt_logprobs(engine: LLM) -> list[float]:
    (output,) = engine.generate(PROMPT, GREEDY, use_tqdm=False)
    assert output.outputs[0].error is None and len(output.outputs[0].token_ids) == 8
    ids = PROMPT["prompt_token_ids"][1:]
    return [entry[token].logprob for token, entry in zip(ids, output.prompt_logprobs[1:], strict=True)]


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_types(device: str, tiny_llama: str) -> None:
    def start(stored: str) -> LLM:
        return LLM(tiny_llama, device=device, dtype="float32", max_model_len=128, kv_cache_memory_bytes=MEMORY,
                   kv_cache_dtype=stored, cpu_threads=1)  # fmt: skip

    with start("float32") as engine:
        exact, blocks = prompt_logprobs(engine), engine._parts.engine.ready.num_blocks
    for stored, bound in BOUNDS.items():
        with start(stored) as engine:
            ready = engine._parts.engine.ready
            found = prompt_logprobs(engine)
            worst = max(abs(a - b) for a, b in zip(found, exact, strict=True))
            assert 0 < worst < bound, f"{stored}: {worst}"
            if stored in SIZES:
                assert ready.num_blocks == pytest.approx(blocks * 4 / SIZES[stored], abs=2)
            else:
                assert 2 * blocks < ready.num_blocks < 4 * blocks
            assert ready.facts["cache_dtype"] == {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
                                                  "fp8_e5m2": "float8_e5m2"}.get(stored, stored)  # fmt: skip
            (again,) = engine.generate(PROMPT, SamplingParams(max_tokens=1), use_tqdm=False)
            assert again.num_cached_tokens == 48
