"""Samples for turret's conformance kit: answers as each family writes them, and what is reasoning in them."""

from __future__ import annotations

from turret.contracts import ParserContext
from turret.testing import ParserSample

__all__ = ["samples"]

PAIR = (
    "deepseek_r1",
    "deepseek-r1",
    "qwen3",
    "interns1",
    "glm45",
    "glm47",
    "kimi_k2",
    "mimo",
    "poolside_v1",
    "nemotron_v3",
    "nemotron_3",
)
OPENED = (
    "deepseek_r1",
    "deepseek-r1",
    "qwen3-thinking",
    "minimax_m2",
    "minimax",
    "olmo3",
    "step3",
    "step3p5",
    "ernie45",
)
# fmt: off
ANSWERS: tuple[tuple[tuple[str, ...], str, str, str, str], ...] = (
    # names, end of the prompt, answer, reasoning, content
    (PAIR, "", "<think>a < b</think>b", "a < b", "b"),
    (PAIR, "<|im_start|>assistant\n", "<think>\na\n</think>\n\nb\n", "a\n", "b\n"),
    (("qwen3", "glm45", "kimi_k2"), "assistant\n<think>\n", "a</think>b", "a", "b"),
    (("qwen3", "glm45"), "assistant\n<think>\n\n</think>\n\n", "b </think> c", "", "b </think> c"),
    (("qwen3",), "assistant\n", "only an answer", "", "only an answer"),
    (("qwen3", "glm45", "mimo"), "assistant\n<think>\n",
     "a\n<tool_call>{}</tool_call>",
     "a\n", "<tool_call>{}</tool_call>"),
    (("qwen3",), "", "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    (OPENED, "", "a</think>b", "a", "b"),
    (OPENED, "", "never closed", "never closed", ""),
    (OPENED, "assistant\n<think>", "<think>a</think>b", "a", "b"),
    (("deepseek_v3", "deepseek_v31", "deepseek_v4"), "<｜Assistant｜><think>", "a</think>b", "a", "b"),
    (("deepseek_v3", "deepseek_v31", "deepseek_v4"), "<｜Assistant｜></think>", "b", "", "b"),
    (("holo2",), "", "a</think>b", "a", "b"),
    (("kimi_k2",), "<think>", "a<|tool_calls_section_begin|>x", "a", "<|tool_calls_section_begin|>x"),
    (("kimi",), "", "◁think▷a◁/think▷b", "a", "b"),
    (("kimi_k3",), "<|open|>think<|sep|>",
     "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>",
     "a", "b"),
    (("minimax_m2_append_think", "minimax-append-think"), "<think>\n", "a</think>b", "", "<think>a</think>b"),
    (("minimax_m3",), "<mm:think>", "a</mm:think>b", "a", "b"),
    (("mistral",), "[THINK]x[/THINK]", "[THINK]a[/THINK]b", "a", "b"),
    (("ernie45",), "<think>\n", "a\n</think>\n\n<response>\nb\n</response>\n", "a\n", "b"),
    (("granite",), "", "Here is my thought process: a\n\nHere is my response: b", "a\n\n", "b"),
    (("granite",), "", "Here's my thought process: a Here's my response: b", "a ", "b"),
    (("hunyuan_a13b",), "", "<think>\na\n</think>\n<answer>\nb\n</answer>", "a", "b"),
    (("granite",), "", "<think>a</think><response>b</response>", "a", "b"),
    (("solar_open",), "<|begin|>assistant",
     "<|think|>a<|end|><|begin|>assistant<|content|>b",
     "a", "b"),
    (("solar_open",), "<|begin|>assistant",
     "<|think|>a<|end|><|begin|>assistant<|tool_calls|>x",
     "a", "<|tool_calls|>x"),
    (("hy_v3",), "<think:opensource>", "a</think:opensource>b", "a", "b"),
    (("hy_v3",), "<think>", "a<tool_calls>x</tool_calls>", "a", "<tool_calls>x</tool_calls>"),
    (("seed_oss",), "", "<seed:think>a</seed:think>b", "a", "b"),
    (("step3p5",), "<think>\n", "a\n</think>\nb", "a", "b"),
    (("gemma4",), "", "<|channel>thought\na<channel|>b", "a", "b"),
    (("openai_gptoss", "gpt-oss"), "<|start|>assistant",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return"
     "|>",
     "a", "b"),
    (("openai_gptoss", "gpt-oss"), "",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
     "", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"),
    (("openai_gptoss", "gpt-oss"), "<|start|>assistant",
     " to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
     "<|start|>assistant<|channel|>analysis<|message|>a<|end|>",
     "a", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>"),
    (("cohere_command4",), "<|START_THINKING|>", "a<|END_THINKING|><|START_TEXT|>b<|END_TEXT|>", "a", "b"),
    (("cohere_command3",), "<|START_THINKING|>", "a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "a", "b"),
    (("apertus2509",), "", "<|inner_prefix|>a<|inner_suffix|>b<|inner_prefix|>c<|inner_suffix|>d", "ac", "bd"),
    (("inkling",), "",
     "<|message_model|><|content_thinking|>a<|end_message|><|message_model|><|content_text|>b<|end"
     "_message|>",
     "a", "b"),
    (("solar_open2",), "<|think:start|>", "a<|think:end|>b", "a", "b"),
    (("k2_horizon",), "", "<ifm|think_fast>a</ifm|think_fast>b", "a", "b"),
)
# fmt: on
ARGUMENTS = {"holo2": (("thinking", True),)}


def samples() -> list[ParserSample]:
    """All of them; each says which parser it is for."""
    found = []
    for place, (names, prompt, text, reasoning, content) in enumerate(ANSWERS):
        for name in names:
            context = ParserContext(template_kwargs=ARGUMENTS.get(name, ()), prompt_tail=prompt)
            found.append(ParserSample(f"{name} {place}", text, content, reasoning, context=context, parsers=(name,)))
    return found
