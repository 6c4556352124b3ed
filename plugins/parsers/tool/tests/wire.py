"""How each family writes calls: an independent writer for every variant, for tests to read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Call = tuple[str, Mapping[str, Any]]
Writer = Callable[[Sequence[Call]], str]


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def tagged(opener: str, closer: str, args_key: str = "arguments", joint: str = "\n") -> Writer:
    return lambda calls: joint.join(f"{opener}{dumps({'name': n, args_key: a})}{closer}" for n, a in calls)


def section(opener: str, closer: str, joint: str, args_key: str = "arguments") -> Writer:
    return lambda calls: opener + joint.join(dumps({"name": n, args_key: a}) for n, a in calls) + closer


def listed(opener: str, closer: str, item: Callable[[str, Mapping[str, Any]], Any]) -> Writer:
    return lambda calls: opener + dumps([item(n, a) for n, a in calls]) + closer


def pythonic(opener: str, closer: str, joint: str) -> Writer:
    def one(name: str, arguments: Mapping[str, Any]) -> str:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return lambda calls: opener + joint.join(one(n, a) for n, a in calls) + closer


def raw(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def functions(name: str) -> Writer:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        parts = "".join(f"<parameter={k}>\n{raw(v)}\n</parameter>\n" for k, v in arguments.items())
        return f"<{name}>\n<function={tool}>\n{parts}</function>\n</{name}>"

    return lambda calls: "\n".join(one(n, a) for n, a in calls)


def invokes(name: str, mark: str = "", typed: bool = False) -> Writer:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        parts = "".join(
            f'<{mark}parameter name="{k}"{flag(v) if typed else ""}>{raw(v)}</{mark}parameter>\n'
            for k, v in arguments.items()
        )
        return f'<{mark}invoke name="{tool}">\n{parts}</{mark}invoke>\n'

    def flag(value: Any) -> str:
        return f' string="{"true" if isinstance(value, str) else "false"}"'

    return lambda calls: f"<{mark}{name}>\n{''.join(one(n, a) for n, a in calls)}</{mark}{name}>"


def step3(calls: Sequence[Call]) -> str:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        parts = "".join(f'<steptml:parameter name="{k}">{raw(v)}</steptml:parameter>\n' for k, v in arguments.items())
        head = "<｜tool_call_begin｜>function<｜tool_sep｜>"
        return f'{head}<steptml:invoke name="{tool}">\n{parts}</steptml:invoke><｜tool_call_end｜>\n'

    return f"<｜tool_calls_begin｜>\n{''.join(one(n, a) for n, a in calls)}<｜tool_calls_end｜>"


def minicpm5(calls: Sequence[Call]) -> str:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        parts = "".join(f'<param name="{k}"><![CDATA[{raw(v)}]]></param>' for k, v in arguments.items())
        return f'<function name="{tool}">{parts}</function>'

    return "".join(one(n, a) for n, a in calls)


def minimax_m3(calls: Sequence[Call]) -> str:
    token = "]<]minimax[>["

    def inside(value: Any) -> str:
        if isinstance(value, Mapping):
            return "".join(f"{token}<{k}>{inside(v)}{token}</{k}>" for k, v in value.items())
        if isinstance(value, list):
            return "".join(f"{token}<item>{inside(v)}{token}</item>" for v in value)
        return raw(value)

    parts = (f'{token}<invoke name="{n}">{inside(a)}{token}</invoke>' for n, a in calls)
    return f"{token}<tool_call>{''.join(parts)}{token}</tool_call>"


def kimi_k3(calls: Sequence[Call]) -> str:
    def tag(header: str, body: str) -> str:
        return f"<|open|>{header}<|sep|>{body}<|close|>{header.split()[0]}<|sep|>"

    def one(place: int, tool: str, arguments: Mapping[str, Any]) -> str:
        kinds = {k: "string" if isinstance(v, str) else "json" for k, v in arguments.items()}
        body = "".join(tag(f'argument key="{k}" type="{kinds[k]}"', raw(v)) for k, v in arguments.items())
        return tag(f'call tool="{tool}" index="{place}"', body)

    return tag("tools", "".join(one(place, n, a) for place, (n, a) in enumerate(calls)))


def glm(middle: str = "\n", around: tuple[str, str] = ("", "")) -> Writer:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        pairs = "".join(
            f"<arg_key>{k}</arg_key>{gap}<arg_value>{raw(v)}</arg_value>{gap}" for k, v in arguments.items()
        )
        return f"<tool_call>{tool}{middle if arguments else ''}{pairs}</tool_call>"

    gap = "\n" if middle == "\n" else ""
    return lambda calls: around[0] + "\n".join(one(n, a) for n, a in calls) + around[1]


def k2_horizon(calls: Sequence[Call]) -> str:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        pairs = "".join(
            f"<ifm|arg_key>{k}</ifm|arg_key><ifm|arg_type>any</ifm|arg_type><ifm|arg_value>{raw(v)}</ifm|arg_value>"
            for k, v in arguments.items()
        )
        return f"<ifm|tool_call>{tool}{pairs}</ifm|tool_call>\n"

    return f"<ifm|tool_calls>\n{''.join(one(n, a) for n, a in calls)}</ifm|tool_calls>"


def solar(calls: Sequence[Call]) -> str:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        pairs = "".join(
            f"<|tool_arg:start|>{k}<|tool_arg:value|>{raw(v)}<|tool_arg:end|>" for k, v in arguments.items()
        )
        return f"<|tool_call:start|>{tool}\n{pairs}<|tool_call:end|>"

    return "".join(one(n, a) for n, a in calls)


def deepseek(head: str, separator: str, fence: tuple[str, str]) -> Writer:
    def one(tool: str, arguments: Mapping[str, Any]) -> str:
        return f"<｜tool▁call▁begin｜>{head}{tool}{separator}{fence[0]}{dumps(arguments)}{fence[1]}<｜tool▁call▁end｜>"

    return lambda calls: f"<｜tool▁calls▁begin｜>{''.join(one(n, a) for n, a in calls)}<｜tool▁calls▁end｜>"


def solar_open(calls: Sequence[Call]) -> str:
    return "<|tool_calls|>" + "".join(
        f"<|tool_call:begin|>id{i}<|tool_call:name|>{n}<|tool_call:args|>{dumps(a)}<|tool_call:end|>"
        for i, (n, a) in enumerate(calls)
    )


def kimi_k2(calls: Sequence[Call]) -> str:
    body = "".join(
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{dumps(a)}<|tool_call_end|>"
        for i, (n, a) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>"


def harmony(calls: Sequence[Call]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{dumps(a)}<|call|>" for n, a in calls
    )


def braces(opener: str, closer: str, quote: str) -> Writer:
    def value(one: Any) -> str:
        if isinstance(one, str):
            return f"{quote}{one}{quote}"
        if isinstance(one, Mapping):
            return "{" + ",".join(f"{key(k)}:{value(v)}" for k, v in one.items()) + "}"
        return f"[{','.join(map(value, one))}]" if isinstance(one, list) else dumps(one)

    def key(text: str) -> str:
        return text if text.isidentifier() else f"{quote}{text}{quote}"

    return lambda calls: "".join(f"{opener}call:{n}{value(a)}{closer}" for n, a in calls)


def inkling(calls: Sequence[Call]) -> str:
    return "".join(
        f"<|message_model|>{n}<|content_invoke_tool_json|>{dumps({'name': n, 'args': a})}<|end_message|>"
        for n, a in calls
    )


HERMES = tagged("<tool_call>\n", "\n</tool_call>")
CODER = functions("tool_call")
LLAMA = section("<|python_tag|>", "", "; ", "parameters")
NAMED: Callable[[str, Mapping[str, Any]], Any] = lambda n, a: {n: a}  # noqa: E731
PLAIN: Callable[[str, Mapping[str, Any]], Any] = lambda n, a: {"name": n, "arguments": a}  # noqa: E731
COHERE = listed(
    "<|START_ACTION|>", "<|END_ACTION|>", lambda n, a: {"tool_call_id": "0", "tool_name": n, "parameters": a}
)

WRITERS: dict[str, Writer] = {
    "hermes": HERMES,
    "granite4": HERMES,
    "trinity": HERMES,
    "ernie45": HERMES,
    "longcat": tagged("<longcat_tool_call>", "</longcat_tool_call>"),
    "internlm": tagged("<|action_start|><|plugin|>", "<|action_end|>", "parameters"),
    "minimax": section("<tool_calls>\n", "\n</tool_calls>", "\n"),
    "granite-20b-fc": tagged("<function_call> ", "", joint=" "),
    "gigachat3": tagged("<|function_call|>", "", joint="<|message_sep|>"),
    "llama3_json": LLAMA,
    "llama4_json": LLAMA,
    "inkling": inkling,
    "jamba": listed("<tool_calls>", "</tool_calls>", PLAIN),
    "hunyuan_a13b": listed("<tool_calls>", "</tool_calls>", PLAIN),
    "nemotron_json": listed("<TOOLCALL>", "</TOOLCALL>", PLAIN),
    "phi4_mini_json": listed("functools", "", PLAIN),
    "granite": listed("<|tool_call|>", "", PLAIN),
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{n}[ARGS]{dumps(a)}" for n, a in calls),
    "xlam": listed("", "", PLAIN),
    "apertus": listed("<|tools_prefix|>", "<|tools_suffix|>", NAMED),
    "cohere_command3": COHERE,
    "cohere_command4": COHERE,
    "pythonic": pythonic("[", "]", ", "),
    "llama4_pythonic": pythonic("<|python_start|>[", "]<|python_end|>", ", "),
    "olmo3": pythonic("<function_calls>\n", "\n</function_calls>", "\n"),
    "lfm2": pythonic("<|tool_call_start|>[", "]<|tool_call_end|>", ", "),
    "qwen3_coder": CODER,
    "qwen3_xml": CODER,
    "mimo": CODER,
    "step3p5": CODER,
    "nemotron_v3": CODER,
    "seed_oss": functions("seed:tool_call"),
    "minimax_m2": invokes("minimax:tool_call"),
    "minimax_m3": minimax_m3,
    "dots": invokes("dots_function_call"),
    "deepseek_v32": invokes("function_calls", "｜DSML｜", True),
    "deepseek_v4": invokes("tool_calls", "｜DSML｜", True),
    "gigachat35": invokes("tool_calls", "｜GCML｜", True),
    "step3": step3,
    "minicpm5": minicpm5,
    "kimi_k3": kimi_k3,
    "glm45": glm(),
    "glm47": glm(""),
    "ling3": glm(),
    "spark25": glm(),
    "poolside_v1": glm(""),
    "hy_v3": glm("<tool_sep>", ("<tool_calls>", "</tool_calls>")),
    "k2_horizon": k2_horizon,
    "solar_open2": solar,
    "deepseek_v3": deepseek("function<｜tool▁sep｜>", "\n", ("```json\n", "\n```")),
    "deepseek_v31": deepseek("", "<｜tool▁sep｜>", ("", "")),
    "kimi_k2": kimi_k2,
    "solar_open": solar_open,
    "openai": harmony,
    "functiongemma": braces("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": braces("<|tool_call>", "<tool_call|>", '<|"|>'),
}
ALIASES = {
    "qwen25": "hermes", "qwen": "hermes", "interns1": "internlm", "llama3": "llama3_json", "apertus2509": "apertus",
    "minimax-m2": "minimax_m2", "glm": "glm45", "gpt-oss": "openai",
}  # fmt: skip
