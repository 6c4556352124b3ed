"""What the fields of the OpenAI routes do with a real model: numbers against transformers, text in every script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

PROMPT = [(7 * i + 3) % 250 + 2 for i in range(20)]
WIDTH = 3


@pytest.fixture(scope="module")
def tiny(serve, tiny_llama: str) -> Iterator[str]:
    """The URL of a tiny random model in float32."""
    options = ("--device", "fake", "--dtype", "float32", "--kv-cache-memory-bytes", "16M", "--max-logprobs", "-1")
    with serve(tiny_llama, *options, "--enable-prompt-tokens-details") as started:
        yield started.wait_ready()


@pytest.fixture(scope="module")
def reference(tiny_llama: str):
    """The same model, by transformers."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(tiny_llama).eval()
    model.generation_config.eos_token_id = None
    return model


def post(url: str, path: str = "completions", **body: object) -> dict:
    response = httpx.post(f"{url}/v1/{path}", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def logprobs_after(reference, ids: list[int]):
    """Log-probabilities [len(ids), V] of what follows each token."""
    import torch

    with torch.no_grad():
        return reference(torch.tensor([ids])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0])
def test_beams_are_those_of_transformers(tiny, reference, penalty: float) -> None:
    import torch

    found = reference.generate(
        torch.tensor([PROMPT]), num_beams=WIDTH, num_return_sequences=WIDTH, do_sample=False, max_new_tokens=12,
        length_penalty=penalty, early_stopping="never", eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    body = {"prompt": PROMPT, "use_beam_search": True, "n": WIDTH, "max_tokens": 12, "length_penalty": penalty,
            "ignore_eos": True, "return_token_ids": True, "logprobs": 0}  # fmt: skip
    answer = post(tiny, **body)
    assert [c["token_ids"] for c in answer["choices"]] == found[:, len(PROMPT) :].tolist()
    totals = [sum(c["logprobs"]["token_logprobs"]) for c in answer["choices"]]
    assert totals == sorted(totals, reverse=True)
    for choice in answer["choices"]:
        rows = logprobs_after(reference, PROMPT + choice["token_ids"])[len(PROMPT) - 1 : -1]
        expected = [float(row[token]) for row, token in zip(rows, choice["token_ids"], strict=True)]
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=2e-3)
    assert answer["usage"]["completion_tokens"] == 12 * WIDTH


def test_chosen_tokens_and_prompts_have_the_probabilities_of_transformers(tiny, reference) -> None:
    chosen = [200, 5, 77]
    answer = post(
        tiny, prompt=PROMPT, max_tokens=1, temperature=0, logprobs=1, logprob_token_ids=chosen, prompt_logprobs=2,
        return_tokens_as_token_ids=True,
    )  # fmt: skip
    choice = answer["choices"][0]
    rows = logprobs_after(reference, PROMPT)
    top = choice["logprobs"]["top_logprobs"][0]
    assert [top[f"token_id:{i}"] for i in chosen] == pytest.approx([float(rows[-1][i]) for i in chosen], abs=2e-3)
    assert choice["prompt_logprobs"][0] is None and len(choice["prompt_logprobs"]) == len(PROMPT)
    for at, known in enumerate(choice["prompt_logprobs"][1:], start=1):
        row = rows[at - 1]
        mine = known[str(PROMPT[at])]
        assert mine["logprob"] == pytest.approx(float(row[PROMPT[at]]), abs=2e-3)
        assert mine["rank"] == 1 + int((row > row[PROMPT[at]]).sum())
        assert known[str(int(row.argmax()))]["rank"] == 1 and 2 <= len(known) <= 3


def test_all_alternatives_and_none(tiny) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "return_tokens_as_token_ids": True}
    every = post(tiny, **body, logprobs=-1)["choices"][0]["logprobs"]
    assert len(every["top_logprobs"][0]) == 258
    none = post(tiny, **body, logprobs=0)["choices"][0]["logprobs"]
    assert none["top_logprobs"] == [{none["tokens"][0]: none["token_logprobs"][0]}]


def test_penalties_biases_and_limits_change_the_answer_as_they_say(tiny, reference) -> None:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    plain = post(tiny, **body)["choices"][0]["token_ids"]
    assert post(tiny, **body, logit_bias={"9": 100})["choices"][0]["token_ids"] == [9] * 8
    assert set(post(tiny, **body, allowed_token_ids=[11, 12])["choices"][0]["token_ids"]) <= {11, 12}
    assert plain[0] not in post(tiny, **body, logit_bias={str(plain[0]): -100})["choices"][0]["token_ids"]
    stopped = post(tiny, **body, stop_token_ids=[plain[0]])["choices"][0]
    assert (stopped["token_ids"], stopped["stop_reason"]) == (plain[:1], plain[0])
    later = post(tiny, **{**body, "min_tokens": 3}, stop_token_ids=[plain[0]])["choices"][0]["token_ids"]
    assert plain[0] not in later[:3]
    repeated = post(tiny, **{**body, "max_tokens": 60}, repetition_detection={"max_pattern_size": 1, "min_count": 3},
                    logit_bias={"9": 100})["choices"][0]  # fmt: skip
    assert (repeated["token_ids"], repeated["finish_reason"]) == ([9] * 3, "repetition")


def test_filters_that_leave_one_token_are_greedy(tiny) -> None:
    body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True, "seed": 5}
    greedy = post(tiny, **body, temperature=0)["choices"][0]["token_ids"]
    assert post(tiny, **body, temperature=2.0)["choices"][0]["token_ids"] != greedy
    for one in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert post(tiny, **body, temperature=2.0, **one)["choices"][0]["token_ids"] == greedy


@pytest.mark.parametrize("penalty", [
    {"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 5}, {"bad_words": ["H", "IJ"]},
])  # fmt: skip
def test_penalties_push_likely_tokens_away(tiny, penalty: dict) -> None:
    """Ten letters are all there is to say; what each penalty does to logits is compared with a reference elsewhere."""
    letters = httpx.post(f"{tiny}/tokenize", json={"prompt": "ABCDEFGHIJ"}).json()["tokens"]
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "allowed_token_ids": letters}
    plain = post(tiny, **body)["choices"][0]["text"]
    pushed = post(tiny, **body, **penalty)["choices"][0]["text"]
    assert set(plain) <= set("ABCDEFGHIJ") and pushed != plain and len(pushed) == 40
    if "bad_words" in penalty:
        assert "H" not in pushed and "IJ" not in pushed


def test_the_end_token_ends_unless_it_is_ignored_and_shows_when_asked(tiny) -> None:
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "logit_bias": {"1": 100}}
    ended = post(tiny, **body)["choices"][0]
    assert (ended["text"], ended["finish_reason"], ended["stop_reason"]) == ("", "stop", None)
    going = post(tiny, **body, ignore_eos=True)
    assert going["choices"][0]["finish_reason"] == "length" and going["usage"]["completion_tokens"] == 3
    shown = post(tiny, **body, ignore_eos=True, skip_special_tokens=False, spaces_between_special_tokens=False)
    assert shown["choices"][0]["text"] == "</s>" * 3
    assert post(tiny, **{**body, "min_tokens": 2})["usage"]["completion_tokens"] == 3


def test_a_salt_keeps_caches_apart(tiny) -> None:
    prompt = [(11 * i) % 250 + 2 for i in range(64)]
    cached = []
    for salt in ("a", "a", "b", None, None):
        usage = post(tiny, prompt=prompt, max_tokens=1, cache_salt=salt)["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"] > 0)
    assert cached == [False, True, False, False, True]


CORPUS = [
    "Once upon a time", "Żluć żółw", "Ελληνικά", "Русский язык", "中文字符", "日本語の文", "한국어", "עברית", "العربية",
    "हिन्दी", "ไทย", "\U0001f388\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f3fd\U0001f1e9\U0001f1ea",
    "e\u0301\u0328 a\u0308",
]  # fmt: skip


def streamed(url: str, **body: object) -> tuple[list[str], str | None]:
    """The pieces of a stream of one choice, and why it ended."""
    lines = httpx.post(f"{url}/v1/completions", json={**body, "stream": True}, timeout=120).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line and "[DONE]" not in line]
    return [c["choices"][0]["text"] for c in chunks], chunks[-1]["choices"][0]["finish_reason"]


@pytest.mark.parametrize("text", CORPUS)
def test_streams_of_random_bytes_say_what_the_whole_says(tiny, text: str) -> None:
    """The tiny model babbles bytes of all kinds: broken characters at every turn."""
    body = {"prompt": text, "max_tokens": 80, "seed": 1, "temperature": 1.2, "ignore_eos": True}
    whole = post(tiny, **body)["choices"][0]["text"]
    pieces, _ = streamed(tiny, **body)
    assert "".join(pieces) == whole
    assert sum(p.count("\ufffd") for p in pieces) == whole.count("\ufffd")


@pytest.mark.parametrize("text", CORPUS)
def test_stop_strings_never_leak(tiny, text: str) -> None:
    """Stop strings taken from the middle of the answer, one to five characters long, across the borders of tokens."""
    body = {"prompt": text, "max_tokens": 40, "seed": 2, "temperature": 1.0, "ignore_eos": True}
    whole = post(tiny, **body)["choices"][0]["text"]
    for at, size in ((3, 1), (9, 2), (16, 5)):
        stop = whole[at : at + size]
        pieces, reason = streamed(tiny, **body, stop=[stop])
        assert ("".join(pieces), reason) == (whole[: whole.index(stop)], "stop")
    pieces, reason = streamed(tiny, **body, stop=[whole[16:20] + "\u0000never"])
    assert ("".join(pieces), reason) == (whole, "length")


@pytest.mark.model
@pytest.mark.parametrize("text", CORPUS)
def test_the_demo_in_every_script(demo: str, text: str) -> None:
    ask = {"messages": [{"role": "user", "content": f"Repeat: {text}"}], "max_tokens": 24, "temperature": 0}
    whole = post(demo, "chat/completions", **ask)["choices"][0]["message"]["content"]
    lines = httpx.post(f"{demo}/v1/chat/completions", json={**ask, "stream": True}, timeout=120).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line and "[DONE]" not in line]
    pieces = [c["choices"][0]["delta"].get("content", "") for c in chunks]
    assert "".join(pieces) == whole
    assert sum(p.count("\ufffd") for p in pieces) == whole.count("\ufffd")
    ids = httpx.post(f"{demo}/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    assert httpx.post(f"{demo}/detokenize", json={"tokens": ids}).json()["prompt"] == text


def test_aliases_are_served_and_the_first_name_answers(serve, tiny_llama: str) -> None:
    options = ("--device", "fake", "--kv-cache-memory-bytes", "16M", "--served-model-name", "first", "second")
    with serve(tiny_llama, *options) as started:
        url = started.wait_ready()
        cards = httpx.get(f"{url}/v1/models").json()["data"]
        assert [card["id"] for card in cards] == ["first", "second"]
        assert cards[0]["permission"][0]["object"] == "model_permission"
        assert post(url, prompt=PROMPT, max_tokens=1, model="second")["model"] == "first"
        assert httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT, "model": "third"}).status_code == 404


def test_only_the_request_that_does_not_fit_in_memory_fails(serve, tiny_llama: str) -> None:
    """A device whose forward takes ten tokens: a batch is run in parts, and one prompt is too much for it."""
    options = ("--device", "fake", "--plugin-config", "platform:fake.out_of_memory_tokens=10")
    with serve(tiny_llama, *options, "--kv-cache-memory-bytes", "16M") as started:
        url = started.wait_ready()
        bodies = [{"prompt": PROMPT[:6], "max_tokens": 12, "temperature": 0, "ignore_eos": True}] * 4
        bodies.insert(2, {"prompt": PROMPT * 3, "max_tokens": 2})
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: httpx.post(f"{url}/v1/completions", json=body, timeout=120), bodies))
        assert [answer.status_code for answer in answers] == [200, 200, 500, 200, 200]
        assert "does not fit" in answers[2].json()["error"]["message"]
        texts = [answer.json()["choices"][0]["text"] for answer in answers if answer.status_code == 200]
        assert len(set(texts)) == 1 and httpx.get(f"{url}/health").status_code == 200


def test_development_routes_are_switched_by_the_environment(serve, tiny_llama: str) -> None:
    options = ("--device", "fake", "--kv-cache-memory-bytes", "16M")
    with serve(tiny_llama, *options, env={"TURRET_SERVER_DEV_MODE": "1"}) as started:
        url = started.wait_ready()
        shown = httpx.get(f"{url}/server_info", params={"config_format": "json"}).json()
        assert shown["vllm_config"]["server"]["server_dev_mode"] is True
        assert shown["vllm_env"]["TURRET_SERVER_DEV_MODE"] == "1"
        assert httpx.post(f"{url}/reset_prefix_cache").status_code == 200
