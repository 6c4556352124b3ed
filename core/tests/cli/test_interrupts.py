"""Ctrl-C during a start: wherever it strikes, the start ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import pytest
import uvloop

from turret.cli.interrupts import Interrupts


def _swallowed() -> None:
    """An interrupt in code that catches everything."""
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_raised_where_it_strikes() -> None:
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_one_that_was_swallowed_is_found() -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        _swallowed()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_one_that_was_swallowed_before_the_loop_ends_the_wait() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    with Interrupts() as interrupts:
        _swallowed()
        with pytest.raises(KeyboardInterrupt):
            uvloop.run(interrupts.until(never()))


def test_a_wait_is_cancelled_and_may_clean_up() -> None:
    cleaned = []

    async def waits() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        uvloop.run(interrupts.until(waits()))
    assert cleaned == [True]


def test_without_a_signal_nothing_changes() -> None:
    async def soon() -> int:
        return 7

    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert uvloop.run(interrupts.until(soon())) == 7
    assert signal.getsignal(signal.SIGINT) is before
