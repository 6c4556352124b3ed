"""Every decoder family against Hugging Face transformers, on tiny random models: the same logits to 1e-4 in float32.

The reference computes each sequence alone, in one shot, without a cache. Turret computes the same tokens in one shot,
in chunks mixed with another sequence, one by one, and from pages that another sequence wrote.
"""

from __future__ import annotations

import pytest
import torch
from hf_pairs import Case, Pair, close, make_pair, tokens

torch.set_num_threads(1)

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 8,
    "short_factor": [1.0 + 0.1 * i for i in range(6)], "long_factor": [1.0 + 0.7 * i for i in range(6)],
}  # fmt: skip

CASES = [
    Case("llama", "Llama", {}),
    Case("llama-head-dim-bias-tied", "Llama",
         {"head_dim": 32, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    Case("llama3-rope", "Llama", {"rope_parameters": LLAMA3}),
    Case("llama-linear-rope", "Llama",
         {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    Case("llama-dynamic-rope", "Llama",
         {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}),
    Case("llama-yarn-rope", "Llama", {"rope_parameters": YARN}),
    Case("mistral", "Mistral", {"sliding_window": 8}),
    Case("mistral-full", "Mistral", {"sliding_window": None}),
    Case("qwen2", "Qwen2", {}),
    Case("qwen2-window", "Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    Case("qwen3", "Qwen3", {"head_dim": 32}),
    Case("mixtral", "Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 8}),
    Case("qwen2-moe", "Qwen2Moe",
         {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
          "shared_expert_intermediate_size": 72, "decoder_sparse_step": 2, "qkv_bias": True}),
    Case("qwen3-moe", "Qwen3Moe",
         {"head_dim": 32, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 40,
          "norm_topk_prob": True, "mlp_only_layers": [1]}),
    Case("olmoe", "Olmoe", {"num_experts": 6, "num_experts_per_tok": 3}),
    Case("gemma", "Gemma", {"head_dim": 32}),
    Case("gemma2", "Gemma2",
         {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 8, "attn_logit_softcapping": 2.0,
          "final_logit_softcapping": 3.0}),
    Case("gemma3", "Gemma3",
         {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 8, "num_hidden_layers": 6},
         "Gemma3TextConfig"),
    Case("gemma3-vlm", "Gemma3",
         {"text_config": {"head_dim": 32, "sliding_window": 8, "num_hidden_layers": 6},
          "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                            "num_attention_heads": 2, "image_size": 28, "patch_size": 14}},
         suffix="ForConditionalGeneration"),
    Case("phi3", "Phi3", {}),
    Case("phi3-longrope", "Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 8}),
    Case("smollm3", "SmolLM3", {}),
    Case("granite", "Granite",
         {"embedding_multiplier": 6.0, "logits_scaling": 4.0, "residual_multiplier": 0.3, "attention_multiplier": 0.1}),
    Case("olmo", "Olmo", {}),
    Case("olmo2", "Olmo2", {}),
    Case("olmo3", "Olmo3", {"sliding_window": 8}),
    Case("cohere", "Cohere", {}),
    Case("cohere2", "Cohere2", {"sliding_window": 8, "head_dim": 16}),
    Case("glm", "Glm", {"head_dim": 16}),
    Case("glm4", "Glm4", {"head_dim": 16}),
    Case("starcoder2", "Starcoder2", {"sliding_window": 8}),
    Case("seed_oss", "SeedOss", {"head_dim": 16, "attention_bias": True, "attention_out_bias": True}),
    Case("exaone4", "Exaone4", {"sliding_window": 8}),
    Case("exaone4-full", "Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    Case("ernie4_5", "Ernie4_5", {"head_dim": 16, "use_bias": True}),
    Case("stablelm", "StableLm", {"use_qkv_bias": True}),
    Case("nemotron", "Nemotron", {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    Case("arcee", "Arcee", {"head_dim": 16}),
    Case("phi", "Phi", {}),
    Case("vaultgemma", "VaultGemma",
         {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 8, "attn_logit_softcapping": 2.0,
          "final_logit_softcapping": 3.0}),
    Case("cwm", "Cwm", {"head_dim": 16, "sliding_window": 8, "rope_parameters": LLAMA3}),
    Case("hunyuan", "HunYuanDenseV1", {"head_dim": 16}),
    Case("hunyuan-alpha", "HunYuanDenseV1",
         {"head_dim": 16,
          "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}}),
]  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.label)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    return make_pair(case, tmp_path_factory.mktemp(case.label))


A, B = tokens(1, 27), tokens(2, 18)


@torch.inference_mode()
def test_one_shot(pair: Pair) -> None:
    found = pair.driver.step({"a": A, "b": B})
    close(found["a"], pair.expected(A))
    close(found["b"], pair.expected(B))
    pair.driver.drop("a")
    pair.driver.drop("b")


@torch.inference_mode()
def test_chunks_decodes_and_mixed_steps(pair: Pair) -> None:
    driver = pair.driver
    steps: list[dict[str, list[int]]] = [{"a": A[:7]}, {"a": A[7:20], "b": B[:15]}, {"a": A[20:21], "b": B[15:17]}]
    steps += [{"b": B[17:18], "a": A[21:22]}] + [{"a": [token]} for token in A[22:]]
    rows: dict[str, list[torch.Tensor]] = {"a": [], "b": []}
    for work in steps:
        for name, logits in driver.step(work).items():
            rows[name].append(logits)
    close(torch.cat(rows["a"]), pair.expected(A))
    close(torch.cat(rows["b"]), pair.expected(B))
    driver.drop("a")
    driver.drop("b")


@torch.inference_mode()
def test_cache_hit(pair: Pair) -> None:
    """A second request starts from pages the first wrote; the first goes on, and the pages outlive it."""
    driver = pair.driver
    shared, other = A[:16], A[:16] + B[:9]
    driver.step({"a": shared})
    driver.fork("a", "hit")
    first = driver.step({"a": A[16:], "hit": other[16:20]})
    close(first["a"], pair.expected(A)[16:])
    driver.drop("a")
    rest = [driver.step({"hit": [token]})["hit"] for token in other[20:]]
    close(torch.cat([first["hit"], *rest]), pair.expected(other)[16:])
    driver.drop("hit")


@torch.inference_mode()
def test_merged_sequences_differ(pair: Pair) -> None:
    """The negative control: were sequences to see each other, the comparisons above would notice."""
    merged = pair.driver.step({"a": A + B})["a"][len(A) :]
    pair.driver.drop("a")
    apart = pair.expected(B)
    assert (merged - apart).abs().max() > 0.05
    close(merged, pair.expected(A + B)[len(A) :])
