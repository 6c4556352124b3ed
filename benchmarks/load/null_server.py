"""turret's HTTP front on an engine whose model is a hash: all between the socket and the engine is as it is served.

Owns: the wiring. Knows nothing of loads. The text side is the demo model's, tokens are drawn from its vocabulary.

    python -m load.null_server NULL_CONFIG_JSON [OPTIONS OF TURRET SERVE]
"""

from __future__ import annotations

import sys

import msgspec
import uvloop

from turret.cli.arguments import read_options
from turret.cli.logs import setup_server_logging
from turret.compose.find import find_model
from turret.compose.text import open_text
from turret.config import Config
from turret.engine import EngineClient, EngineProcess, ProcessLink
from turret.server.listening import bind
from turret.server.parts import ServerParts
from turret.server.run import run_server
from turret.testing.null_engine import NullConfig

FACTORY = "turret.testing.null_engine:build_null_engine"


def main() -> None:
    """Serve until SIGTERM."""
    null = msgspec.json.decode(sys.argv[1], type=NullConfig)
    argv = ["demo", "--host", "127.0.0.1", "--port", "0", "--disable-uvicorn-access-log", *sys.argv[2:]]
    config = Config.from_options(read_options(argv, {}))
    setup_server_logging(config)
    found = find_model(config)
    text = open_text(found.config, found.checkpoint, null.max_model_len)
    null = msgspec.structs.replace(null, vocab_size=text.tokenizer.vocab_size)
    listener = bind(config.server)

    async def serve() -> None:
        process = EngineProcess(FACTORY, msgspec.json.encode(null).decode())
        process.launch()
        client = EngineClient(ProcessLink(process))
        await client.start()
        parts = ServerParts(
            text=text, client=client, model_names=("null",), model_root="null", max_model_len=null.max_model_len,
            vocab_size=null.vocab_size, kv_capacity=(null.num_blocks - 1) * null.block_size,
        )
        await run_server(parts, config, listener, lambda _: print(f"ready: {listener.url}", flush=True))

    uvloop.run(serve())


if __name__ == "__main__":
    main()
