"""Grammars compiled elsewhere: whatever a compiler does, one request learns of it, in time, and the next is served."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from turret.contracts import GrammarSpec, Vocabulary
from turret.errors import CapacityError, RequestError
from turret.grammars import CompileLimits, GrammarLaunch, GrammarService

LIMITS = CompileLimits(
    seconds=4.0,
    step_seconds=0.05,
    memory_bytes=256 << 20,
    size_bytes=1 << 20,
    trial_seconds=0.5,
    trial_steps=4,
    cache_bytes=100,
)


@pytest.fixture(scope="module")
def started():
    return []


@pytest.fixture(scope="module")
def service(started):
    here = str(Path(__file__).parent)
    sys.path.append(here)
    made = GrammarService(
        GrammarLaunch(
            "faulty_backends:backends",
            "first,second,unloadable",
            ("unloadable", "first", "second"),
            lambda: Vocabulary([b"a"] * 40, (0,)),
            LIMITS,
            lambda: started.append(1),
        )
    )
    yield made
    made.close()
    sys.path.remove(here)


def spec(text: str) -> GrammarSpec:
    return GrammarSpec(kind="grammar", text=text)


def test_the_first_backend_that_can_is_taken(service, started):
    made = service.compile(spec("fine")).result(30)
    assert (made.backend, made.compiled, made.key) == ("first", b"first: fine", spec("fine").key)
    assert service.compile(spec("not first")).result(30).backend == "second"
    assert started == [1]


@pytest.mark.parametrize(("text", "sentence"), [
    ("sleep", "more than 4 s"), ("eat", "memory"), ("crash", "more than its compiler can bear"),
    ("refuse", "first: it is refused; second: it is refused"), ("large", "2097152 bytes"),
    ("nothing", "no text matches"), ("slow step", "ambiguous"),
])  # fmt: skip
def test_what_a_compiler_does_is_one_request_s_error(service, text, sentence):
    began = time.monotonic()
    with pytest.raises(RequestError, match=sentence) as found:
        service.compile(spec(text)).result(30)
    assert type(found.value) is RequestError and "\n" not in str(found.value)
    assert time.monotonic() - began < 20
    if text in ("sleep", "crash"):
        assert service.known(spec(text)) is None, "it may do better next time"
        return
    with pytest.raises(RequestError, match=sentence):
        service.known(spec(text))


def test_others_are_served_while_one_compiles_for_ever(service):
    slow = service.compile(GrammarSpec(kind="regex", text="sleep"))
    assert service.compile(spec("meanwhile")).result(30).compiled == b"first: meanwhile"
    assert not slow.done()
    with pytest.raises(RequestError):
        slow.result(30)


def test_equal_specs_wait_for_one_grammar_and_old_ones_are_forgotten(service):
    assert service.compile(spec("twice")) is service.compile(spec("twice"))
    service.compile(spec("twice")).result(30)
    assert service.known(spec("twice")).compiled == b"first: twice"
    for number in range(12):
        service.compile(spec(f"number {number}")).result(30)
    assert service.known(spec("twice")) is None
    assert service.known(spec("number 11")) is not None


def test_a_process_that_dies_is_replaced(service, started):
    waiting = service.compile(GrammarSpec(kind="choice", text="sleep"))
    os.kill(service._process.process.pid, 9)
    with pytest.raises(CapacityError):
        waiting.result(30)
    assert service.compile(spec("after")).result(30).compiled == b"first: after"
    assert started == [1, 1]


def test_a_service_that_is_closed_leaves_no_process(service):
    other = GrammarService(service._launch)
    other.compile(spec("x")).result(30)
    process = other._process.process
    other.close()
    assert process.poll() is not None
    with pytest.raises(CapacityError):
        other.compile(spec("y"))
