"""Composition: the only room that names concrete classes and wires them.

Owns: nothing that lives; it builds. What is built from what is decided here once, by the first process that may load
torch (the engine's), and frozen into a plan that workers must meet.

Importing this package loads nothing; the names live in their modules:

- `turret.compose.spec`     `EngineSpec`: what an engine process is told, as JSON
- `turret.compose.find`     `find_model`: the checkpoint that the options name
- `turret.compose.logs`     `setup_logging`: log lines of turret's own processes
- `turret.compose.hosts`    `plugin_host`: the plugin host that the options describe
- `turret.compose.decide`   `decide`: platform, architecture, quantization, attention and the options left open
- `turret.compose.engine`   `build_engine`, `engine_in_process`: an EngineCore from a spec
- `turret.compose.worker`   `make_worker`, `worker_from_json`: a worker from a decision
- `turret.compose.server`   `begin_server`: what the HTTP front needs
- `turret.compose.offline`  `build_offline`: what `LLM` needs
"""

__all__: list[str] = []
