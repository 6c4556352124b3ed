"""Same request, same bits: whatever shares the batch, however the prompt is cut, wherever its blocks came from.

The native kernels of `cpu` promise bits. The pretend device computes with torch, whose products depend on the number of
rows in the last bits: there the tokens must agree and the numbers within 1e-4.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from turret import LLM, SamplingParams
from turret.llm import RequestOutput

LENGTHS = (150, 1, 9, 33, 100, 16)
"""Prompts across several chunks, within one block, a block exactly; the fifth is the beginning of the first."""
OUTPUTS = 40
SMALL_POOL = 16
"""Blocks of 16 tokens: enough for any one request, not for all of them."""
SETTINGS = {
    "in one batch": {},
    "in a crowd": {"max_num_seqs": 48},
    "in chunks of 16": {"max_num_batched_tokens": 16},
    "in chunks of 64": {"max_num_batched_tokens": 64},
    "without chunks": {"max_num_batched_tokens": 512, "enable_chunked_prefill": False},
    "without recorded forwards": {"enforce_eager": True},
    "one step at a time": {"async_scheduling": False},
    "on two threads": {"cpu_threads": 2},
    "after a prefix hit": {"enable_prefix_caching": True},
    "after a prefix hit, in chunks": {"enable_prefix_caching": True, "max_num_batched_tokens": 64},
    "after preemption": {"num_gpu_blocks_override": SMALL_POOL, "kv_cache_memory_bytes": None},
    "after preemption, from the cache": {
        "num_gpu_blocks_override": SMALL_POOL, "kv_cache_memory_bytes": None, "enable_prefix_caching": True,
    },
    "in a process of its own": {"distributed_executor_backend": "mp"},
}  # fmt: skip


def prompts() -> list[list[int]]:
    """Token ids that every model here has."""
    draw = random.Random(3)
    made = [[draw.randrange(2, 250) for _ in range(length)] for length in LENGTHS]
    made[4] = made[0][: LENGTHS[4]]
    return made


def crowd() -> list[list[int]]:
    """Other people's prompts: kernels choose their ways by the number of rows."""
    draw = random.Random(4)
    return [[draw.randrange(2, 250) for _ in range(draw.randrange(1, 20))] for _ in range(34)]


def params() -> list[SamplingParams]:
    """Greedy and drawn requests in turns; one wants the prompt's log-probabilities as well."""
    common = {"max_tokens": OUTPUTS, "ignore_eos": True, "logprobs": 3}
    greedy, drawn = {"temperature": 0.0}, {"temperature": 0.9, "top_p": 0.9, "seed": 11}
    made = [SamplingParams(**common, **(drawn if i % 2 else greedy)) for i in range(len(LENGTHS))]
    made[3] = SamplingParams(**common, **drawn, prompt_logprobs=1)
    return made


@dataclass(frozen=True)
class Setup:
    """A model, the platform it runs on, and what it answers when asked one thing at a time."""

    model: str
    device: str
    dtype: str
    cache: str = "auto"
    alone: list[RequestOutput] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Whether the platform promises bits."""
        return self.device == "cpu"

    def open(self, **changes: object) -> LLM:
        """The engine; without `changes` one that has no chance to differ."""
        options = {"max_model_len": 256, "kv_cache_memory_bytes": 64 << 20, "block_size": 16, "cpu_threads": 1,
                   "enable_prefix_caching": False, "max_num_seqs": 8, "max_num_batched_tokens": 512}  # fmt: skip
        own = {"device": self.device, "dtype": self.dtype, "kv_cache_dtype": self.cache}
        return LLM(self.model, **own, **{**options, **changes})


@pytest.fixture(
    scope="module",
    params=[pytest.param("demo cpu auto", marks=pytest.mark.model), "tiny cpu float32", "tiny cpu bfloat16",
            "tiny cpu bfloat16 int8", "tiny fake float32"],
)
def setup(request: pytest.FixtureRequest, tiny_llama: str) -> Setup:
    """Every request was answered alone once."""
    model, *rest = request.param.split()
    made = Setup(tiny_llama if model == "tiny" else model, *rest)
    with made.open(async_scheduling=False) as llm:
        for prompt, its_params in zip(prompts(), params(), strict=True):
            made.alone.extend(llm.generate({"prompt_token_ids": prompt}, its_params, use_tqdm=False))
    return made


def counter(llm: LLM, name: str) -> float:
    return next(metric.value for metric in llm.get_metrics() if metric.name == f"turret:{name}")


def numbers(output: RequestOutput) -> list[list[float]]:
    """Log-probabilities of every position of the prompt and the answer, best first."""
    positions = [*(output.prompt_logprobs or []), *(output.outputs[0].logprobs or [])]
    return [sorted((entry.logprob for entry in p.values()), reverse=True) for p in positions if p is not None]


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_answer_does_not_depend_on(setup: Setup, setting: str) -> None:
    if "threads" in setting and not setup.exact:
        pytest.skip("torch's threads are no promise of ours")
    changes = SETTINGS[setting]
    with setup.open(**changes) as llm:
        if "prefix hit" in setting:
            llm.generate([{"prompt_token_ids": p} for p in prompts()], params(), use_tqdm=False)
        others = crowd() if "crowd" in setting else []
        asked = [{"prompt_token_ids": p} for p in prompts() + others]
        theirs = [SamplingParams(max_tokens=OUTPUTS, ignore_eos=True) for _ in others]
        outputs = llm.generate(asked, params() + theirs, use_tqdm=False)[: len(LENGTHS)]
        preempted = counter(llm, "preemptions_total")
    assert ("preemption" in setting) == (preempted > 0), "the setting must do what it is for"
    if "prefix hit" in setting:
        assert outputs[0].num_cached_tokens == 144 and outputs[4].num_cached_tokens == 96
    for alone, output in zip(setup.alone, outputs, strict=True):
        assert output.outputs[0].error is None and len(output.outputs[0].token_ids) == OUTPUTS
        assert output.outputs[0].token_ids == alone.outputs[0].token_ids
        if setup.exact:
            assert output.outputs[0].logprobs == alone.outputs[0].logprobs
            assert output.prompt_logprobs == alone.prompt_logprobs
        else:
            for got, expected in zip(numbers(output), numbers(alone), strict=True):
                assert got == pytest.approx(expected, abs=1e-4)
