"""The engines of a server or of `LLM`: one, or a replica on each of several devices.

Owns: how many there are and how they are reached. Loads neither torch nor transformers, except where the user asked for
an engine inside this process.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turret.compose.spec import EngineSpec
from turret.engine import EngineClient, EngineFleet, EngineProcess, ProcessLink, ThreadLink
from turret.engine.ports import Client, Link
from turret.transport import Ledger, SharedCount

__all__ = ["engine_client", "engine_processes", "launch_engines"]

_FACTORY = "turret.compose.engine:engine_in_process"


def launch_engines(spec: EngineSpec) -> Sequence[Link]:
    """A way to each engine, in the order of their ranks; those in processes of their own load meanwhile."""
    if spec.config.parallel.disable_frontend_multiprocessing:
        # The engine shares this process, torch included: imported only where the user asked for that.
        from turret.compose.engine import build_engine

        return [ThreadLink(build_engine, spec.to_json())]
    return [ProcessLink(process) for process in engine_processes(spec)]


def engine_processes(spec: EngineSpec) -> Sequence[EngineProcess]:
    """The engines' processes, launched."""
    processes = []
    for rank in range(spec.config.parallel.data_parallel_size):
        process = EngineProcess(_FACTORY, msgspec.structs.replace(spec, rank=rank).to_json())
        process.launch()
        processes.append(process)
    return processes


def engine_client(links: Sequence[Link], work: Sequence[SharedCount] | None = None) -> Client:
    """What a front end calls, for one engine or several; `work` counts what each has to do, where fronts share them."""
    if len(links) == 1:
        return EngineClient(links[0])
    engines = [EngineClient(link, index, f"engine {index}") for index, link in enumerate(links)]
    if work is None:
        ledger = Ledger(columns=len(links))
        work = [ledger.count(index) for index in range(len(links))]
    return EngineFleet(engines, work)
