"""Model references and headers: where a model's files lie and what they say.

Owns: finding a model (`resolve`), its config (`normalized_config`), its weights as mapped bytes (`iter_safetensors`,
`iter_gguf`). Knows nothing of what tensors are for, and nothing of torch.

    checkpoint = resolve("demo")                      # or a directory, a .gguf file, a hub id
    config = normalized_config(checkpoint)            # shaped like Hugging Face's config.json
    for tensor in iter_gguf(checkpoint): ...          # .name .type_name .shape .data (memoryview)
    for tensor in iter_safetensors(checkpoint): ...   # .name .dtype .shape .data (memoryview)
"""

from turret.checkpoint.demo import DEMO, locate_demo
from turret.checkpoint.directory import open_directory, read_chat_templates, read_json
from turret.checkpoint.facts import eos_token_ids, max_context, text_config
from turret.checkpoint.ggml_types import GGML_TYPES, GgmlType
from turret.checkpoint.gguf_config import GGUF_ARCHITECTURES, config_from_gguf
from turret.checkpoint.gguf_files import GgufTensor, iter_gguf, open_gguf_checkpoint, open_parts
from turret.checkpoint.gguf_header import GgufFile, GgufTensorInfo, open_gguf
from turret.checkpoint.mapped import read_ahead
from turret.checkpoint.model import Checkpoint, CheckpointKind, ResolveOptions
from turret.checkpoint.normalize import normalized_config, overridden
from turret.checkpoint.remote_code import RemoteCode
from turret.checkpoint.resolve import locate_directory, resolve
from turret.checkpoint.safetensors_files import SAFETENSORS_BITS, TensorView, iter_safetensors, open_safetensors

__all__ = [
    "DEMO",
    "GGML_TYPES",
    "GGUF_ARCHITECTURES",
    "SAFETENSORS_BITS",
    "Checkpoint",
    "CheckpointKind",
    "GgmlType",
    "GgufFile",
    "GgufTensor",
    "GgufTensorInfo",
    "RemoteCode",
    "ResolveOptions",
    "TensorView",
    "config_from_gguf",
    "eos_token_ids",
    "iter_gguf",
    "iter_safetensors",
    "locate_demo",
    "locate_directory",
    "max_context",
    "normalized_config",
    "open_directory",
    "open_gguf",
    "open_gguf_checkpoint",
    "open_parts",
    "open_safetensors",
    "overridden",
    "read_ahead",
    "read_chat_templates",
    "read_json",
    "resolve",
    "text_config",
]
