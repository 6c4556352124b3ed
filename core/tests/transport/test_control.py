"""The channel between a main process and its front ends."""

from __future__ import annotations

import asyncio
import socket

from turret.messages.control import Answers, Ask, AskAll, EngineGone, FrontReady, ToFront, ToMain
from turret.transport.control import ControlChannel


def test_frames_cross_both_ways_and_the_end_is_told() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        front: ControlChannel[ToFront] = await ControlChannel.open(theirs, ToFront)
        main: ControlChannel[ToMain] = await ControlChannel.open(ours, ToMain)
        text = 'line one\nline "two" é ' * 100_000  # more than a pipe holds
        main.send(EngineGone(1, "killed"))
        main.send(Answers(7, [text, None, 3]))
        assert await front.receive() == EngineGone(1, "killed")
        assert await front.receive() == Answers(7, [text, None, 3])
        front.send(FrontReady())
        front.send(AskAll(1, "metrics"))
        front.close()
        assert await main.receive() == FrontReady()
        assert await main.receive() == AskAll(1, "metrics")
        assert await main.receive() is None
        main.send(Ask(1, "late"))
        assert await main.receive() is None
        main.close()

    asyncio.run(main())
