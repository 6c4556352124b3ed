"""A worker that plays a script: no weights, no forward, every other part of turret as it is.

Owns: how a pretend device's options become such a worker. Knows nothing of scenes.
"""

from __future__ import annotations

from turret.contracts import Worker, WorkerOrder
from turret.errors import EngineError
from turret.messages import Request
from turret.testing.null_engine import NullConfig, NullWorker
from turret_platform_fake.options import FakeOptions
from turret_platform_fake.script import Script

__all__ = ["scripted_worker"]

_POOL_TOKENS = 1 << 18
"""What the pretended cache holds beyond one request of full length: nothing here waits for room."""


def scripted_worker(script: Script, order: WorkerOrder, options: FakeOptions) -> Worker:
    """The worker; a step takes `step_seconds`, and `die_at_step` is the first step at 1."""

    def speech(request: Request) -> list[int]:
        tokens = script.answer(order.decode(request.prompt_token_ids)).tokens(order.encode)
        strange = [token for token in tokens if not 0 <= token < order.vocab_size]
        if strange:
            raise EngineError(f"the script says token {strange[0]}, the model has {order.vocab_size}")
        return tokens

    config = NullConfig(
        num_blocks=1 + (order.max_model_len + _POOL_TOKENS) // order.block_size, block_size=order.block_size,
        vocab_size=order.vocab_size, max_model_len=order.max_model_len, max_num_seqs=order.max_num_seqs,
        step_seconds=options.step_seconds, fault="" if options.die_at_step is None else "kill",
        fault_step=options.die_at_step or 1,
    )  # fmt: skip
    return NullWorker(config, speech)
