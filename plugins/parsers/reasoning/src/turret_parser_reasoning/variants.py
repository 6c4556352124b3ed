"""The table: each name that users write, and how its model family marks reasoning.

Owns which family uses which tags. The formats know no family.
"""

from __future__ import annotations

from turret_parser_reasoning.frames import AppendThink, Harmony, Inkling
from turret_parser_reasoning.split import Format
from turret_parser_reasoning.tags import Tags

__all__ = ["VARIANTS"]

CALL = ("<tool_call>",)
KIMI_CALLS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>")
ALWAYS = Tags(always=True)
BY_TEMPLATE = Tags(switch="enable_thinking", default=True, ends_too=CALL)
K3_MARKS = tuple(f"<|{act}|>{name}<|sep|>" for act in ("open", "close") for name in ("response", "message"))


def _cohere(name: str) -> Tags:
    """Thinking, then an action block or a text block."""
    text = (f"<|START_{name}|>", f"<|END_{name}|>")
    return Tags(
        ("<|START_THINKING|>",), ("<|END_THINKING|>",), switch="reasoning", default=True,
        ends_too=("<|START_ACTION|>", text[0]), drop=text,
    )  # fmt: skip


VARIANTS: dict[str, Format] = {
    "deepseek_r1": ALWAYS,
    "deepseek-r1": ALWAYS,
    "qwen3": BY_TEMPLATE,
    "qwen3-thinking": Tags(always=True, ends_too=CALL),
    "interns1": BY_TEMPLATE,
    "deepseek_v3": Tags(switch="thinking", in_prompt=True),
    "deepseek-v3": Tags(switch="thinking", in_prompt=True),
    "deepseek_v31": Tags(switch="thinking", in_prompt=True),
    "deepseek_v4": Tags(switch="thinking", in_prompt=True, ends_too=("<｜DSML｜tool_calls>",)),
    "deepseek-v4": Tags(switch="thinking", in_prompt=True, ends_too=("<｜DSML｜tool_calls>",)),
    "holo2": Tags(switch="thinking", default=True, in_prompt=True),
    "glm45": BY_TEMPLATE,
    "glm47": BY_TEMPLATE,
    "kimi": Tags(("◁think▷",), ("◁/think▷",)),
    "kimi_k2": Tags(switch="thinking", default=True, ends_too=KIMI_CALLS),
    "kimi_k3": Tags(
        ("<|open|>think<|sep|>",), ("<|close|>think<|sep|>",), always=True, switch="thinking", default=True,
        ends_too=("<|open|>response<|sep|>", "<|open|>tools<|sep|>"), drop=K3_MARKS,
    ),
    "mimo": BY_TEMPLATE,
    "poolside_v1": BY_TEMPLATE,
    "minimax_m2": ALWAYS,
    "minimax": ALWAYS,
    "minimax_m2_append_think": AppendThink(),
    "minimax-append-think": AppendThink(),
    "minimax_m3": Tags(("<mm:think>",), ("</mm:think>",), switch="thinking_mode"),
    "nemotron_v3": BY_TEMPLATE,
    "nemotron_3": BY_TEMPLATE,
    "mistral": Tags(("[THINK]",), ("[/THINK]",), ignore_prompt=True),
    "ernie45": Tags(
        always=True, switch="enable_thinking", default=True, ends_too=CALL,
        drop=("<response>\n", "<response>", "\n</response>\n", "\n</response>", "</response>"),
    ),
    "granite": Tags(
        ("Here is my thought process:", "Here's my thought process:", "<think>"),
        ("Here is my response:", "Here's my response:", "</think>"),
        switch="thinking", strip=True, drop=("<response>", "</response>"),
    ),
    "hunyuan_a13b": Tags(
        ("<think>\n", "<think>"), ("\n</think>\n", "\n</think>", "</think>"), switch="enable_thinking", default=True,
        drop=("<answer>\n", "<answer>", "\n</answer>", "</answer>"),
    ),
    "hy_v3": Tags(
        ("<think>", "<think:opensource>"), ("</think>", "</think:opensource>"),
        ends_too=("<tool_calls>", "<tool_calls:opensource>"),
    ),
    "seed_oss": Tags(("<seed:think>",), ("</seed:think>",), switch="thinking_budget", default=True),
    "olmo3": ALWAYS,
    "step3": ALWAYS,
    "step3p5": Tags(closers=("\n</think>\n", "\n</think>", "</think>"), always=True),
    "gemma4": Tags(("<|channel>thought\n", "<|channel>thought"), ("<channel|>",), switch="enable_thinking"),
    "openai_gptoss": Harmony(),
    "gpt-oss": Harmony(),
    "cohere_command3": _cohere("RESPONSE"),
    "cohere_command4": _cohere("TEXT"),
    "apertus2509": Tags(("<|inner_prefix|>",), ("<|inner_suffix|>",), ends_too=("<|tools_prefix|>",), again=True),
    "inkling": Inkling(),
    "solar_open": Tags(
        ("<|think|>",), ("<|end|><|begin|>assistant<|content|>", "<|end|>"),
        ends_too=("<|begin|>assistant<|tool_calls|>", "<|tool_calls|>"), drop=("<|begin|>assistant", "<|content|>"),
    ),
    "solar_open2": Tags(
        ("<|think:start|>",), ("<|think:end|>",), always=True, switch="reasoning_effort", default=True,
        ends_too=("<|tool_call:start|>",),
    ),
    "k2_horizon": Tags(
        ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
        ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"), ends_too=("<ifm|tool_calls>",),
    ),
}  # fmt: skip
"""Name → format."""
