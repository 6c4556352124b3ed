"""Chat templates: the text that transformers renders from the same template and messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from turret.errors import ConfigError, RequestError
from turret.text import ChatOptions, ChatTemplate, ContentFormat, read_template
from turret.text.conversation import normalize_messages

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
MISTRAL = """{%- set loop_messages = messages %}
{%- set ns = namespace(index=0, last=none) %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- set ns.index = ns.index + 1 %}
        {%- if tools is not none and (message == loop_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " ~ message["content"] ~ "[/INST]" }}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- continue %}
    {%- endif %}
{%- endfor %}
{%- if ns.index > 3 %}{{ loop_messages | length }}{% endif %}
"""
QWEN3 = """{%- macro render(content) %}
    {%- if content is string %}{{- content }}{%- else %}
        {%- for item in content %}{{- item.text }}{%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = render(message.content) %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' }}
            {{- reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
                {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
TRAINING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}"
    "{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}{{ strftime_now('%Y') }}"
)
PARTS = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)

TURNS = [
    {"role": "user", "content": " What is 2+2? <b>é</b>\n"},
    {"role": "assistant", "content": "4  "},
    {"role": "user", "content": "And \"3\"+'3'?"},
]
WITH_SYSTEM = [{"role": "system", "content": "Be brief."}, *TURNS]
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather in a city — now",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "parameters": {}}},
]  # fmt: skip
TOOL_TURNS = [
    {"role": "user", "content": "Weather in Paris?"},
    {"role": "assistant", "tool_calls": [
        {"id": "c1", "type": "function",
         "function": {"name": "get_weather", "arguments": {"city": "Paris", "n": 1.5}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "20 °C"},
    {"role": "assistant", "reasoning_content": "It is warm.", "content": "It is 20 °C."},
    {"role": "user", "content": "Thanks"},
]  # fmt: skip


def oracle(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    rendered, _ = render_jinja_template([messages], chat_template=template, **TOKENS, **options)
    return str(rendered[0])


def ours(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    known = {k: options.pop(k) for k in list(options) if k in ChatOptions.__struct_fields__}
    known.setdefault("add_generation_prompt", False)
    return ChatTemplate(template, TOKENS).render(messages, ChatOptions(**known, kwargs=options))


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", [TURNS, WITH_SYSTEM], ids=["turns", "system"])
@pytest.mark.parametrize("template", [CHATML, LLAMA3, MISTRAL, QWEN3, TRAINING, PARTS])
def test_renders_as_transformers(template: str, messages: list[dict[str, Any]], add_generation_prompt: bool) -> None:
    expected = messages
    if template is PARTS:
        expected = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
    flag = {"add_generation_prompt": add_generation_prompt}
    assert ours(template, messages, **flag) == oracle(template, expected, **flag)


def test_gemma_renders_as_transformers_and_refuses_in_the_templates_words() -> None:
    assert ours(GEMMA, TURNS, add_generation_prompt=True) == oracle(GEMMA, TURNS, add_generation_prompt=True)
    with pytest.raises(RequestError, match=r"chat template: System role not supported") as caught:
        ours(GEMMA, WITH_SYSTEM)
    assert caught.value.status == 400
    with pytest.raises(RequestError, match=r"roles must alternate"):
        ours(GEMMA, [TURNS[0], TURNS[0]])


@pytest.mark.parametrize("template", [LLAMA3, MISTRAL, QWEN3])
def test_tools_render_as_transformers(template: str) -> None:
    messages = TOOL_TURNS if template is not MISTRAL else TURNS
    expected = oracle(template, messages, tools=TOOLS, add_generation_prompt=True)
    assert ours(template, messages, tools=TOOLS, add_generation_prompt=True) == expected
    assert "get_weather" in expected


def test_arguments_as_clients_send_them() -> None:
    """The API carries arguments as JSON text; templates print them as objects."""
    sent = json.loads(json.dumps(TOOL_TURNS))
    function = sent[1]["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(function["arguments"])
    sent[1]["content"] = None
    assert ours(LLAMA3, sent, tools=TOOLS) == oracle(LLAMA3, TOOL_TURNS, tools=TOOLS)
    function["arguments"] = "not json"
    assert '"parameters": "not json"' in ours(LLAMA3, sent, tools=TOOLS)


def test_variables_of_the_request() -> None:
    flags = {"enable_thinking": False, "add_generation_prompt": True}
    assert ours(QWEN3, TURNS, **flags) == oracle(QWEN3, TURNS, **flags)
    assert ours(LLAMA3, TURNS, date_string="1 Jan 2030") == oracle(LLAMA3, TURNS, date_string="1 Jan 2030")
    documents = [{"title": "T", "text": "x"}]
    template = "{% for d in documents %}{{ d.title }}={{ d['text'] }}{% endfor %}"
    assert ours(template, TURNS, documents=documents) == oracle(template, TURNS, documents=documents) == "T=x"
    with pytest.raises(RequestError, match=r"chat_template_kwargs must not set messages"):
        ChatTemplate(CHATML, TOKENS).render(TURNS, ChatOptions(kwargs={"messages": []}))


@pytest.mark.parametrize("template", [CHATML, LLAMA3, QWEN3, PARTS, TRAINING])
@pytest.mark.parametrize("last", ["The answer is", "The answer is ", "x"])
def test_continuing_the_last_message(template: str, last: str) -> None:
    messages = [*TURNS, {"role": "assistant", "content": last}]
    expected = messages
    if template is PARTS:
        expected = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
    continued = ours(template, messages, continue_final_message=True)
    assert continued == oracle(template, expected, continue_final_message=True)
    assert continued.rstrip().endswith(last.strip())


def test_continuing_what_the_template_drops() -> None:
    with pytest.raises(RequestError, match=r"changes or drops the last message"):
        ours("{% for m in messages[:-1] %}{{ m.content }}{% endfor %}", TURNS, continue_final_message=True)
    with pytest.raises(RequestError, match=r"cannot both be true"):
        ours(CHATML, TURNS, continue_final_message=True, add_generation_prompt=True)


def test_messages_are_left_as_they_were() -> None:
    before = json.dumps(TOOL_TURNS)
    ours(QWEN3, TOOL_TURNS, tools=TOOLS)
    ours(QWEN3, TOOL_TURNS, continue_final_message=True)
    assert json.dumps(TOOL_TURNS) == before


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, "string"), (LLAMA3, "string"), (GEMMA, "string"), (MISTRAL, "string"), (TRAINING, "string"),
        (QWEN3, "openai"), (PARTS, "openai"),
        ("{% for m in messages %}{% set c = m.content %}{% set d = c %}{% for p in d %}{% endfor %}{% endfor %}",
         "openai"),
        ("{% for m in messages %}{% for p in m.get('content') %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for p in m.content or [] %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for p in m.content | list %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% for m in messages %}{% for t in m.tool_calls %}{{ t }}{% endfor %}{{ m.content }}{% endfor %}", "string"),
    ],
)  # fmt: skip
def test_content_format_is_read_off_the_template(template: str, expected: str) -> None:
    assert ChatTemplate(template, TOKENS).detected_format == expected


def test_content_parts() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert "a\nb" in ours(CHATML, parts)
    assert ours(PARTS, parts) == "<|user|>ab"
    assert ours("{{ messages[0].content }}", parts, content_format=ContentFormat.OPENAI) == str(parts[0]["content"])
    forced = ours("{{ messages[0].content[0].text }}", TURNS, content_format=ContentFormat.OPENAI)
    assert forced == TURNS[0]["content"]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:..."}}]}]
    with pytest.raises(RequestError, match=r"content\[0\] is of type 'image_url', but this model takes text only"):
        ours(CHATML, image)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "must not be empty"),
        (["hi"], r"messages\[0\] must be an object with a role"),
        ([{"content": "x"}], r"messages\[0\] must be an object with a role"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content must be a string or a list"),
        ([{"role": "user", "content": [5]}], r"content\[0\] must be a string or an object"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], r"content\[0\].text must be a string"),
        ([{"role": "assistant", "tool_calls": ["x"]}], "must be objects with a function"),
    ],
)
def test_malformed_messages_are_the_clients_fault(messages: list[Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ours(CHATML, messages)


def test_templates_that_are_none() -> None:
    with pytest.raises(ConfigError, match=r"the chat template is not valid"):
        ChatTemplate("{% for x in %}", TOKENS)
    with pytest.raises(ConfigError, match=r"characters; 1000000 are allowed"):
        ChatTemplate("x" * 1_000_001, TOKENS)


def test_template_from_a_file_or_inline(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text(CHATML)
    assert read_template(str(path)) == CHATML
    assert read_template(CHATML) == CHATML
    with pytest.raises(ConfigError, match=r"neither a file nor a Jinja template"):
        read_template("no-such-file.jinja")


def test_a_template_that_knows_developers_gets_them() -> None:
    messages = [{"role": "developer", "content": "x"}]
    loop = "{% for m in messages %}{{ m.role }};{% endfor %}"
    assert ChatTemplate(loop, {}).render(messages, ChatOptions()) == "system;"
    knows = loop + "{% if messages[0].role == 'developer' %}!{% endif %}"
    assert ChatTemplate(knows, {}).render(messages, ChatOptions()) == "developer;!"


def test_tool_calls_that_are_no_list_and_arguments_beyond_all_depth() -> None:
    with pytest.raises(RequestError, match="tool_calls must be a list"):
        normalize_messages([{"role": "assistant", "tool_calls": 3}], ContentFormat.STRING)
    deep = "[" * 20_000 + "]" * 20_000
    call = {"function": {"name": "f", "arguments": deep}}
    (message,) = normalize_messages([{"role": "assistant", "tool_calls": [call]}], ContentFormat.STRING)
    assert message["tool_calls"][0]["function"]["arguments"] == deep
