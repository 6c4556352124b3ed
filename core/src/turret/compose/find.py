"""Finding the model that the options name, and refusing options that say nothing about it.

Owns: how options for finding files are read. Knows nothing of what is in the files beyond the config.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import msgspec

from turret.checkpoint import (
    DEMO,
    Checkpoint,
    CheckpointKind,
    RemoteCode,
    ResolveOptions,
    locate_directory,
    max_context,
    read_json,
    resolve,
)
from turret.compose.limits import context_length
from turret.config import Config, EngineConfig
from turret.errors import ConfigError
from turret.text import TokenizerOptions

__all__ = ["FoundModel", "find_model", "remote_code", "resolve_options", "tokenizer_options"]


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A checkpoint and the config with what was found written in."""

    config: Config
    checkpoint: Checkpoint
    max_model_len: int


def find_model(config: Config) -> FoundModel:
    """Find it; raises LoadError when it is not there, ConfigError for an option that could not mean anything here."""
    _refuse_revisions(config)
    checkpoint = resolve(config.model.model, resolve_options(config))
    _refuse_other_format(config, checkpoint)
    _refuse_other_code(config, checkpoint)
    if config.model.hf_config_path is not None:
        config, checkpoint = _with_config_from_elsewhere(config, checkpoint)
    return FoundModel(config, checkpoint, context_length(config.model, checkpoint))


def resolve_options(config: Config | EngineConfig) -> ResolveOptions:
    """How the options say a model is found."""
    return ResolveOptions(
        revision=config.model.revision,
        token=config.model.hf_token,
        download_dir=config.load.download_dir,
        ignore_patterns=tuple(config.load.ignore_patterns),
        need_weights=config.load.load_format != "dummy",
        prefer_pt=config.load.load_format == CheckpointKind.PT,
    )


def tokenizer_options(config: Config | EngineConfig) -> TokenizerOptions:
    """How the options say a tokenizer is found: with a revision of its own it is the model's at that revision."""
    model = config.model
    reference = model.tokenizer or (model.model if model.tokenizer_revision is not None else None)
    revision = model.revision if reference is None else model.tokenizer_revision
    return TokenizerOptions(
        reference=reference,
        mode=model.tokenizer_mode,
        code=remote_code(config, revision),
        hub=msgspec.structs.replace(resolve_options(config), revision=model.tokenizer_revision),
    )


def remote_code(config: Config | EngineConfig, revision: str | None) -> RemoteCode:
    """How the options say that code shipped with files of that revision is found, if it may run."""
    hub = msgspec.structs.replace(resolve_options(config), revision=revision)
    return RemoteCode(trust=config.model.trust_remote_code, revision=config.model.code_revision, hub=hub)


def _refuse_revisions(config: Config) -> None:
    """Files on this machine have no revisions."""
    model = config.model
    for option, revision, reference in (
        ("revision", model.revision, model.model),
        ("tokenizer-revision", model.tokenizer_revision, model.tokenizer or model.model),
    ):
        if revision is not None and _is_local(reference):
            raise ConfigError(
                f"--{option} {revision} names a revision on the hub, but {reference or DEMO} is on this machine; "
                "leave the option out",
                option,
            )


def _is_local(reference: str | None) -> bool:
    return reference in (None, DEMO) or Path(str(reference)).expanduser().exists()


def _refuse_other_format(config: Config, checkpoint: Checkpoint) -> None:
    wanted = config.load.load_format
    if wanted in set(CheckpointKind) and wanted != checkpoint.kind:
        raise ConfigError(
            f"--load-format {wanted} contradicts {checkpoint.reference}, whose weights are {checkpoint.kind}; "
            "leave the option out",
            "load-format",
        )
    if config.load.pt_load_map_location != "cpu" and checkpoint.kind != CheckpointKind.PT:
        raise ConfigError(
            f"--pt-load-map-location says how files of torch.save are read, and the weights of {checkpoint.reference} "
            f"are {checkpoint.kind}; leave the option out",
            "pt-load-map-location",
        )


def _refuse_other_code(config: Config, checkpoint: Checkpoint) -> None:
    """A directory's own code has no revisions, unless it says that its code is some repository's."""
    named = checkpoint.config.get("auto_map") or {}
    elsewhere = isinstance(named, dict) and any("--" in str(place) for place in named.values())
    if config.model.code_revision is not None and _is_local(config.model.model) and not elsewhere:
        raise ConfigError(
            f"--code-revision {config.model.code_revision} names a revision on the hub, but the code of "
            f"{checkpoint.reference}, if it has any, is on this machine; leave the option out",
            "code-revision",
        )


def _with_config_from_elsewhere(config: Config, checkpoint: Checkpoint) -> tuple[Config, Checkpoint]:
    """The engine's process is told where the config lies by now; it need not look it up on the hub again."""
    hub = msgspec.structs.replace(resolve_options(config), revision=None)
    path = locate_directory(str(config.model.hf_config_path), hub).absolute()
    raw = read_json(path / "config.json" if path.is_dir() else path)
    model = dataclasses.replace(config.model, hf_config_path=str(path))
    found = msgspec.structs.replace(checkpoint, config=raw, max_context=max_context(raw))
    return dataclasses.replace(config, model=model), found
