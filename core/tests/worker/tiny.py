"""A tiny Llama-shaped model, the parts of a worker that runs it, and a driver that plays the scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from turret.checkpoint import Checkpoint, CheckpointKind
from turret.contracts import ModelContext
from turret.messages import KVCacheConfig, NewRequest, Request, RequestResult, RunningRequest, StepPlan, WorkerFacts
from turret.nn import AttentionSpec, BlockSpec, Decoder, DecoderSpec, MLPSpec, RopeSpec, decoder_weights
from turret.sampling import SamplingParams
from turret.worker.setup import ModelSource, WorkerLimits, WorkerParts
from turret_attention_torch.backend import TorchAttention
from turret_platform_fake.platform import FakePlatform

CONFIG = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "layers": 4, "heads": 4, "kv_heads": 2,
          "window": 8, "tied": False}
BLOCK = 4


class TinyArchitecture:
    """Llama with a sliding window on every odd layer, so that there are two KV groups."""

    api = "1.0"

    def spec(self, config: Mapping[str, Any]) -> DecoderSpec:
        dim = config["hidden_size"] // config["heads"]
        blocks = tuple(
            BlockSpec(
                AttentionSpec(config["heads"], config["kv_heads"], dim, dim**-0.5, rope=RopeSpec(dim),
                              window=config["window"] if layer % 2 else None),
                MLPSpec(config["intermediate_size"]))
            for layer in range(config["layers"]))
        return DecoderSpec(config["vocab_size"], config["hidden_size"], blocks, tied=config["tied"])

    def build(self, config: Mapping[str, Any], ctx: ModelContext) -> Decoder:
        return Decoder(self.spec(config), ctx)

    def weights(self, config: Mapping[str, Any]) -> Any:
        return decoder_weights(self.spec(config))


def parts(**platform_options: Any) -> WorkerParts:
    return WorkerParts(FakePlatform(platform_options), TorchAttention(), TinyArchitecture())


def limits(**changes: Any) -> WorkerLimits:
    values = {"max_model_len": 96, "max_num_seqs": 8, "max_num_batched_tokens": 64, "block_size": BLOCK,
              "num_gpu_blocks_override": 200}
    return WorkerLimits(**{**values, **changes})


def dummy_source(dtype: str = "float32", **config: Any) -> ModelSource:
    checkpoint = Checkpoint(reference="tiny", name="tiny", kind=CheckpointKind.SAFETENSORS, path="/nowhere", config={})
    return ModelSource(checkpoint, {**CONFIG, **config}, dtype, "dummy", seed=3)


def stored_source(directory: Path, dtype: str = "float32", **config: Any) -> ModelSource:
    """A source whose weights lie in `directory`, as `write_weights` put them there."""
    files = tuple(str(p) for p in sorted(directory.glob("*.safetensors")))
    checkpoint = Checkpoint(reference=str(directory), name="tiny", kind=CheckpointKind.SAFETENSORS,
                            path=str(directory), config={}, weight_files=files)
    return ModelSource(checkpoint, {**CONFIG, **config}, dtype)


def write_weights(directory: Path, dtype: torch.dtype = torch.float32, **config: Any) -> dict[str, torch.Tensor]:
    """Random weights under Hugging Face's names, in one safetensors file."""
    c = {**CONFIG, **config}
    hidden, wide, kv = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["heads"] * c["kv_heads"]
    shapes = {"model.embed_tokens": (c["vocab_size"], hidden), "model.norm": (hidden,)}
    if not c["tied"]:
        shapes["lm_head"] = (c["vocab_size"], hidden)
    for layer in range(c["layers"]):
        inner = {
            "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
            "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden),
            "mlp.down_proj": (hidden, wide), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        }  # fmt: skip
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in inner.items()}
    generator = torch.Generator().manual_seed(5)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.02)
        tensors[f"{name}.weight"] = (noise + (len(shape) == 1)).to(dtype)
    save_file(tensors, directory / "model.safetensors")
    return tensors


def request(name: str, prompt: list[int], **sampling: Any) -> Request:
    sampling.setdefault("temperature", 0.0)
    eos = sampling.pop("eos", [])
    return Request(request_id=name, prompt_token_ids=prompt, max_tokens=90, seed=sum(prompt), eos_token_ids=eos,
                   sampling=SamplingParams(max_tokens=None, **sampling))


def cache_config(facts: WorkerFacts) -> KVCacheConfig:
    return KVCacheConfig(num_blocks=facts.num_blocks, block_size=facts.block_size, groups=facts.groups)


def build_in_child(argument: str) -> Any:
    """The entry of a worker process: a local worker whose platform has the options in `argument` (JSON)."""
    from turret.worker.local import LocalWorker

    return LocalWorker(parts(**json.loads(argument)), dummy_source(), limits())


class Driver:
    """Plays the scheduler over a started worker: hands out blocks in order, never takes any back."""

    def __init__(self, worker: Any, depth: int = 1) -> None:
        self.worker = worker
        self.facts = worker.start()
        worker.allocate(cache_config(self.facts))
        self.results: dict[str, list[RequestResult]] = {}
        self._depth = depth
        self._requests: dict[str, Request] = {}
        self._done: dict[str, int] = {}
        self._planned: dict[str, int] = {}
        self._blocks: dict[str, int] = {}
        self._next_block, self._step, self._under_way = 1, 0, 0

    def tokens(self, name: str) -> list[int]:
        return [t for r in self.results.get(name, []) for t in r.token_ids]

    def run(self, requests: list[Request], outputs: int, chunk: int = 64) -> dict[str, list[int]]:
        """Generate `outputs` tokens for each, prompts cut into pieces of `chunk`; tokens by request."""
        fresh = {r.request_id: r for r in requests}
        self._requests |= fresh
        entered: set[str] = set()
        while any(self._planned.get(n, 0) < outputs for n in fresh):
            new, running = [], []
            for name, r in fresh.items():
                if self._planned.get(name, 0) >= outputs:
                    continue
                known = len(r.prompt_token_ids) + self._planned.get(name, 0)
                done = self._done.get(name, 0)
                count = min(chunk, known - done)
                blocks = self._extend(name, done + count)
                if name in entered:
                    running.append(RunningRequest(name, done, count, blocks))
                else:
                    entered.add(name)
                    new.append(NewRequest(request=r, block_ids=blocks, num_computed_tokens=0, num_tokens=count))
                self._done[name] = done + count
                self._planned[name] = self._planned.get(name, 0) + (done + count == known)
            self.submit(StepPlan(step_id=self._step, new=new, running=running))
        while self._under_way:
            self.collect()
        return {name: self.tokens(name) for name in fresh}

    def submit(self, plan: StepPlan) -> None:
        self.worker.submit(plan)
        self._step += 1
        self._under_way += 1
        if self._under_way >= self._depth:
            self.collect()

    def collect(self) -> None:
        result = self.worker.collect(timeout=60)
        assert result is not None
        self._under_way -= 1
        for r in result.results:
            self.results.setdefault(r.request_id, []).append(r)

    def remove(self, *names: str) -> None:
        self.submit(StepPlan(step_id=self._step, removed=list(names)))

    def _extend(self, name: str, tokens: int) -> list[list[int]]:
        need = -(-tokens // BLOCK) - self._blocks.get(name, 0)
        self._blocks[name] = self._blocks.get(name, 0) + need
        found = []
        for _ in self.facts.groups:
            found.append(list(range(self._next_block, self._next_block + need)))
            self._next_block += need
        return found
