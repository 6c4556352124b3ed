"""Model-building layers, dispatch of named ops, and the declarative decoder.

Owns: how a forward is put together. Knows nothing of queues, requests or files.

A loader needs three things of this room:

    factory = LayerFactory(dtype, device, max_position, OpTable.resolve(providers), Quantization(method, specs) or None)
    model = architecture.build(config, ModelContext(dtype, device, max_position, factory))
    for name, tensor in checkpoint:                      # any order; tensors are kept as given until their layer packs
        placement = rule(name)                           # architecture.weights(config); None: unknown name, an error
        factory.place(placement, tensor)                 # transform, skip and shard are handled here
    factory.finish()                                     # LoadError that names missing tensors

or `factory.fill_random(seed)` for made-up weights. Then `factory.weight_bytes`, `factory.attention_queries(block_size,
kv_dtype)` (what to ask attention backends), `factory.kv_specs(block_size, kv_dtype)` (per layer, for `kv_layout`),
`model.kv_groups()`, and per step `model.forward(ids, positions, ForwardContext(ops, scratch, state))`, where ops is
`dict(factory.ops.ops)`.
"""

from turret.nn.context import AttentionState, ForwardContext, Scratch
from turret.nn.decoder import Decoder
from turret.nn.decoder_weights import decoder_weights
from turret.nn.factory import LayerFactory, Progress, Quantization
from turret.nn.family import DecoderFamily
from turret.nn.hf_config import FULL, SLIDING, HFConfig
from turret.nn.linear import Embedding, Linear, Part
from turret.nn.norm import Norm, Vector
from turret.nn.ops import OpTable
from turret.nn.rotary import rotary_table
from turret.nn.spec import (
    AttentionSpec,
    BlockSpec,
    DecoderSpec,
    MLPSpec,
    MoESpec,
    NormSpec,
    Placing,
    QKNorm,
    RopeSpec,
    WeightNames,
)
from turret.nn.stored import StoredPiece
from turret.nn.weights import Parameter

__all__ = [
    "FULL",
    "SLIDING",
    "AttentionSpec",
    "AttentionState",
    "BlockSpec",
    "Decoder",
    "DecoderFamily",
    "DecoderSpec",
    "Embedding",
    "ForwardContext",
    "HFConfig",
    "LayerFactory",
    "Linear",
    "MLPSpec",
    "MoESpec",
    "Norm",
    "NormSpec",
    "OpTable",
    "Parameter",
    "Part",
    "Placing",
    "Progress",
    "QKNorm",
    "Quantization",
    "RopeSpec",
    "Scratch",
    "StoredPiece",
    "Vector",
    "WeightNames",
    "decoder_weights",
    "rotary_table",
]
