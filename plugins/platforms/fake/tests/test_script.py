"""What a pretended device says: scenes by prompt, through the worker that plays them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turret.contracts import Worker, WorkerOrder, WorkerPlatform
from turret.errors import ConfigError, EngineError
from turret.messages import NewRequest, Request, RequestResult, RunningRequest, StepPlan
from turret.sampling import SamplingParams
from turret_platform_fake.platform import FakePlatform
from turret_platform_fake.script import Scene, Script
from turret_platform_fake.stage import END, write_stage

EOS = 256


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    return bytes(ids).decode()


ORDER = WorkerOrder(
    device_index=0, vocab_size=EOS + 1, max_model_len=256, block_size=16, max_num_seqs=4, encode=encode, decode=decode
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "script.json"
    scenes = [{"say": "What?"}, {"when": "hello", "say": "Hi!"}, {"when": "bye", "say": ["So ", 108, "ong"]}]
    path.write_text(json.dumps(scenes))
    return path


def test_what_was_said_last_counts() -> None:
    scenes = [Scene(when, (say,)) for when, say in (("", "0"), ("case 1", "1"), ("case 12", "12"), ("done", "end"))]
    script = Script(scenes)
    prompts = ("", "case 12", "case 12 of case 1", "case 1 done", "done; case 1")
    assert [script.answer(prompt).say for prompt in prompts] == [("0",), ("12",), ("1",), ("end",), ("1",)]
    with pytest.raises(EngineError, match="no scene for a prompt that ends in 'x'"):
        Script(scenes[1:]).answer("x")


def run(worker: Worker, prompt: str, steps: int, **sampling: Any) -> list[RequestResult]:
    request = Request(
        request_id="r", prompt_token_ids=encode(prompt), sampling=SamplingParams(**sampling), max_tokens=99, seed=0,
        eos_token_ids=[EOS],
    )  # fmt: skip
    size = len(request.prompt_token_ids)
    new = [NewRequest(request=request, block_ids=[[1]], num_computed_tokens=0, num_tokens=size)]
    plans = [StepPlan(step_id=0, new=new)]
    plans += [StepPlan(step_id=i, running=[RunningRequest("r", size + i - 1, 1, [[]])]) for i in range(1, steps)]
    results = []
    for plan in plans:
        worker.submit(plan)
        step = worker.collect(5)
        assert step is not None
        results += step.results
    return results


def test_a_worker_plays_the_scene_and_ends(file: Path) -> None:
    platform = FakePlatform({"script": str(file)})
    assert isinstance(platform, WorkerPlatform)
    worker = platform.worker(ORDER)
    assert worker is not None and worker.start().vocab_size == EOS + 1
    results = run(worker, "hello, bye", 9, logprobs=1)
    tokens = [result.token_ids[0] for result in results]
    assert decode(tokens[:7]) == "So long" and tokens[7:] == [EOS, EOS]
    assert results[0].logprobs is not None and results[0].logprobs[0].top_ids == [ord("S")]


def test_a_prompt_without_a_scene_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('[{"when": "hello", "say": [300]}]')
    worker = FakePlatform({"script": str(path)}).worker(ORDER)
    assert worker is not None
    worker.start()
    assert "no scene" in (run(worker, "what", 1)[0].error or "")
    assert "token 300" in (run(worker, "hello", 1)[0].error or "")


def test_without_a_script_core_runs_the_model() -> None:
    assert FakePlatform().worker(ORDER) is None


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"when": 1, "say": ""}]', '[{"say": [1.5]}]', '[{"what": ""}]'])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"platform:fake\.script"):
        FakePlatform({"script": str(path)}).worker(ORDER)


def test_faults_of_a_forward_need_one(file: Path) -> None:
    with pytest.raises(ConfigError, match="out_of_memory_tokens"):
        FakePlatform({"script": str(file), "out_of_memory_tokens": 5}).worker(ORDER)
    with pytest.raises(RuntimeError, match="start_worker was told to fail"):
        FakePlatform({"script": str(file), "fail": ["start_worker"]}).worker(ORDER)


def test_the_stage_has_a_token_for_every_byte_and_the_special_ones(tmp_path: Path) -> None:
    write_stage(tmp_path, ["<tool_call>"], 100)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["vocab_size"], config["max_position_embeddings"]) == (259, 100)
    from tokenizers import Tokenizer  # heavy beside the other tests

    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = tokenizer.encode("Ł<tool_call>" + END).ids
    assert len(ids) == 4 and ids[3] == config["eos_token_id"]
