"""The step loop and the client that submits, streams and aborts.

Owns: `EngineCore` (plan, submit, collect, commit), `EngineLoop` (serves clients), the engine's process, and the client.
Knows nothing of HTTP, model classes or torch.

In a server::

    process = EngineProcess("turret.compose.engine:build_engine", config_json)
    process.launch()                                  # returns at once; the engine loads meanwhile
    client = EngineClient(ProcessLink(process))       # or ThreadLink(build_engine, config_json): same process
    ready = await client.start(progress)              # EngineReady; raises LoadError, ConfigError, ... of the engine
    async with client.submit(request) as stream:      # leaving early aborts; a list of requests shares one stream
        async for event in stream: ...                # TokenEvent; or `await stream.batch()`: all that is there
    await client.shutdown(timeout)

Several engines: `EngineFleet([EngineClient(link, index, name), ...], work)` answers the same calls.
`event_error(event)` gives the exception an error event stands for. Offline: `InprocEngine(core)`, stepped by whoever
holds it.
A factory is `build(config_json: str, progress: Progress) -> EngineCore`.
"""

from turret.engine.attached_link import AttachedLink
from turret.engine.client import EngineClient
from turret.engine.core import EngineCore
from turret.engine.faults import event_error
from turret.engine.fleet import EngineFleet
from turret.engine.inproc import InprocEngine
from turret.engine.loop import EngineLoop
from turret.engine.offline_fleet import OfflineFleet
from turret.engine.ports import Client, Link, Progress
from turret.engine.process import EngineProcess
from turret.engine.process_link import ProcessLink
from turret.engine.stream import EngineStream
from turret.engine.thread_link import ThreadLink

__all__ = [
    "AttachedLink",
    "Client",
    "EngineClient",
    "EngineCore",
    "EngineFleet",
    "EngineLoop",
    "EngineProcess",
    "EngineStream",
    "InprocEngine",
    "Link",
    "OfflineFleet",
    "ProcessLink",
    "Progress",
    "ThreadLink",
    "event_error",
]
