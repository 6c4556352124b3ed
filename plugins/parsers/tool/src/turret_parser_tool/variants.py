"""The table: each name that users write, and the grammar with the marks of its model family.

Owns which family writes calls how. The grammars know no family.
"""

from __future__ import annotations

from turret_parser_tool.braces import Braces
from turret_parser_tool.frames import Harmony, Inkling
from turret_parser_tool.grammar import Around, Grammar
from turret_parser_tool.headed import Headed, MistralCalls, kimi_header, solar_header
from turret_parser_tool.nested import Nested
from turret_parser_tool.objects import ObjectShape
from turret_parser_tool.pairs import Pairs, Spellings
from turret_parser_tool.parameters import Parameters
from turret_parser_tool.pythonic import Pythonic
from turret_parser_tool.tagged import Listed, Tagged

__all__ = ["VARIANTS"]

KNOWN = ObjectShape(known_only=True)

HERMES = Tagged(("<tool_call>",), ("</tool_call>",))
LLAMA_JSON = Tagged(("<|python_tag|>",), separators=(";",), shape=KNOWN, bare=True)
RESPONSE_TAGS = ("<response>\n", "<response>", "\n</response>\n", "\n</response>", "</response>")


def _functions(section: str) -> Parameters:
    """<function=NAME> with <parameter=KEY> in a section."""
    return Parameters(
        (f"<{section}>",),
        (f"</{section}>",),
        ("<function=",),
        ("</function>",),
        ("<parameter=",),
        ("</parameter>",),
    )


def _invokes(section: str, mark: str = "", typed: str = "") -> Parameters:
    """<invoke name="NAME"> with <parameter name="KEY"> in a section; `mark` stands in every tag, or is forgotten."""
    marked = (mark, "") if mark else ("",)
    free = (f"<{mark}invoke",) if mark else ()
    return Parameters(
        (f"<{mark}{section}>",),
        (f"</{mark}{section}>",),
        tuple(f"<{m}invoke" for m in marked),
        tuple(f"</{m}invoke>" for m in marked),
        tuple(f"<{m}parameter" for m in marked),
        tuple(f"</{m}parameter>" for m in marked),
        typed=typed,
        free=free,
    )


def _glm(**options: object) -> Pairs:
    tags = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    return Pairs(*tags, **options)  # type: ignore[arg-type]  # the options of Pairs


def _hunyuan(suffix: str) -> Pairs:
    """GLM's tags, each with the suffix that a model's tokenizer has for them."""
    return Pairs(
        f"<tool_call{suffix}>",
        f"</tool_call{suffix}>",
        f"<arg_key{suffix}>",
        f"</arg_key{suffix}>",
        f"<arg_value{suffix}>",
        f"</arg_value{suffix}>",
        name_end=(f"<tool_sep{suffix}>",),
        around=Around((f"<tool_calls{suffix}>", f"</tool_calls{suffix}>")),
    )


QWEN_CODER = _functions("tool_call")
GLM = _glm()
COHERE = Listed(
    ("<|START_ACTION|>",),
    ("<|END_ACTION|>",),
    ObjectShape(("tool_name", "name")),
    around=Around(("<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")),
)
STEP_CALL = "<｜tool_call_begin｜>function<｜tool_sep｜>"

VARIANTS: dict[str, Grammar] = {
    # one JSON object to a call
    "hermes": HERMES,
    "qwen25": HERMES,
    "qwen": HERMES,
    "granite4": HERMES,
    "trinity": Tagged(("<tool_call>",), ("</tool_call>",), around=Around(("<think>", "</think>"))),
    "longcat": Tagged(("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    "ernie45": Tagged(("<tool_call>",), ("</tool_call>",), around=Around(RESPONSE_TAGS)),
    "internlm": Tagged(("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    "interns1": Tagged(("<|action_start|><|plugin|>",), ("<|action_end|>",)),
    "minimax": Tagged(("<tool_calls>",), ("</tool_calls>",), around=Around(opaque=(("<think>", "</think>"),))),
    "granite-20b-fc": Tagged(("<function_call>",)),
    "gigachat3": Tagged(
        ("function call<|role_sep|>\n", "function call<|role_sep|>", "<|function_call|>"),
        around=Around(("<|message_sep|>", "</s>")),
    ),
    "llama3_json": LLAMA_JSON,
    "llama4_json": LLAMA_JSON,
    "llama3": LLAMA_JSON,
    "inkling": Inkling(),
    # a JSON list
    "jamba": Listed(("<tool_calls>",), ("</tool_calls>",)),
    "hunyuan_a13b": Listed(
        ("<tool_calls>",), ("</tool_calls>",), around=Around(("<answer>\n", "<answer>", "\n</answer>", "</answer>"))
    ),
    "nemotron_json": Listed(("<TOOLCALL>",), ("</TOOLCALL>",)),
    "phi4_mini_json": Listed(("functools",)),
    "granite": Listed(("<|tool_call|>", "<tool_call>")),
    "mistral": MistralCalls(),
    "xlam": Listed(("[TOOL_CALLS]", "<tool_call>", "```json", "```"), ("</tool_call>", "```"), KNOWN, bare=True),
    "apertus": Listed(("<|tools_prefix|>",), ("<|tools_suffix|>",), named=True),
    "apertus2509": Listed(("<|tools_prefix|>",), ("<|tools_suffix|>",), named=True),
    "cohere_command3": COHERE,
    "cohere_command4": COHERE,
    # Python
    "pythonic": Pythonic(),
    "llama4_pythonic": Pythonic(("<|python_start|>",), ("<|python_end|>",)),
    "olmo3": Pythonic(("<function_calls>",), ("</function_calls>",), bare=False),
    "lfm2": Pythonic(("<|tool_call_start|>",), ("<|tool_call_end|>",), bare=False, or_json=True),
    # a tag to a parameter
    "qwen3_coder": QWEN_CODER,
    "qwen3_xml": QWEN_CODER,
    "mimo": QWEN_CODER,
    "nemotron_v3": QWEN_CODER,
    "step3p5": QWEN_CODER,
    "seed_oss": _functions("seed:tool_call"),
    "minimax_m2": _invokes("minimax:tool_call"),
    "minimax-m2": _invokes("minimax:tool_call"),
    "minimax_m3": Nested("]<]minimax[>["),
    "dots": _invokes("dots_function_call"),
    "deepseek_v32": _invokes("function_calls", "｜DSML｜", "string"),
    "deepseek_v4": _invokes("tool_calls", "｜DSML｜", "string"),
    "gigachat35": _invokes("tool_calls", "｜GCML｜", "string"),
    "step3": Parameters(
        ("<｜tool_calls_begin｜>",),
        ("<｜tool_calls_end｜>",),
        (f"{STEP_CALL}<steptml:invoke", "<steptml:invoke"),
        ("</steptml:invoke><｜tool_call_end｜>", "</steptml:invoke>\n<｜tool_call_end｜>", "</steptml:invoke>"),
        ("<steptml:parameter",),
        ("</steptml:parameter>",),
    ),
    "minicpm5": Parameters(
        (), (), ("<function name=",), ("</function>",), ("<param name=",), ("</param>",), cdata=True
    ),
    "kimi_k3": Parameters(
        ("<|open|>tools<|sep|>",),
        ("<|close|>tools<|sep|>",),
        ("<|open|>call",),
        ("<|close|>call<|sep|>",),
        ("<|open|>argument",),
        ("<|close|>argument<|sep|>",),
        typed="type",
        tag_end="<|sep|>",
        free=(),
        around=Around(
            tuple(f"<|{act}|>{name}<|sep|>" for act in ("open", "close") for name in ("response", "message"))
        ),
    ),
    # keys and values in tags
    "glm45": GLM,
    "glm47": GLM,
    "glm": GLM,
    "ling3": GLM,
    "spark25": GLM,
    "poolside_v1": GLM,
    "hy_v3": Spellings((_hunyuan(""), _hunyuan(":opensource"))),
    "k2_horizon": Pairs(
        "<ifm|tool_call>",
        "</ifm|tool_call>",
        "<ifm|arg_key>",
        "</ifm|arg_key>",
        "<ifm|arg_value>",
        "</ifm|arg_value>",
        aside=("<ifm|arg_type>", "</ifm|arg_type>"),
        or_json=True,
        around=Around(("<ifm|tool_calls>", "</ifm|tool_calls>")),
    ),
    "solar_open2": Pairs(
        "<|tool_call:start|>",
        "<|tool_call:end|>",
        "<|tool_arg:start|>",
        "<|tool_arg:value|>",
        "<|tool_arg:value|>",
        "<|tool_arg:end|>",
    ),
    # a header, then JSON
    "deepseek_v3": Headed(
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>"),
        ("\n", "<｜tool▁sep｜>"),
        ("<｜tool▁call▁end｜>",),
        around=Around(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    ),
    "deepseek_v31": Headed(
        ("<｜tool▁call▁begin｜>",),
        ("<｜tool▁sep｜>",),
        ("<｜tool▁call▁end｜>",),
        around=Around(("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")),
    ),
    "kimi_k2": Headed(
        ("<|tool_call_begin|>",),
        ("<|tool_call_argument_begin|>",),
        ("<|tool_call_end|>",),
        kimi_header,
        Around(tuple(f"<|tool_call{s}_section_{end}|>" for s in ("s", "") for end in ("begin", "end"))),
    ),
    "solar_open": Headed(
        ("<|tool_call:begin|>",),
        ("<|tool_call:args|>",),
        ("<|tool_call:end|>",),
        solar_header,
        Around(("<|begin|>assistant", "<|tool_calls|>", "<|calls|>")),
    ),
    "openai": Harmony(),
    "gpt-oss": Harmony(),
    # notations of their own
    "functiongemma": Braces("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": Braces("<|tool_call>", "<tool_call|>", '<|"|>'),
}
"""Name → grammar."""
