"""Loading: right tensors in right places, faults that name tensor and file, and memory no more than the model's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from turret.checkpoint import Checkpoint, CheckpointKind
from turret.errors import LoadError
from turret.nn import OpTable
from turret.worker.loader import LoadTarget, load_model
from turret.worker.local import LocalWorker
from turret.worker.setup import ModelSource, WorkerParts
from turret_quant_gguf.method import GGUFMethod

REQUESTS = [tiny.request("a", [4, 250, 6, 17, 33]), tiny.request("b", list(range(40, 60)), temperature=0.8)]


def tokens(source: ModelSource, parts: WorkerParts | None = None) -> dict[str, list[int]]:
    worker = LocalWorker(parts or tiny.parts(), source, tiny.limits())
    try:
        return tiny.Driver(worker).run(REQUESTS, 8)
    finally:
        worker.shutdown()


def load(source: ModelSource, progress=None):
    return load_model(tiny.parts(), source, LoadTarget("cpu", OpTable.resolve(), 96), progress)


def test_stored_weights_are_those_the_model_runs(tmp_path):
    """Files in bfloat16 run as the same numbers stored in float32 do, and not as made-up weights do."""
    (tmp_path / "wide").mkdir(), (tmp_path / "narrow").mkdir()
    stored = tiny.write_weights(tmp_path / "narrow", torch.bfloat16)
    save_file({name: t.float() for name, t in stored.items()}, tmp_path / "wide" / "model.safetensors")
    narrow = tokens(tiny.stored_source(tmp_path / "narrow"))
    assert narrow == tokens(tiny.stored_source(tmp_path / "wide")) != tokens(tiny.dummy_source())


def test_plain_weights_are_views_of_the_file_and_progress_counts_bytes(tmp_path):
    stored = tiny.write_weights(tmp_path)
    seen: list[tuple[str, float]] = []
    loaded = load(tiny.stored_source(tmp_path), lambda stage, fraction: seen.append((stage, fraction)))
    assert {stage for stage, _ in seen} == {"loading weights"}
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions) and fractions[0] == 0.0 and fractions[-1] == 1.0
    assert len(fractions) >= len(stored)
    assert loaded.factory.weight_bytes == sum(t.nbytes for t in stored.values())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.pop("model.layers.2.mlp.down_proj.weight"), r"lacks 1 .*model.layers.2.mlp.down_proj.weight"),
        (lambda t: t.update({"layers.9.odd.weight": torch.zeros(3)}), "tensor 'layers.9.odd.weight'.*no place"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(7)}), r"tensor 'model.norm.weight'.*\(64,\).*\(7,\)"),
        (lambda t: t.update({"lm_head.weight": torch.zeros(300, 64).to(torch.int8)}), "tensor 'lm_head.weight'.*int8"),
    ],
)
def test_a_file_that_does_not_fit_names_the_tensor_and_itself(tmp_path, change, complaint):
    tensors = tiny.write_weights(tmp_path)
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(LoadError, match=complaint) as caught:
        load(tiny.stored_source(tmp_path))
    assert str(tmp_path) in str(caught.value)


def test_a_truncated_file_is_named(tmp_path):
    tiny.write_weights(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(LoadError, match=r"model\.safetensors.*tensor.*truncated"):
        load(tiny.stored_source(tmp_path))


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def write_gguf(path: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as llama.cpp stores a Llama, matrices in Q8_0; what they dequantise to, by Hugging Face name."""
    writer = gguf.GGUFWriter(path, "llama")
    found = {}
    for name, tensor in tensors.items():
        stem = name.removesuffix(".weight")
        layer, _, inner = stem.removeprefix("model.layers.").partition(".")
        stored = f"blk.{layer}.{GGUF_NAMES[inner]}" if layer.isdigit() else GGUF_NAMES[stem]
        values = tensor.numpy()
        if values.ndim == 1:
            writer.add_tensor(f"{stored}.weight", values)
            found[name] = tensor
            continue
        heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(inner)
        blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        found[name] = torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0))
        if heads:  # rows i and i + D/2 of a head become neighbours
            blocks = blocks.reshape(heads, 2, -1, blocks.shape[1]).swapaxes(1, 2).reshape(blocks.shape)
        writer.add_tensor(f"{stored}.weight", np.ascontiguousarray(blocks), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def test_packed_gguf_rows_run_as_their_dequantised_values_do(tmp_path):
    (tmp_path / "plain").mkdir()
    plain = write_gguf(tmp_path / "model.gguf", tiny.write_weights(tmp_path))
    save_file(plain, tmp_path / "plain" / "model.safetensors")
    config = {**tiny.CONFIG, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    checkpoint = Checkpoint(
        reference="g", name="g", kind=CheckpointKind.GGUF, path=str(tmp_path / "model.gguf"), config=config,
        weight_files=(str(tmp_path / "model.gguf"),), gguf_architecture="llama")
    base = tiny.parts()
    packed = WorkerParts(base.platform, base.attention, base.architecture, GGUFMethod())
    assert tokens(ModelSource(checkpoint, config, "float32"), packed) == tokens(tiny.stored_source(tmp_path / "plain"))


MEASURE = """
import sys; sys.path[:] = {path!r}
import tiny
from pathlib import Path
from turret.nn import OpTable
from turret.worker.loader import LoadTarget, load_model
config = {config!r}
parts = tiny.parts()
def memory(kind):  # getrusage would count what this process was before it became Python
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines[kind].split()[0]) * 1024
before = memory("VmRSS")
source = tiny.stored_source(Path({directory!r}), {dtype!r}, **config)
loaded = load_model(parts, source, LoadTarget("cpu", OpTable.resolve(), 96))
print(before, memory("VmHWM"), loaded.factory.weight_bytes)
"""


@pytest.mark.parametrize(("stored", "dtype"), [(torch.float32, "float32"), (torch.bfloat16, "float32")])
def test_peak_memory_is_the_model(tmp_path, stored, dtype):
    """About 200 MB of weights held; the process may peak at 1.15 times that above what it had before."""
    config = {"hidden_size": 768, "intermediate_size": 2304, "layers": 7, "heads": 12, "kv_heads": 4,
              "vocab_size": 2000, "tied": True}
    tiny.write_weights(tmp_path, stored, **config)
    code = MEASURE.format(path=sys.path, config=config, directory=str(tmp_path), dtype=dtype)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    before, peak, held = (int(word) for word in done.stdout.split())
    assert held > 180e6
    assert peak - before <= 1.15 * held, f"peak {(peak - before) / held:.3f} x {held}"


def test_a_sharded_checkpoint_loads_from_all_its_files(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    tiny.write_weights(whole)
    tensors = sorted(load_file(whole / "model.safetensors").items())
    save_file(dict(tensors[::2]), cut / "a.safetensors")
    save_file(dict(tensors[1::2]), cut / "b.safetensors")
    assert tokens(tiny.stored_source(cut)) == tokens(tiny.stored_source(whole))
