"""What is known of a model's files before anything is computed: `Checkpoint` and the options that find one.

Owns: the frozen value that the front end, the engine and the workers share. Knows nothing of tensors' use. It is plain
data, so it crosses processes; the files themselves are opened again by path where they are needed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Checkpoint", "CheckpointKind", "ResolveOptions"]


class CheckpointKind(StrEnum):
    """How weights are stored."""

    SAFETENSORS = "safetensors"
    GGUF = "gguf"
    PT = "pt"


class ResolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to find a model.

    `revision`, `token`, `download_dir` and `ignore_patterns` matter to hub ids only; `local_files_only` forbids the
    network (so does the environment variable HF_HUB_OFFLINE=1). `need_weights=False` accepts a directory without
    weight files, for random weights and for tokenizers. `prefer_pt` takes files of torch.save where there are others
    too; without it they are used where there are no others.
    """

    revision: str | None = None
    token: str | bool | None = None
    download_dir: str | None = None
    ignore_patterns: tuple[str, ...] = ("original/**/*",)
    local_files_only: bool = False
    need_weights: bool = True
    prefer_pt: bool = False


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model's files and what they say.

    `reference` is what the user wrote; `name` is the name to serve it under. `path` is the model's directory, or the
    GGUF file (the first, if split). `config` is shaped like a Hugging Face config.json whatever the format (for GGUF it
    is rebuilt from the metadata and already normalised). `chat_templates` are Jinja sources by name ("default",
    "tool_use", ...). `tokenizer_path` is a directory or a GGUF file. `gguf_architecture` is the file's own word for its
    architecture: it decides the tensor names and the edits a loader must undo.
    """

    reference: str
    name: str
    kind: CheckpointKind
    path: str
    config: dict[str, Any]
    weight_files: tuple[str, ...] = ()
    generation_config: dict[str, Any] = {}
    chat_templates: dict[str, str] = {}
    tokenizer_path: str = ""
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    max_context: int | None = None
    revision: str | None = None
    gguf_architecture: str | None = None

    @property
    def chat_template(self) -> str | None:
        """The template used when a request names none."""
        return self.chat_templates.get("default")

    @property
    def architectures(self) -> list[str]:
        """The architecture names of the config, most specific first; empty when it has none."""
        return list(self.config.get("architectures") or [])
