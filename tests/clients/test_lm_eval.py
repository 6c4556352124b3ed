"""lm-eval's local-completions: scores by echo and logprobs, a local task, tokenizers at both ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

TASK = """
task: capitals
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
metric_list:
  - metric: acc
"""
DOCUMENTS = [
    {"question": "The capital of France is", "choices": ["Paris", "banana", "seven"], "label": 0},
    {"question": "The opposite of hot is", "choices": ["violin", "cold", "Tuesday"], "label": 1},
    {"question": "One, two, three,", "choices": ["purple", "ocean", "four"], "label": 2},
    {"question": "The sun rises in the", "choices": ["east", "kitchen", "carrot"], "label": 0},
]


def model(url: str, **options: object) -> LocalCompletionsAPI:
    chosen = {"num_concurrent": 2, "max_retries": 1, "batch_size": 1, "max_length": 512, **options}
    return LocalCompletionsAPI(base_url=f"{url}/v1/completions", **chosen)


@pytest.mark.parametrize("tokenized", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_scores_are_those_of_transformers(tiny, tokenized: bool, batch_size: int) -> None:
    url, folder, expected = tiny
    scorer = model(
        url, pretrained="tiny", tokenizer=str(folder), tokenizer_backend="huggingface", tokenized_requests=tokenized,
        batch_size=batch_size,
    )  # fmt: skip
    requests = [
        Instance("loglikelihood", {}, (pair["context"], pair["continuation"]), i) for i, pair in enumerate(expected)
    ]
    for (logprob, greedy), pair in zip(scorer.loglikelihood(requests, disable_tqdm=True), expected, strict=True):
        assert logprob == pytest.approx(pair["logprob"], abs=2e-3)
        assert greedy == pair["greedy"]


def test_a_local_task_with_the_servers_own_tokenizer(demo, tmp_path: Path) -> None:
    data = tmp_path / "capitals.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    (tmp_path / "capitals.yaml").write_text(TASK.format(data=data))
    results = simple_evaluate(
        model=model(demo, pretrained="demo", tokenizer_backend="auto"), tasks=["capitals"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False), bootstrap_iters=0,
    )  # fmt: skip
    assert results["results"]["capitals"]["acc,none"] == 1.0


def test_generation_stops_where_it_is_told(demo) -> None:
    writer = model(demo, pretrained="demo", tokenizer_backend="remote")
    options = {"until": ["7"], "max_gen_toks": 64, "do_sample": False}
    (text,) = writer.generate_until(
        [Instance("generate_until", {}, ("1, 2, 3, 4,", options), 0)], disable_tqdm=True
    )  # fmt: skip
    assert "5" in text and "7" not in text
