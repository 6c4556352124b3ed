"""The device side: weights, KV tensors, the persistent batch, sampling.

Owns: everything a step touches on a device. Knows nothing of queues, HTTP or text.

Importing this package loads nothing; the names live in their modules, because only some of them need torch:

- `turret.worker.setup`   (no torch)  `WorkerParts`, `ModelSource`, `WorkerLimits`: what a worker is built from
- `turret.worker.local`   (torch)     `LocalWorker(parts, source, limits)`: a worker in this process
- `turret.worker.remote`  (no torch)  `RemoteWorker(spawn)`, `WorkerSpawn(...)`: one in a process of its own
- `turret.worker.serve`   (no torch)  `main(fd)`: what that process runs; `WorkerSpawn.entry` builds its worker there
- `turret.worker.runner`  (torch)     `Runner`: one forward of a mixed batch
- `turret.worker.loader`  (torch)     `load_model`: build and fill a model
- `turret.worker.batch`, `turret.worker.sampler`: the persistent batch, the sampler
"""

__all__: list[str] = []
