"""Samples for turret's conformance kit: answers in each family's own notation, and what they must be read as."""

from __future__ import annotations

from typing import Any

from turret.contracts import ParserContext
from turret.testing import ParserSample

__all__ = ["samples"]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "metric": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
    },
}
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
)
OSLO = ("get_weather", {"city": "Oslo", "days": 2})
LODZ = ("get_weather", {"city": "Łódź", "days": 1})
NOW: tuple[str, Any] = ("now", {})

# fmt: off
ANSWERS: tuple[tuple[str, str, str, tuple[tuple[str, Any], ...]], ...] = (
    ("hermes",
     'Checking.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_c'
     "all>",
     "Checking.\n", (OSLO,)),
    ("hermes",
     '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo","days":2}}</tool_call>\n<tool_call>{"'
     'name":"get_weather","arguments":{"city":"Łódź","days":1}}</tool_call>',
     "", (OSLO, LODZ,)),
    ("hermes",
     '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
     "", (NOW,)),
    ("longcat",
     '<longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}</longcat_to'
     "ol_call>",
     "", (OSLO,)),
    ("trinity",
     '<think>I look.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</to'
     "ol_call></think>",
     "I look.", (OSLO,)),
    ("ernie45",
     '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>\n',
     "", (OSLO,)),
    ("internlm",
     'Sure.<|action_start|><|plugin|>{"name": "get_weather", "parameters": {"city": "Oslo", "days": 2}'
     "}<|action_end|>",
     "Sure.", (OSLO,)),
    ("minimax",
     '<tool_calls>\n{"name":"get_weather","arguments":{"city":"Oslo","days":2}}\n{"name":"get_weather","'
     'arguments":{"city":"Łódź","days":1}}\n</tool_calls>',
     "", (OSLO, LODZ,)),
    ("granite-20b-fc",
     '<function_call> {"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}} <function_call'
     '> {"name": "now", "arguments": {}}',
     "", (OSLO, NOW,)),
    ("gigachat3",
     'Ok<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Oslo'
     '", "days": 2}}</s>',
     "Ok", (OSLO,)),
    ("llama3_json",
     '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}; {"name": "now"'
     ', "parameters": {}}',
     "", (OSLO, NOW,)),
    ("inkling",
     '<|message_model|>get_weather<|content_invoke_tool_json|>{"name":"get_weather","args":{"city":"Os'
     'lo","days":2}}<|end_message|>',
     "", (OSLO,)),
    ("jamba",
     '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]</tool_calls>',
     "", (OSLO,)),
    ("hunyuan_a13b",
     '<tool_calls>[{"name":"get_weather","arguments":{"city":"Oslo","days":2}},{"name":"get_weather","'
     'arguments":{"city":"Łódź","days":1}}]</tool_calls>',
     "", (OSLO, LODZ,)),
    ("openai",
     ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "Oslo", "days": 2}<|call|>',
     "", (OSLO,)),
    ("nemotron_json",
     '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]</TOOLCALL>',
     "", (OSLO,)),
    ("solar_open",
     '<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo", "days": 2}'
     "<|tool_call:end|><|tool_call:begin|>b2<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|>",
     "", (OSLO, NOW)),
    ("hy_v3",
     "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city"
     "</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n<arg_key:opensource>days"
     "</arg_key:opensource>\n<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>",
     "", (OSLO,)),
    ("phi4_mini_json",
     'functools[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2, "tags": ["rain", "[x]'
     '"]}}]',
     "", (('get_weather', {'city': 'Oslo', 'days': 2, 'tags': ['rain', '[x]']}),)),
    ("granite",
     '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]',
     "", (OSLO,)),
    ("mistral",
     'Let me see[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]',
     "Let me see", (OSLO,)),
    ("mistral",
     '[TOOL_CALLS]get_weather{"city": "Oslo", "days": 2}[TOOL_CALLS]now[ARGS]{}',
     "", (OSLO, NOW,)),
    ("xlam",
     '[{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": {"city": "Oslo", "days":'
     " 2}}]",
     "", (NOW, OSLO,)),
    ("apertus",
     '<|tools_prefix|>[{"get_weather": {"city": "Oslo", "days": 2}}, {"now": {}}]<|tools_suffix|>',
     "", (OSLO, NOW,)),
    ("cohere_command3",
     '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"'
     ', "days": 2}}]<|END_ACTION|>',
     "", (OSLO,)),
    ("pythonic",
     '[get_weather(city=\'Oslo\', days=2), get_weather(city="Łódź", days=1)]',
     "", (OSLO, LODZ,)),
    ("llama4_pythonic",
     "<|python_start|>[now()]<|python_end|>",
     "", (NOW,)),
    ("olmo3",
     '<function_calls>\nget_weather(city="Oslo", days=2)\nnow()\n</function_calls>',
     "", (OSLO, NOW,)),
    ("lfm2",
     "<|tool_call_start|>[get_weather(city='Oslo', days=2)]<|tool_call_end|>Done.",
     "Done.", (OSLO,)),
    ("lfm2",
     '<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]<|tool_cal'
     "l_end|>Done.",
     "Done.", (OSLO,)),
    ("pythonic",
     "[get_weather(city='it\'s [2] (x)', days=-3, metric=true, tags=('a', 'b'), note=None)]",
     "", (('get_weather', {'city': "it's [2] (x)", 'days': -3, 'metric': True, 'tags': ['a', 'b'], 'note': None}),)),
    ("qwen3_coder",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</param"
     "eter>\n</function>\n</tool_call>",
     "", (OSLO,)),
    ("qwen3_coder",
     "<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "", (NOW,)),
    ("qwen3_coder",
     '<tool_call>\n<function=get_weather>\n<parameter=note>\nif a < b:\n  print("</p>")\n</parameter>\n</fun'
     "ction>\n</tool_call>",
     "", (('get_weather', {'note': 'if a < b:\n  print("</p>")'}),)),
    ("seed_oss",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>2</para"
     "meter>\n</function>\n</seed:tool_call>",
     "", (OSLO,)),
    ("minimax_m2",
     '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n<paramet'
     'er name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
     "", (OSLO,)),
    ("dots",
     '<dots_function_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n<parame'
     'ter name="days">2</parameter>\n</invoke>\n</dots_function_call>',
     "", (OSLO,)),
    ("deepseek_v4",
     '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true'
     '">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜'
     "DSML｜invoke>\n</｜DSML｜tool_calls>",
     "", (OSLO,)),
    ("gigachat35",
     '<｜GCML｜tool_calls>\n<｜GCML｜invoke name="get_weather">\n<｜GCML｜parameter name="city" string="true'
     '">Oslo</｜GCML｜parameter>\n<｜GCML｜parameter name="days" string="false">2</｜GCML｜parameter>\n</｜'
     "GCML｜invoke>\n</｜GCML｜tool_calls>",
     "", (OSLO,)),
    ("deepseek_v32",
     '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="tr'
     'ue">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DS'
     "ML｜invoke>\n</｜DSML｜function_calls>",
     "", (OSLO,)),
    ("step3",
     '<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">\n'
     '<steptml:parameter name="city">Oslo</steptml:parameter>\n<steptml:parameter name="days">2</steptm'
     "l:parameter>\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
     "", (OSLO,)),
    ("minicpm5",
     '<function name="get_weather"><param name="city"><![CDATA[Oslo]]></param><param name="days">2</pa'
     "ram></function>",
     "", (OSLO,)),
    ("minimax_m3",
     ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Oslo]<]minima'
     "x[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>]<]minimax[>[</invoke>]<]minimax[>[</tool_cal"
     "l>",
     "", (OSLO,)),
    ("glm45",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_ke"
     "y>\n<arg_value>2</arg_value>\n</tool_call>",
     "", (OSLO,)),
    ("glm47",
     "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value><arg_key>days</arg_key><"
     "arg_value>2</arg_value></tool_call>",
     "", (OSLO,)),
    ("glm47",
     "<tool_call>now</tool_call>",
     "", (NOW,)),
    ("hy_v3",
     "<tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Oslo</arg_value><a"
     "rg_key>days</arg_key><arg_value>2</arg_value></tool_call></tool_calls>",
     "", (OSLO,)),
    ("k2_horizon",
     "<ifm|tool_calls>\n<ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Oslo</i"
     "fm|arg_value><ifm|arg_key>days</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type><ifm|arg_value>2"
     "</ifm|arg_value></ifm|tool_call>\n</ifm|tool_calls>",
     "", (OSLO,)),
    ("solar_open2",
     "Hi<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Oslo<|tool_arg:end|><|t"
     "ool_arg:start|>days<|tool_arg:value|>2<|tool_arg:end|><|tool_call:end|>",
     "Hi", (OSLO,)),
    ("deepseek_v3",
     '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo", '
     '"days": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
     "", (OSLO,)),
    ("deepseek_v31",
     '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo", "days": 2}<｜tool▁'
     "call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "", (OSLO, NOW,)),
    ("kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin"
     '|>{"city": "Oslo", "days": 2}<|tool_call_end|><|tool_calls_section_end|>',
     "", (OSLO,)),
    ("openai",
     '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Oslo","days"'
     ":2}<|call|>",
     "", (OSLO,)),
    ("functiongemma",
     "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
     "", (OSLO,)),
    ("gemma4",
     '<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2}<tool_call|><|tool_call>call:now{}<tool_'
     "call|>",
     "", (OSLO, NOW,)),
    ("gemma4",
     '<|tool_call>call:get_weather{city:<|"|>a,b}<|"|>,tags:[<|"|>x<|"|>],metric:false}<tool_call|>',
     "", (('get_weather', {'city': 'a,b}', 'tags': ['x'], 'metric': False}),)),
    ("kimi_k3",
     '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" '
     'type="string"<|sep|>Oslo<|close|>argument<|sep|><|open|>argument key="days" type="integer"<|sep|'
     ">2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "", (OSLO,)),
)
# fmt: on


def samples() -> list[ParserSample]:
    """All of them; each says which parser it is for."""
    context = ParserContext(tools=TOOLS)
    return [
        ParserSample(f"{name} {place}", text, content, calls=calls, context=context, parsers=(name,))
        for place, (name, text, content, calls) in enumerate(ANSWERS)
    ]
