"""Files of torch.save: the same tensors as any other file's, and nothing that they say is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tiny
import torch

from turret.checkpoint import CheckpointKind
from turret.errors import LoadError
from turret.nn import OpTable
from turret.worker.loader import LoadTarget, load_model
from turret.worker.setup import ModelSource
from turret.worker.stored import stored_tensors
from turret.worker.torch_files import iter_torch_files


def read(file: Path, map_location: str | dict[str, str] = "cpu") -> dict[str, torch.Tensor]:
    return {name: tensor for _, name, tensor in iter_torch_files((str(file),), map_location)}


TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T,  # not contiguous
    "c": torch.tensor(3.0),
    "d": torch.zeros(0, 4, dtype=torch.float16),
}


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "as before torch 1.6"])
@pytest.mark.parametrize("wrap", [dict, lambda t: {"state_dict": t, "epoch": 3}, lambda t: {"model": {"module": t}}])
def test_tensors_come_back_by_name(tmp_path, archive, wrap):
    file = tmp_path / "pytorch_model.bin"
    torch.save(wrap(TENSORS), file, _use_new_zipfile_serialization=archive)
    found = read(file)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
        assert found[name].is_contiguous()


def test_parameters_of_a_module_are_tensors(tmp_path):
    module = torch.nn.Linear(3, 2)
    torch.save(module.state_dict(), tmp_path / "a.bin")
    assert torch.equal(read(tmp_path / "a.bin")["weight"], module.weight)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_nothing_that_a_file_says_is_run(tmp_path):
    trace = tmp_path / "it ran"
    torch.save({**TENSORS, "evil": Evil(trace)}, tmp_path / "a.bin")
    with pytest.raises(LoadError, match=r"a\.bin: it holds more than tensors, .* run code .*mkdir.*; convert it"):
        read(tmp_path / "a.bin")
    assert not trace.exists()
    torch.load(tmp_path / "a.bin", weights_only=False)
    assert trace.exists(), "the file is what it seems"


@pytest.mark.parametrize("content", [b"", b"no pickle", b"PK\x03\x04 no archive", b"\x80\x02}q\x00."])
def test_a_file_that_is_none_is_named(tmp_path, content):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(LoadError, match=r"a\.bin: ") as told:
        read(tmp_path / "a.bin")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("content", [[torch.ones(1)], torch.ones(2), {"epoch": 3}, {}])
def test_a_file_without_tensors_by_name_is_no_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "a.bin")
    with pytest.raises(LoadError, match="holds no tensors by name"):
        read(tmp_path / "a.bin")


def test_a_truncated_file_is_named(tmp_path):
    torch.save({"a": torch.ones(1000)}, tmp_path / "a.bin")
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:2000])
    with pytest.raises(LoadError, match=r"a\.bin: cannot be read as a file of torch\.save"):
        read(tmp_path / "a.bin")


def test_tensors_that_are_not_dense_are_named(tmp_path):
    torch.save({"a": torch.eye(3).to_sparse()}, tmp_path / "a.bin")
    with pytest.raises(LoadError, match=r"tensor 'a' is torch\.sparse_coo"):
        read(tmp_path / "a.bin")


def test_a_place_can_be_named_for_tensors_of_another_device(tmp_path):
    torch.save({"a": torch.empty(2, device="meta")}, tmp_path / "meta.bin")
    torch.save(TENSORS, tmp_path / "a.bin")
    assert read(tmp_path / "a.bin", {"cuda:0": "cpu"}).keys() == TENSORS.keys()
    with pytest.raises(LoadError, match=r"a\.bin: cannot be read"):
        read(tmp_path / "a.bin", "nowhere")


def test_a_model_runs_from_them_as_from_safetensors(tmp_path):
    tensors = tiny.write_weights(tmp_path)
    safe = tiny.stored_source(tmp_path)
    files = []
    for number, names in enumerate((list(tensors)[::2], list(tensors)[1::2])):
        torch.save({name: tensors[name] for name in names}, tmp_path / f"pytorch_model-{number}.bin")
        files.append(str(tmp_path / f"pytorch_model-{number}.bin"))
    fields = {f: getattr(safe.checkpoint, f) for f in safe.checkpoint.__struct_fields__}
    checkpoint = type(safe.checkpoint)(**{**fields, "kind": CheckpointKind.PT, "weight_files": tuple(files)})
    source = ModelSource(checkpoint, safe.config, safe.dtype)
    for one, other in zip(
        sorted(stored_tensors(checkpoint, safe.config), key=lambda t: t.name),
        sorted(stored_tensors(safe.checkpoint, safe.config), key=lambda t: t.name), strict=True,
    ):
        assert (one.name, one.type_name, one.shape) == (other.name, other.type_name, other.shape)
        assert bytes(one.data) == bytes(other.data)
    loaded = load_model(tiny.parts(), source, LoadTarget("cpu", OpTable.resolve(), 96), None)
    assert loaded.factory.weight_bytes == sum(t.nbytes for t in tensors.values())
