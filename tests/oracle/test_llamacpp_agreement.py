"""The demo model beside llama.cpp on the same weights: greedy tokens and logits.

llama.cpp's answers are golden files; make_llamacpp_golden.py says what `exact`, `direct` and `control` are. Against the
exact answers we must agree; against the direct ones we can agree no better than llama.cpp does with itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turret import LLM, SamplingParams

GOLDEN = Path(__file__).parent / "golden"
TOKENS = 16
PROMPTS = 20
SHORT = 6
"""Prompts whose every logit is compared: a Python object for each of 49,152 tokens at each position is slow."""

pytestmark = pytest.mark.model

Rows = list[np.ndarray]


class Golden:
    """llama.cpp's answers."""

    def __init__(self) -> None:
        head = json.loads((GOLDEN / "smollm2_llamacpp.json").read_text())
        self.answers: list[dict[str, Any]] = head["answers"]
        self.stride: int = head["stride"]
        self._logits = np.load(GOLDEN / "smollm2_llamacpp_logits.npz")

    def tokens(self, kind: str) -> list[list[int]]:
        return [a["token_ids"][kind][:TOKENS] for a in self.answers]

    def logits(self, kind: str) -> Rows:
        """Rows of the short prompts, one a position."""
        return [row.astype(np.float64) for i in range(SHORT) for row in self._logits[f"{kind}_{i}"]]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return Golden()


@pytest.fixture(scope="module", params=["float32", "exact", "int8"])
def way(request: pytest.FixtureRequest) -> str:
    """What meets the weights: float32 activations, bfloat16 ones as they are, or rounded to 8 bits like llama.cpp's."""
    return str(request.param)


@pytest.fixture(scope="module")
def llm(way: str) -> Iterator[LLM]:
    options: dict[str, Any] = {"max_model_len": 512, "kv_cache_memory_bytes": 256 << 20, "use_tqdm_on_load": False}
    if way == "float32":
        options["dtype"] = "float32"
    else:
        options |= {"dtype": "bfloat16", "plugin_config": [f"platform:cpu.activations={way}"]}
    with LLM("demo", max_logprobs=-1, logprobs_mode="raw_logits", **options) as engine:
        yield engine


def _tokens(llm: LLM, golden: Golden) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    prompts = [{"prompt_token_ids": a["prompt_token_ids"]} for a in golden.answers]
    return [list(o.outputs[0].token_ids) for o in llm.generate(prompts, params, use_tqdm=False)]


def _logits(llm: LLM, golden: Golden) -> Rows:
    """Raw logits after each prompt token, over every stride-th entry of the vocabulary; the last position is
    sampled.
    """
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=-1, logprobs=-1)
    rows = []
    for answer in golden.answers[:SHORT]:
        (output,) = llm.generate([{"prompt_token_ids": answer["prompt_token_ids"]}], params, use_tqdm=False)
        positions = [*output.prompt_logprobs[1:], output.outputs[0].logprobs[0]]
        rows += [np.array([p[t].logprob for t in range(0, len(p), golden.stride)]) for p in positions]
    return rows


def _correlations(ours: Rows, theirs: Rows) -> np.ndarray:
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(ours, theirs, strict=True)])


def _agreeing(ours: list[list[int]], theirs: list[list[int]]) -> int:
    assert len(ours) == len(theirs) == PROMPTS
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def test_tokenizer_agrees(llm: LLM, golden: Golden) -> None:
    tokenizer = llm.get_tokenizer()
    for answer in golden.answers:
        assert tokenizer.encode(answer["prompt"], add_special_tokens=False) == answer["prompt_token_ids"]


def test_logits_correlate_at_every_position(llm: LLM, golden: Golden, way: str) -> None:
    ours = _logits(llm, golden)
    found = _correlations(ours, golden.logits("exact"))
    beside_noisy = np.median(_correlations(ours, golden.logits("direct")))
    control = np.median(_correlations(golden.logits("direct"), golden.logits("control")))
    if way == "int8":
        # Our own rounding is no coarser than llama.cpp's, and beside its noisy answers ours is noise of its own.
        assert np.median(found) >= control and found.min() > 0.99
        assert 1 - beside_noisy <= 2 * (1 - control)
    else:
        assert found.min() > 0.999
        # Beside the noisy answers we stand as close as their own control does.
        assert beside_noisy >= control


def test_greedy_tokens_agree(llm: LLM, golden: Golden, way: str) -> None:
    ours = _tokens(llm, golden)
    of_llamacpp_with_itself = _agreeing(golden.tokens("direct"), golden.tokens("control"))
    assert _agreeing(ours, golden.tokens("direct")) >= of_llamacpp_with_itself
    if way != "int8":
        assert _agreeing(ours, golden.tokens("exact")) >= (18 if way == "float32" else 14)
