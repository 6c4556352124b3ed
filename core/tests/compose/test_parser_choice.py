"""`auto` takes the parser that knows the marks of a chat template, and refuses templates that nobody knows."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

import pytest

from turret.cli.main import main
from turret.compose.hosts import plugin_host
from turret.compose.parser_choice import add_parser_files, choose_parsers
from turret.config import Config
from turret.contracts import ContentDelta, ParserContext, ToolArgumentsDelta, ToolCallStart
from turret.errors import ConfigError, PluginError

LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
TEMPLATES = {
    # the marks that templates of these families have; each says how calls and reasoning are to be written
    "Qwen 2.5": (
        LOOP + "{% if tools %}answer with <tool_call>{{ call | tojson }}</tool_call>{% endif %}",
        "hermes",
        None,
    ),
    "Qwen 3": (
        LOOP + "<tool_call>{}</tool_call>{% if not enable_thinking %}<think>\n\n</think>{% endif %}",
        "hermes",
        "qwen3",
    ),
    "Qwen 3 Coder": (LOOP + "<tool_call>\n<function=x>\n<parameter=y>\n1\n</parameter>", "qwen3_coder", None),
    "GLM": (
        "[gMASK]<tool_call>n<arg_key>k</arg_key><arg_value>v</arg_value></tool_call><think></think>",
        "glm45",
        "glm45",
    ),
    "Mistral": ("[INST]{{ m }}[/INST][TOOL_CALLS]", "mistral", None),
    "Magistral": ("[INST][TOOL_CALLS][ARGS]{} [THINK][/THINK]", "mistral", "mistral"),
    "gpt-oss": (
        "<|start|>assistant<|channel|>analysis<|message|>{}<|end|> reasoning_effort",
        "openai",
        "openai_gptoss",
    ),
    "Llama 3.1": (
        '<|start_header_id|>x<|end_header_id|> {"name": n, "parameters": {}} <|python_tag|>',
        "llama3_json",
        None,
    ),
    "Llama 4": ("<|header_start|>user<|header_end|> <|python_start|>[f()]<|python_end|>", "llama4_pythonic", None),
    "DeepSeek R1": (
        "<｜Assistant｜><think>\n<｜tool▁calls▁begin｜>function<｜tool▁sep｜>n\n```json\n{}\n```",
        "deepseek_v3",
        "deepseek_r1",
    ),
    "DeepSeek V3.1": (
        "<｜Assistant｜>{{ '<think>' if thinking else '</think>' }}<｜tool▁calls▁begin｜>n<｜tool▁sep｜>{}",
        "deepseek_v31",
        "deepseek_v31",
    ),
    "DeepSeek V3.2": ("<｜Assistant｜></think> thinking <｜DSML｜function_calls>", "deepseek_v32", "deepseek_v4"),
    "Kimi K2": ("<|im_middle|><|tool_calls_section_begin|><|tool_call_begin|>", "kimi_k2", None),
    "Kimi K2 Thinking": ("<|tool_calls_section_begin|><think></think>", "kimi_k2", "kimi_k2"),
    "MiniMax M2": ("<minimax:tool_call><invoke name=x><response></response> <think>", "minimax_m2", "minimax_m2"),
    "MiniMax M3": ("]<]minimax[>[<tool_call><response> <mm:think>", "minimax_m3", "minimax_m3"),
    "Gemma 4": ("<|turn>model\n<|tool_call>call:f{}<tool_call|><|channel>thought\n<channel|>", "gemma4", "gemma4"),
    "Granite 4": ("<|start_of_role|>assistant<|end_of_role|><tool_call></tool_call>", "granite4", None),
    "Seed": ("<seed:think></seed:think><seed:tool_call>\n<function=f>", "seed_oss", "seed_oss"),
    "Command A": (
        "<|START_THINKING|><|END_THINKING|><|START_ACTION|>[]<|END_ACTION|><|START_TEXT|>",
        "cohere_command4",
        "cohere_command4",
    ),
    "Hunyuan": ("<think:opensource></think:opensource><tool_sep:opensource>", "hy_v3", "hy_v3"),
    "plain": (LOOP, None, None),
}


@dataclass
class Known:
    """As much of a checkpoint as the choice looks at."""

    name: str = "some-model"
    chat_templates: dict[str, str] = field(default_factory=dict)


def chosen(template, **options):
    config = Config.from_options(options)
    host = plugin_host(config.plugins, frozenset({"front"}))
    add_parser_files(host, config.server.tool_parser_plugin, config.server.reasoning_parser_plugin)
    return choose_parsers(config, host, Known(chat_templates={} if template is None else {"default": template}))


@pytest.mark.parametrize("family", TEMPLATES)
def test_auto(family):
    template, tools, reasoning = TEMPLATES[family]
    for option, kind, expected in (
        ("tool_call_parser", "tool_parser", tools),
        ("reasoning_parser", "reasoning_parser", reasoning),
    ):
        if expected is None:
            with pytest.raises(ConfigError, match=f"{option.replace('_', '-')} auto: no {kind} plugin recognises"):
                chosen(template, **{option: "auto"})
            continue
        made = chosen(template, **{option: "auto"})
        name = made.parsers.tools_name if kind == "tool_parser" else made.parsers.reasoning_name
        assert name == f"{kind}:{expected}"
        [note] = made.notes
        assert name in note


def test_a_model_without_a_template():
    with pytest.raises(ConfigError, match="has none"):
        chosen(None, tool_call_parser="auto")


def test_named_parsers_need_no_template():
    made = chosen(None, tool_call_parser="hermes", reasoning_parser="qwen3")
    assert made.notes == () and made.parsers.tools_name == "tool_parser:hermes"


FILE = """
from turret.contracts import ContentDelta, ToolArgumentsDelta, ToolCallEnd, ToolCallStart


class Session:
    def __init__(self):
        self.text = ""

    def feed(self, text, ids):
        self.text += text
        return []

    def finish(self):
        if not self.text.startswith("CALL "):
            return [ContentDelta(self.text)]
        name = self.text.split()[1]
        return [ToolCallStart(0, name), ToolArgumentsDelta(0, "{}"), ToolCallEnd(0)]


class Shouting:
    api = "1.1"
    kind = "tool_parser"
    name = "shouting"

    def open(self, ctx):
        return Session()

    def grammar(self, tools):
        return None


class Broken(Shouting):
    name = "broken"

    def open(self, ctx):
        raise ValueError("boom")
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "parsers.py"
    path.write_text(FILE)
    return str(path)


def test_a_file_of_parsers(file):
    parser = chosen(None, tool_call_parser="shouting", tool_parser_plugin=file).parsers.tools
    session = parser.open(ParserContext())
    assert session.feed("CALL now", []) == []
    assert session.finish()[:2] == [ToolCallStart(0, "now"), ToolArgumentsDelta(0, "{}")]
    other = parser.open(ParserContext())
    assert other.feed("Hm.", []) == [] and other.finish() == [ContentDelta("Hm.")]


def test_what_a_file_breaks_is_named(file):
    parser = chosen(None, tool_call_parser="broken", tool_parser_plugin=file).parsers.tools
    with pytest.raises(
        PluginError, match=r"tool_parser:broken \(.*\.py file\) failed at open: ValueError: boom"
    ):
        parser.open(ParserContext())
    with pytest.raises(PluginError, match="did you mean shouting"):
        chosen(None, tool_call_parser="shoutin", tool_parser_plugin=file)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import vllm\n", "written for vllm"),
        ("from vllm.tool_parsers import ToolParser\n\nclass X(ToolParser): ...\n", "written for vllm"),
        ("x = 1\n", "defines no tool_parser"),
        ("class P:\n    kind = 'reasoning_parser'\n    api = '1.1'\n", "defines no tool_parser"),
        ("raise RuntimeError('no')\n", "failed: RuntimeError: no"),
        ("import turret.errors\nturret.errors.LoadError = None\n", "changed turret.errors.LoadError"),
        (None, "cannot be read"),
    ],
)
def test_files_that_are_of_no_use(tmp_path, source, sentence):
    path = tmp_path / "bad.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(ConfigError, match=sentence) as told:
        chosen(None, tool_call_parser="x", tool_parser_plugin=str(path))
    assert str(path) in str(told.value) and told.value.option == "tool-parser-plugin"


def test_a_file_of_reasoning_parsers(tmp_path):
    path = tmp_path / "thoughts.py"
    path.write_text(
        "class Thoughts:\n    api = '1.1'\n    kind = 'reasoning_parser'\n    name = 'thoughts'\n\n"
        "    def open(self, ctx):\n        return None\n"
    )
    made = chosen(None, reasoning_parser="thoughts", reasoning_parser_plugin=str(path))
    assert made.parsers.reasoning_name == "reasoning_parser:thoughts"


def test_it_is_said_once(caplog):
    from turret.compose.front_plugins import front_plugins

    config = Config.from_options({"tool_call_parser": "auto", "enable_auto_tool_choice": True})
    plugins = front_plugins(config, Known(chat_templates={"default": TEMPLATES["Mistral"][0]}), None, {})
    with caplog.at_level(logging.INFO, "turret.server"):
        plugins.say()
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("tool calls are read by tool_parser:mistral (turret-parser-tool")


@pytest.fixture
def model(tmp_path):
    """A directory that is enough of a checkpoint to be asked about."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATES["Magistral"][0]}))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return str(tmp_path)


def test_explain_says_who_knows_a_model(model, capsys):
    assert main(["plugins", "explain", "tool_parser", "--model", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "chosen: tool_parser:mistral"
    [chosen] = [line for line in lines if line.startswith("*")]
    assert "tool_parser:mistral" in chosen
    assert any("tool_parser:hermes" in line and "ineligible [capabilities]" in line for line in lines)
    assert main(["plugins", "explain", "reasoning_parser", "--model", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"] == "reasoning_parser:mistral"


def test_list_shows_what_files_hold(file, capsys):
    assert main(["plugins", "list", "--kind", "tool_parser", "--tool-parser-plugin", file]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("tool_parser:shouting")]
    assert file in line
