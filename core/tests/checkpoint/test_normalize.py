"""Normalised configs: what transformers' config classes make of a file, overrides, and code that is not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import AutoConfig, Gemma3TextConfig, LlamaConfig

from turret.checkpoint import Checkpoint, CheckpointKind, ResolveOptions, max_context, normalized_config, resolve
from turret.errors import ConfigError, LoadError


def written(path: Path, config: dict[str, Any]) -> Checkpoint:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return resolve(str(path), ResolveOptions(need_weights=False))


def test_old_spellings_become_the_new_ones(tmp_path: Path) -> None:
    old = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "type": "llama3", "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }  # fmt: skip
    config = normalized_config(written(tmp_path / "m", old))
    assert config["rope_parameters"]["rope_type"] == "llama3"
    assert config["rope_parameters"]["rope_theta"] == 500000.0
    assert config["num_key_value_heads"] == 4
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_equals_what_auto_config_reads(tmp_path: Path) -> None:
    for source in (LlamaConfig(num_hidden_layers=2), Gemma3TextConfig(num_hidden_layers=7)):
        path = tmp_path / source.model_type
        source.save_pretrained(path)
        ours = normalized_config(resolve(str(path), ResolveOptions(need_weights=False)))
        oracle = AutoConfig.from_pretrained(path).to_dict()
        for key in ("_name_or_path", "id2label", "label2id"):
            ours.pop(key, None)
            oracle.pop(key, None)
        assert ours == oracle


def test_overrides_replace_and_merge_in_sections(tmp_path: Path) -> None:
    source = {
        "model_type": "something_new", "a": {"x": 1, "y": 2}, "text_config": {"hidden_size": 8, "layers": 2}
    }  # fmt: skip
    checkpoint = written(tmp_path / "m", source)
    config = normalized_config(checkpoint, {"a": {"x": 5}, "text_config": {"layers": 3}, "b": 1})
    assert config["a"] == {"x": 5}
    assert config["text_config"] == {"hidden_size": 8, "layers": 3}
    assert config["b"] == 1
    assert checkpoint.config["text_config"]["layers"] == 2


def test_overrides_reach_derived_values(tmp_path: Path) -> None:
    checkpoint = written(tmp_path / "m", LlamaConfig(num_hidden_layers=2, max_position_embeddings=1024).to_dict())
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 1024}
    config = normalized_config(checkpoint, {"rope_parameters": rope, "max_position_embeddings": 4096})
    assert config["rope_parameters"]["rope_type"] == "yarn"
    assert max_context(config) == 4096


@pytest.mark.parametrize("file", ["safetensors", "rebuilt"])
def test_older_names_of_rope_settings_change_the_newer_ones(tmp_path: Path, file: str) -> None:
    """A file that transformers writes today has `rope_parameters`; people override what they know."""
    checkpoint = written(tmp_path / "m", LlamaConfig(num_hidden_layers=2, max_position_embeddings=1024).to_dict())
    if file == "rebuilt":
        checkpoint = msgspec.structs.replace(checkpoint, kind=CheckpointKind.GGUF)
    theta = normalized_config(checkpoint, {"rope_theta": 5e5})
    assert theta["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e5}
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    scaled = normalized_config(checkpoint, {"rope_scaling": scaling, "rope_theta": 5e5})
    wanted = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e5}
    assert {key: scaled["rope_parameters"][key] for key in wanted} == wanted
    assert max_context(scaled) == 4096
    off = normalized_config(written(tmp_path / "n", scaled), {"rope_scaling": None})
    assert off["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e5}


def test_older_names_reach_each_kind_of_layer(tmp_path: Path) -> None:
    checkpoint = written(tmp_path / "m", Gemma3TextConfig(num_hidden_layers=2).to_dict())
    ropes = normalized_config(checkpoint, {"rope_theta": 7.0, "rope_local_base_freq": 3.0})["rope_parameters"]
    assert (ropes["full_attention"]["rope_theta"], ropes["sliding_attention"]["rope_theta"]) == (7.0, 3.0)


def test_config_from_elsewhere(tmp_path: Path) -> None:
    checkpoint = written(tmp_path / "m", {"model_type": "unknown", "a": 1})
    other = written(tmp_path / "other", {"model_type": "unknown", "a": 2})
    assert normalized_config(checkpoint, hf_config_path=other.path)["a"] == 2


def test_code_shipped_with_a_model_is_not_run(tmp_path: Path) -> None:
    config = {"model_type": "my_own", "auto_map": {"AutoConfig": "configuration_my.MyConfig"}}
    checkpoint = written(tmp_path / "m", config)
    (tmp_path / "m" / "configuration_my.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(ConfigError, match=r"only as Python code shipped with the model; .* --trust-remote-code"):
        normalized_config(checkpoint)
    assert not (tmp_path / "ran").exists()


def test_known_type_with_code_beside_it_uses_the_known_one(tmp_path: Path) -> None:
    config = LlamaConfig(num_hidden_layers=2).to_dict() | {"auto_map": {"AutoConfig": "configuration_my.MyConfig"}}
    assert normalized_config(written(tmp_path / "m", config))["num_hidden_layers"] == 2


def test_impossible_values_name_the_file(tmp_path: Path) -> None:
    checkpoint = written(tmp_path / "m", {"model_type": "llama", "num_hidden_layers": "many"})
    with pytest.raises(LoadError, match=r"config.json is not a valid llama config"):
        normalized_config(checkpoint)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"n_positions": 100}, 100),
        ({"text_config": {"max_position_embeddings": 7}}, 7),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 2.0}}, 200),
        ({"max_position_embeddings": 400, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}}, 400),
        ({"max_position_embeddings": 100, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}}, 400),
        ({"max_position_embeddings": 100, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, 100),
        ({"max_position_embeddings": 100, "rope_parameters": {"sliding_attention": {}, "full_attention": {}}}, 100),
        ({"max_position_embeddings": 100, "model_type": "gemma3_text",
          "rope_parameters": {"rope_type": "linear", "factor": 8.0}}, 100),
        ({}, None),
    ],
)  # fmt: skip
def test_context_length(config: dict[str, Any], expected: int | None) -> None:
    assert max_context(config) == expected
