"""The config that the rest of turret sees: overrides applied, spellings of all families made one.

Owns: the use of transformers' config classes for that. Knows nothing of weights. transformers is imported only when a
safetensors checkpoint is normalised: it is slow to import, and a GGUF config is normalised where it is rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turret.checkpoint.directory import read_json
from turret.checkpoint.model import Checkpoint, CheckpointKind
from turret.checkpoint.remote_code import RemoteCode
from turret.checkpoint.resolve import locate_directory
from turret.errors import ConfigError, LoadError

__all__ = ["normalized_config", "overridden"]

NO_CODE = RemoteCode()
_ROPE_NAMES = ("rope_theta", "rope_scaling", "rope_local_base_freq")


def normalized_config(
    checkpoint: Checkpoint,
    hf_overrides: Mapping[str, Any] | None = None,
    *,
    hf_config_path: str | None = None,
    code: RemoteCode = NO_CODE,
) -> dict[str, Any]:
    """The checkpoint's config with `hf_overrides` applied and every family's spelling normalised.

    transformers' config classes do the normalising (`rope_parameters`, `layer_types`, defaults that a file leaves out).
    Overrides replace values; inside `*_config` sections they are merged. `hf_config_path` takes the config from
    elsewhere (a directory, a JSON file or a hub id). A model type that transformers does not know keeps its raw values;
    one that needs Python code shipped with the model (`auto_map`) is refused unless `code` may
    run.
    """
    raw = dict(checkpoint.config)
    source, reference = Path(checkpoint.path), checkpoint.reference
    if hf_config_path is not None:
        source, reference = locate_directory(hf_config_path), hf_config_path
        raw = read_json(source / "config.json" if source.is_dir() else source)
    raw = overridden(raw, hf_overrides or {})
    if checkpoint.kind is CheckpointKind.GGUF and hf_config_path is None:
        return raw
    return _through_transformers(raw, source, reference, code)


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with values replaced and `*_config` sections merged. Rope settings may be named in the older way
    (`rope_theta`, `rope_scaling`, `rope_local_base_freq`) although the config has `rope_parameters`."""
    merged = dict(config)
    for key, value in overrides.items():
        old = merged.get(key)
        section = key.endswith("_config") and isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = overridden(old, value) if section else value  # type: ignore[arg-type]
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping) and "rope_parameters" not in overrides:
        named = {key: merged.pop(key) for key in _ROPE_NAMES if key in overrides}
        if named:
            merged["rope_parameters"] = _with_rope(parameters, named)
    return merged


def _with_rope(parameters: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Rope parameters (of one kind, or by kind of layer) with the values that older names stand for."""
    if any(isinstance(value, Mapping) for value in parameters.values()):
        local = {"rope_theta": named["rope_local_base_freq"]} if "rope_local_base_freq" in named else {}
        changes = {"full_attention": named, "sliding_attention": local}
        return {
            kind: _with_rope(its, changes.get(kind, {})) if isinstance(its, Mapping) else its
            for kind, its in parameters.items()
        }
    changed = dict(parameters)
    if "rope_scaling" in named:
        scaling = dict(named["rope_scaling"] or {})
        scaling["rope_type"] = scaling.get("rope_type", scaling.pop("type", "default"))
        changed = {"rope_theta": parameters["rope_theta"], **scaling} if "rope_theta" in parameters else scaling
    if "rope_theta" in named:
        changed["rope_theta"] = named["rope_theta"]
    return changed


def _through_transformers(raw: dict[str, Any], source: Path, reference: str, code: RemoteCode) -> dict[str, Any]:
    model_type = raw.get("model_type")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # slow: see the module's docstring

    if isinstance(model_type, str) and model_type in CONFIG_MAPPING:
        try:
            config = CONFIG_MAPPING[model_type].from_dict(raw)
        except Exception as exc:  # whatever a config class raises on bad values means the same: the file is wrong
            raise LoadError(f"{source}: config.json is not a valid {model_type} config: {exc}") from exc
        return _tidied(raw, config.to_dict())
    if "AutoConfig" not in (raw.get("auto_map") or {}):
        return raw
    if not code.trust:
        raise ConfigError(
            f"{source}: the model type {model_type!r} exists only as Python code shipped with the model; "
            "turret runs such code only with --trust-remote-code",
            "trust-remote-code",
        )
    from transformers import AutoConfig

    name, told = code.source(reference, source)
    try:
        return _tidied(raw, AutoConfig.from_pretrained(name, **told).to_dict())
    except Exception as exc:  # the code is the model's own and may raise anything
        raise LoadError(f"{source}: the code shipped with the model could not make its config: {exc}") from exc


def _tidied(raw: Mapping[str, Any], full: dict[str, Any]) -> dict[str, Any]:
    """`full` without label tables nobody asked for, with architectures as the file has them."""
    for key in ("id2label", "label2id"):
        if key not in raw:
            full.pop(key, None)
    if raw.get("architectures") is not None:
        full["architectures"] = raw["architectures"]
    return full
