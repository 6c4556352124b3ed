"""`LLM`: prompts in every form, results in order, mistakes told before anything runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from turret import LLM, SamplingParams
from turret.errors import ConfigError, EngineError, LoadError, NotSupportedError, RequestError
from turret.llm import BeamSearchParams

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def ids(llm, text):
    return llm.get_tokenizer().encode(text)


def one(llm, prompt, params=GREEDY):
    (output,) = llm.generate(prompt, params, use_tqdm=False)
    return output


def test_every_form_of_a_prompt_means_the_same(llm):
    token_ids = ids(llm, "Hello")
    forms = ["Hello", token_ids, {"prompt": "Hello"}, {"prompt_token_ids": token_ids}, ["Hello"], [token_ids]]
    outputs = [one(llm, form) for form in forms]
    assert {tuple(o.prompt_token_ids) for o in outputs} == {tuple(token_ids)}
    assert len({tuple(o.outputs[0].token_ids) for o in outputs}) == 1
    assert [o.prompt for o in outputs] == ["Hello", None, "Hello", None, "Hello", None]


def test_results_come_in_input_order(llm):
    prompts = [f"prompt number {i}" * (1 + i % 3) for i in range(20)]
    lengths = [1 + i % 5 for i in range(20)]
    params = [GREEDY.replace(max_tokens=n) for n in lengths]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in outputs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outputs] == lengths
    alone = [one(llm, p, s).outputs[0].token_ids for p, s in zip(prompts, params, strict=True)]
    assert [o.outputs[0].token_ids for o in outputs] == alone, "what else is in the batch must not matter"


def test_fields_of_a_result(llm):
    output = one(llm, "Hello", GREEDY.replace(logprobs=2, prompt_logprobs=1))
    choice = output.outputs[0]
    assert output.finished and choice.index == 0 and choice.finish_reason == "length" and choice.stop_reason is None
    assert choice.text == llm.get_tokenizer().decode(choice.token_ids)
    assert len(choice.logprobs) == 8 and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    total = 0.0
    for token, known in zip(choice.token_ids, choice.logprobs, strict=True):
        assert known[token].rank == 1 and len(known) == 2
        total += known[token].logprob
    assert choice.cumulative_logprob == pytest.approx(total)
    assert one(llm, "Hello").outputs[0].logprobs is None


def test_n_choices_differ_and_a_seed_repeats_them(llm):
    params = SamplingParams(temperature=1, max_tokens=12, n=4, seed=11, ignore_eos=True)
    first, again = (one(llm, "Hello", params) for _ in range(2))
    choices = [tuple(c.token_ids) for c in first.outputs]
    assert len(set(choices)) == 4 and [c.index for c in first.outputs] == [0, 1, 2, 3]
    assert choices == [tuple(c.token_ids) for c in again.outputs]
    assert tuple(one(llm, "Hello", params.replace(n=1)).outputs[0].token_ids) == choices[0]


def test_stop_string_ends_one_of_many(llm):
    whole = one(llm, "Hello", GREEDY.replace(max_tokens=32)).outputs[0]
    stop = whole.text[5:7]
    cut, other = llm.generate(
        ["Hello", "Hello"], [GREEDY.replace(max_tokens=32, stop=stop), GREEDY.replace(max_tokens=32)], use_tqdm=False
    )
    assert cut.outputs[0].text == whole.text[: whole.text.index(stop)]
    assert (cut.outputs[0].finish_reason, cut.outputs[0].stop_reason) == ("stop", stop)
    assert other.outputs[0].text == whole.text


def test_a_repeated_prompt_is_cached(llm):
    prompt = "a prompt of more than one block " * 4
    assert llm.reset_prefix_cache()
    assert one(llm, prompt).num_cached_tokens == 0
    assert one(llm, prompt).num_cached_tokens >= 64
    assert one(llm, {"prompt": prompt, "cache_salt": "mine"}).num_cached_tokens == 0
    metrics = {m.name: m.value for m in llm.get_metrics()}
    assert metrics["turret:prefix_cache_hits_total"] >= 64 and metrics["turret:num_running"] == 0
    assert metrics["turret:prompt_tokens_cached_total"] >= 64 and metrics["turret:forward_seconds_total"] > 0


def test_limits(llm):
    assert len(one(llm, "x" * 250, GREEDY.replace(max_tokens=None)).outputs[0].token_ids) == 6
    assert len(one(llm, "x" * 250, GREEDY.replace(max_tokens=99)).outputs[0].token_ids) == 6
    with pytest.raises(RequestError, match="256"):
        one(llm, "x" * 300)


def test_chat(llm):
    conversation = [{"role": "user", "content": "Hi"}]
    (output,) = llm.chat(conversation, GREEDY, use_tqdm=False)
    assert output.prompt == "<user>Hi<assistant>"
    assert output.outputs[0].token_ids == one(llm, output.prompt).outputs[0].token_ids
    assert len(llm.chat([conversation] * 3, GREEDY, use_tqdm=False)) == 3
    (bare,) = llm.chat(conversation, GREEDY, use_tqdm=False, chat_template="{{ messages[0].content }}")
    assert bare.prompt == "Hi"


def test_defaults_come_from_the_model(llm):
    params = llm.get_default_sampling_params()
    assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 7, 16)
    assert len(one(llm, "Hello", None).outputs[0].token_ids) <= 16


@pytest.mark.parametrize(
    ("prompts", "params", "words"),
    [
        (["ok", ""], GREEDY, "prompt 1: .*empty"),
        (["ok", 3], GREEDY, "prompt 1: a prompt is a text"),
        ([{"prompt": "x", "image": "y"}], GREEDY, "image"),
        ([[999]], GREEDY, "999"),
        (["a", "b"], [GREEDY], "2 prompts but 1 sampling params"),
        (["a"], GREEDY.replace(logprobs=21), r"\(20\)"),
        (["a"], GREEDY.replace(allowed_token_ids=[258]), "258 tokens"),
    ],
)
def test_mistakes_are_told_before_anything_runs(llm, prompts, params, words):
    with pytest.raises(ValueError, match=words):
        llm.generate(prompts, params, use_tqdm=False)
    assert llm._parts.engine.stats.num_waiting == 0


def test_what_is_not_here_says_so(llm, checkpoint):
    with pytest.raises(NotSupportedError, match="pooling"):
        llm.embed(["x"])
    for option, words in (
        ({"enable_lora": True}, "adapters"),
        ({"port": 1}, "turret serve"),
        ({"kv_cache_metrics": True}, "turret serve"),
        ({"nonsense": 1}, "unknown option nonsense"),
        ({"tensor_parallel_size": 2}, "one device"),
    ):
        with pytest.raises(ConfigError, match=words):
            LLM(str(checkpoint), **option)
    with pytest.raises(LoadError, match="nowhere"):
        LLM("/nowhere")


def test_empty_input_is_empty_output(llm):
    assert llm.generate([], GREEDY, use_tqdm=False) == []


def test_progress_shows_prompts_and_pace(llm, capsys):
    llm.generate(["a", "b"], GREEDY)
    shown = capsys.readouterr().err
    assert "2/2" in shown and "tokens/s" in shown


def test_import_is_cheap():
    code = "import sys, turret; turret.SamplingParams; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_profile_says_where_steps_spend_their_time(llm):
    llm.start_profile()
    llm.generate("time flies", SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)
    found = llm.stop_profile()
    assert found["steps"] == 4
    assert {"inputs", "forward", "logits", "sampling"} <= set(found["stages"])
    assert all(seconds > 0 for seconds in found["stages"].values())
    with pytest.raises(EngineError, match="start_profile first"):
        llm.stop_profile()


def test_beam_search(llm):
    """One beam is the greedy answer; more come best first, prompts run together, and ranges are told."""
    outputs = llm.beam_search(["Hello", "You"], BeamSearchParams(beam_width=1, max_tokens=6, ignore_eos=True))
    greedy = llm.generate(
        ["Hello", "You"], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), use_tqdm=False
    )
    for found, whole in zip(outputs, greedy, strict=True):
        (beam,) = found.sequences
        assert beam.tokens == [*whole.prompt_token_ids, *whole.outputs[0].token_ids]
        assert beam.text == whole.prompt + whole.outputs[0].text and beam.finish_reason == "length"
        assert beam.cum_logprob < 0 and len(beam.logprobs) == 6
    (wide,) = llm.beam_search("Hello", BeamSearchParams(beam_width=4, max_tokens=6, ignore_eos=True))
    totals = [beam.cum_logprob for beam in wide.sequences]
    assert len(totals) == 4 and totals == sorted(totals, reverse=True)
    assert totals[0] >= outputs[0].sequences[0].cum_logprob
    with pytest.raises(ValueError, match="between -10 and 10"):
        llm.beam_search("Hello", BeamSearchParams(beam_width=2, max_tokens=6, length_penalty=11))
    with pytest.raises(ValueError, match="256"):
        llm.beam_search("Hello", BeamSearchParams(beam_width=300, max_tokens=6))
