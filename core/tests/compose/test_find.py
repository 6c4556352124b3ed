"""Options for finding a model either do what they say or are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turret.compose.find import find_model, resolve_options, tokenizer_options
from turret.config import Config
from turret.errors import ConfigError

TEXT = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "vocab_size": 9}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(TEXT))
    (path / "tokenizer.json").write_text("{}")
    return str(path)


def config(model: str | None, **options: object) -> Config:
    """Without weights, since none are read here."""
    return Config.from_options({"model": model, "load_format": "dummy", **options})


def test_the_context_is_the_models(model: str) -> None:
    assert find_model(config(model)).max_model_len == 64
    assert find_model(config(model, max_model_len=32)).max_model_len == 32
    assert find_model(config(model, hf_overrides={"max_position_embeddings": 128})).max_model_len == 128
    with pytest.raises(ConfigError, match=r"--max-model-len 65 is more than the 64 tokens"):
        find_model(config(model, max_model_len=65))


def test_scaling_on_demand_lengthens_the_context(model: str) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert find_model(config(model, hf_overrides={"rope_scaling": scaling})).max_model_len == 256


def test_a_window_caps_the_context_where_windows_are_off(model: str) -> None:
    overrides = {"sliding_window": 16}
    assert find_model(config(model, hf_overrides=overrides)).max_model_len == 64
    assert find_model(config(model, hf_overrides=overrides, disable_sliding_window=True)).max_model_len == 16
    with pytest.raises(ConfigError, match="--max-model-len 17 is more than the 16 tokens"):
        find_model(config(model, hf_overrides=overrides, disable_sliding_window=True, max_model_len=17))


def test_a_config_from_elsewhere_is_the_one_that_counts(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.json").write_text(json.dumps({**TEXT, "max_position_embeddings": 32}))
    monkeypatch.chdir(tmp_path)
    found = find_model(config(model, hf_config_path="./other.json"))
    assert found.max_model_len == 32 and found.checkpoint.config["max_position_embeddings"] == 32
    assert found.config.model.hf_config_path == str(tmp_path / "other.json"), "a child may have another directory"


@pytest.mark.parametrize("reference", ["local", None, "demo"])
def test_files_on_this_machine_have_no_revision(model: str, reference: str | None) -> None:
    name = model if reference == "local" else reference
    with pytest.raises(ConfigError, match=r"--revision v2 names a revision on the hub, but .* is on this machine"):
        find_model(config(name, revision="v2"))
    with pytest.raises(ConfigError, match=r"--tokenizer-revision v2 names a revision on the hub"):
        find_model(config(name, tokenizer_revision="v2"))
    with pytest.raises(ConfigError, match=r"--tokenizer-revision v2 .*model is on this machine"):
        find_model(config("org/name", tokenizer=model, tokenizer_revision="v2"))


@pytest.mark.parametrize(("asked", "there"), [("gguf", "safetensors"), ("safetensors", "gguf")])
@pytest.mark.model
def test_another_format_than_the_files_is_refused(model: str, asked: str, there: str) -> None:
    reference = "demo" if there == "gguf" else model
    if there == "safetensors":
        (Path(model) / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ConfigError, match=rf"--load-format {asked} contradicts .*, whose weights are {there}"):
        find_model(config(reference, load_format=asked))
    assert find_model(config(reference, load_format=there)).checkpoint.kind == there


def test_code_on_this_machine_has_no_revision(model: str) -> None:
    with pytest.raises(ConfigError, match="--code-revision needs --trust-remote-code"):
        config(model, code_revision="v2")
    with pytest.raises(ConfigError, match=r"--code-revision v2 names a revision on the hub, but the code of"):
        find_model(config(model, code_revision="v2", trust_remote_code=True))
    elsewhere = json.loads((Path(model) / "config.json").read_text()) | {"auto_map": {"AutoConfig": "org/code--a.B"}}
    (Path(model) / "config.json").write_text(json.dumps(elsewhere))
    found = find_model(config(model, code_revision="v2", trust_remote_code=True)).config
    code = tokenizer_options(found).code
    assert (code.trust, code.revision) == (True, "v2")


def test_where_tensors_are_restored_matters_to_files_of_torch_save_only(model: str) -> None:
    with pytest.raises(ConfigError, match=r"--pt-load-map-location says how .* are safetensors; leave"):
        find_model(config(model, pt_load_map_location="cuda:0"))
    (Path(model) / "pytorch_model.bin").write_bytes(b"x")
    places = '{"cuda:0": "cpu"}'
    found = find_model(config(model, load_format="pt", pt_load_map_location=places))
    assert found.checkpoint.kind == "pt" and found.config.load.map_location == {"cuda:0": "cpu"}


@pytest.mark.parametrize("wrong", ['{"cuda:0": 1}', "{cuda}", "{]"])
def test_places_to_restore_tensors_are_checked(wrong: str) -> None:
    with pytest.raises(ConfigError, match="--pt-load-map-location"):
        Config.from_options({"pt_load_map_location": wrong})


def test_a_tokenizer_revision_is_of_the_models_own_tokenizer() -> None:
    mine = tokenizer_options(config("org/name", revision="a", tokenizer_revision="b"))
    assert (mine.reference, mine.hub.revision) == ("org/name", "b")
    other = tokenizer_options(config("org/name", tokenizer="org/other", tokenizer_revision="b", tokenizer_mode="slow"))
    assert (other.reference, other.hub.revision, other.mode) == ("org/other", "b", "slow")
    assert tokenizer_options(config("org/name", revision="a")).reference is None


def test_what_the_hub_is_asked_with() -> None:
    options = resolve_options(
        config("org/name", revision="r", hf_token="t", download_dir="/d", ignore_patterns=["*.x"], load_format="auto")
    )
    assert (options.revision, options.token, options.download_dir) == ("r", "t", "/d")
    assert options.ignore_patterns == ("*.x",) and options.need_weights
    assert not resolve_options(config("org/name")).need_weights
