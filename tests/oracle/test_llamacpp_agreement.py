"""The demo model beside llama.cpp on the same file: greedy tokens and logits.

llama.cpp's answers are golden files (make_llamacpp_golden.py). It quantises activations to 8 bits, we do not, so tokens
may part where two logits are almost equal; correlation says that nothing else differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turret import LLM, SamplingParams

GOLDEN = Path(__file__).parent / "golden"
TOKENS = 16

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads((GOLDEN / "smollm2_llamacpp.json").read_text())


@pytest.fixture(scope="module")
def llm() -> LLM:
    with LLM(model="demo", max_model_len=1024, max_logprobs=-1, logprobs_mode="raw_logits") as engine:
        yield engine


def test_tokenizer_agrees(llm: LLM, golden: dict[str, Any]) -> None:
    tokenizer = llm.get_tokenizer()
    for answer in golden["answers"]:
        assert tokenizer.encode(answer["prompt"], add_special_tokens=False) == answer["prompt_token_ids"]


def test_greedy_tokens_agree(llm: LLM, golden: dict[str, Any]) -> None:
    answers = golden["answers"]
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": a["prompt_token_ids"]} for a in answers], params, use_tqdm=False)
    agree = [list(o.outputs[0].token_ids) == a["token_ids"][:TOKENS] for o, a in zip(outputs, answers, strict=True)]
    assert len(agree) == 20 and sum(agree) >= 18, [i for i, ok in enumerate(agree) if not ok]


def test_logits_correlate_at_every_position(llm: LLM, golden: dict[str, Any]) -> None:
    """Raw logits of every prompt position, over every STRIDE-th entry of the vocabulary."""
    theirs = np.load(GOLDEN / "smollm2_llamacpp_logits.npz")
    worst = 1.0
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=-1)
    for number, answer in enumerate(golden["answers"]):
        (output,) = llm.generate([{"prompt_token_ids": answer["prompt_token_ids"]}], params, use_tqdm=False)
        ours = _logits(output.prompt_logprobs, golden["stride"])
        for mine, reference in zip(ours, theirs[str(number)].astype(np.float64), strict=False):
            worst = min(worst, float(np.corrcoef(mine, reference)[0, 1]))
    assert worst > 0.999, worst


def _logits(prompt_logprobs: list[dict[int, Any] | None], stride: int) -> list[np.ndarray]:
    """Rows of logits; entry i of the list speaks of the token after position i."""
    rows = []
    for position in prompt_logprobs[1:]:
        assert position is not None
        size = max(position) + 1
        rows.append(np.array([position[token].logprob for token in range(0, size, stride)]))
    return rows
