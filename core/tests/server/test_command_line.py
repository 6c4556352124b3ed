"""`turret chat`, `complete` and `bench serve` against a running server."""

from __future__ import annotations

import io
import json
import math

import httpx
import pytest

from turret.cli.bench_report import Report, percentile
from turret.cli.main import main


@pytest.fixture
def typed(monkeypatch):
    """Give the command these lines on standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def last_json(text: str) -> dict:
    return json.loads(text.strip().splitlines()[-1])


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_complete(tiny, capsys, suffix):
    assert main(["complete", "--url", tiny.url + suffix, "--prompt", "Hello", "--max-tokens", "7"]) == 0
    assert capsys.readouterr().out == tiny.answer("Hello", 7) + "\n"


def test_complete_reads_standard_input_and_echoes(tiny, capsys, typed):
    typed("Hello")
    assert main(["complete", "--url", tiny.url, "--max-tokens", "3", "--echo"]) == 0
    assert capsys.readouterr().out == "Hello" + tiny.answer("Hello", 3) + "\n"


def test_chat_keeps_the_conversation_and_begins_anew(tiny, capsys, typed):
    typed("one\n\ntwo\n/new\none\n/quit\nnever said\n")
    assert main(["chat", "--url", tiny.url, "--max-tokens", "4", "--system", "sys"]) == 0
    first = tiny.answer("<system>sys|<user>one<assistant>", 4)
    second = tiny.answer(f"<system>sys|<user>one|<assistant>{first}|<user>two<assistant>", 4)
    assert capsys.readouterr().out.splitlines() == [first, second, first]


def test_chat_with_one_message(tiny, capsys):
    assert main(["chat", "--url", tiny.url, "alias", "--message", "hi", "--max-tokens", "4"]) == 0
    assert capsys.readouterr().out == tiny.answer("<user>hi<assistant>", 4) + "\n"


def test_a_turn_that_is_refused_is_forgotten(tiny, capsys, typed):
    typed("x" * 600 + "\none\n")
    assert main(["chat", "--url", tiny.url, "--max-tokens", "4"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [tiny.answer("<user>one<assistant>", 4)]
    assert printed.err.startswith("turret: the server answered 400: ") and "512" in printed.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--temperature", "-1"], "the server answered 400: temperature must be non-negative"),
        (["--model", "nobody"], "the server answered 404: the model 'nobody' does not exist here"),
    ],
)
def test_the_servers_own_words_are_shown(tiny, capsys, args, words):
    assert main(["complete", "--url", tiny.url, "--prompt", "x", *args]) == 1
    assert words in capsys.readouterr().err


def test_a_key_is_sent(serve, capsys, monkeypatch):
    with serve(api_key=["secret"]) as running:
        ask = ["complete", "--url", running.url, "--prompt", "Hello", "--max-tokens", "2"]
        assert main(ask) == 1 and main([*ask, "--api-key", "secret"]) == 0
        monkeypatch.setenv("TURRET_API_KEY", "secret")
        assert main(ask) == 0
    assert capsys.readouterr().out == 2 * (running.answer("Hello", 2) + "\n")


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_bench_serve_counts_what_the_server_did(serve, capsys, endpoint):
    with serve() as running:
        load = ["--num-prompts", "12", "--input-len", "3", "--output-len", "5", "--endpoint", endpoint]
        assert main(["bench", "serve", "--url", running.url, *load, "--max-concurrency", "4"]) == 0
        metrics = httpx.get(f"{running.url}/metrics").text
    found = last_json(capsys.readouterr().out)
    assert (found["model"], found["requests"], found["succeeded"], found["failures"]) == ("tiny", 12, 12, {})
    assert found["output_tokens"] == 60
    assert f'turret:prompt_tokens_total{{engine="0",model_name="tiny"}} {float(found["prompt_tokens"])}' in metrics
    for figure in ("first_token_ms", "inter_chunk_ms", "per_output_token_ms", "request_ms"):
        assert 0 <= found[f"{figure}_p50"] <= found[f"{figure}_p90"] <= found[f"{figure}_p99"]
    assert found["first_token_ms_p99"] < found["request_ms_p99"]


def test_bench_serve_keeps_the_rate(serve, capsys):
    with serve() as running:
        load = ["--num-prompts", "20", "--request-rate", "40", "--output-len", "2", "--input-len", "2"]
        assert main(["bench", "serve", "--url", running.url, *load]) == 0
    found = last_json(capsys.readouterr().out)
    assert found["seconds"] > 0.2 and found["succeeded"] == 20


def test_bench_serve_tells_refusals_apart(serve, capsys):
    with serve({"step_seconds": 0.02, "max_num_seqs": 1}, max_queue_requests=1) as running:
        load = ["--num-prompts", "10", "--output-len", "20", "--input-len", "2"]
        assert main(["bench", "serve", "--url", running.url, *load]) == 0
        found = last_json(capsys.readouterr().out)
        assert found["succeeded"] + found["failures"]["429"] == 10 and found["succeeded"] >= 1
        assert main(["bench", "serve", "--url", running.url, "--model", "nobody", "--num-prompts", "3"]) == 1
    assert last_json(capsys.readouterr().out)["failures"] == {"404": 3}


def test_percentiles_are_nearest_rank(capsys):
    values = list(range(1, 101))
    assert [percentile(values, p) for p in (0, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert percentile([7.0], 99) == 7.0 and math.isnan(percentile([], 50))
    report = Report()
    report.add(requests=3)
    report.spread("nothing_ms", [])
    report.spread("some_ms", [1.0, 2.0, 6.0])
    report.show()
    out = capsys.readouterr().out
    figures = {"some_ms_mean": 3.0, "some_ms_p50": 2.0, "some_ms_p90": 6.0, "some_ms_p99": 6.0}
    assert last_json(out) == {"requests": 3, **figures}
    assert "nothing_ms" not in out
