"""Every parser end to end: a pretended device says what each family of models would, a server reads it, HTTP tells it.

One engine plays all answers; each parser has a front of its own on it, with the parser's marks as special tokens of the
tokenizer or as ordinary text, one byte to a token. Asked for whole and streamed, all at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tokenizers import Tokenizer

from turret.compose.hosts import plugin_host
from turret.compose.server import begin_server
from turret.config import Config
from turret.plugins import PluginHost
from turret.server.app import create_app
from turret.server.parts import AnswerParsers, ServerParts
from turret.testing import ParserSample
from turret.text import FastTokenizer, SpecialTokens, TextProcessor
from turret_parser_reasoning.conformance import samples as reasoning_samples
from turret_parser_reasoning.variants import VARIANTS as REASONING
from turret_parser_tool.conformance import samples as tool_samples
from turret_parser_tool.variants import VARIANTS as TOOLS
from turret_platform_fake.stage import CHAT_TEMPLATE, END, write_stage

AT_ONCE = 48
"""Requests under way together."""

PAIRS = {
    # reasoning parser, tool parser: end of the prompt, what stands before a call
    ("qwen3", "hermes"): ("<think>\n", "a\n</think>\n\n"),
    ("qwen3", "qwen3_coder"): ("", "<think>\na\n</think>\n\n"),
    ("deepseek_r1", "deepseek_v3"): ("<think>\n", "a</think>"),
    ("deepseek_v3", "deepseek_v31"): ("<think>", "a</think>"),
    ("deepseek_v4", "deepseek_v4"): ("<think>", "a</think>\n\n"),
    ("glm45", "glm45"): ("", "<think>a</think>\n"),
    ("kimi_k2", "kimi_k2"): ("<think>", "a</think>"),
    ("minimax_m2", "minimax_m2"): ("<think>\n", "a\n</think>\n\n"),
    ("minimax_m3", "minimax_m3"): ("<mm:think>", "a</mm:think>"),
    ("nemotron_v3", "nemotron_v3"): ("<think>\n", "a</think>\n"),
    ("mimo", "mimo"): ("", "<think>a</think>"),
    ("poolside_v1", "poolside_v1"): ("<think>", "a</think>"),
    ("ernie45", "ernie45"): ("<think>\n", "a\n</think>\n\n"),
    ("seed_oss", "seed_oss"): ("", "<seed:think>a</seed:think>"),
    ("step3", "step3"): ("<think>\n", "a</think>"),
    ("step3p5", "step3p5"): ("<think>\n", "a\n</think>\n"),
    ("hunyuan_a13b", "hunyuan_a13b"): ("", "<think>\na\n</think>\n"),
    ("hy_v3", "hy_v3"): ("<think>", "a</think>"),
    ("mistral", "mistral"): ("", "[THINK]a[/THINK]"),
    ("cohere_command3", "cohere_command3"): ("<|START_THINKING|>", "a<|END_THINKING|>"),
    ("cohere_command4", "cohere_command4"): ("<|START_THINKING|>", "a<|END_THINKING|>"),
    ("gemma4", "gemma4"): ("", "<|channel>thought\na<channel|>"),
    ("solar_open2", "solar_open2"): ("<|think:start|>", "a<|think:end|>"),
    ("k2_horizon", "k2_horizon"): ("", "<ifm|think>a</ifm|think>"),
    ("kimi_k3", "kimi_k3"): ("<|open|>think<|sep|>", "a<|close|>think<|sep|>"),
    ("inkling", "inkling"): ("", "<|message_model|><|content_thinking|>a<|end_message|>"),
    ("apertus2509", "apertus"): ("", "<|inner_prefix|>a<|inner_suffix|>"),
    ("openai_gptoss", "openai"): ("", "<|channel|>analysis<|message|>a<|end|><|start|>assistant"),
}  # fmt: skip
PADDED = ("hunyuan_a13b", "step3p5")
"""Families whose closing tag takes the line's end before it."""


@dataclasses.dataclass(frozen=True)
class Play:
    """One answer and how it must be read. `front` names the parsers: (reasoning, tools)."""

    front: tuple[str | None, str | None]
    text: str
    expected: Mapping[str, Any]
    tools: tuple[dict[str, Any], ...] = ()
    opening: str = ""
    kwargs: tuple[tuple[str, object], ...] = ()
    number: int = 0

    def __str__(self) -> str:
        return f"{'+'.join(name for name in self.front if name)}-{self.number}"

    @property
    def marks(self) -> tuple[str, ...]:
        reasoning, tools = self.front
        found = REASONING[reasoning].marks() if reasoning else ()
        return (*found, *(TOOLS[tools].marks() if tools else ()))


def _samples_of(name: str, variants: Mapping[str, object], samples: list[ParserSample]) -> list[ParserSample]:
    """A name's own samples; those of the same format under another name show it for an alias."""
    own = [sample for sample in samples if sample.parsers == (name,)]
    return own or [sample for sample in samples if variants[sample.parsers[0]] == variants[name]][:1]


def _plays() -> Iterator[Play]:
    for name in TOOLS:
        for sample in _samples_of(name, TOOLS, tool_samples()):
            expected = {"calls": list(sample.calls), "content": sample.content, "reasoning": ""}
            yield Play((None, name), sample.text, expected, sample.context.tools)
    for name in REASONING:
        for sample in _samples_of(name, REASONING, reasoning_samples()):
            kwargs = sample.context.template_kwargs
            # A prompt that came over HTTP is never unknown: an argument that begins reasoning shows at its end.
            opening = sample.context.prompt_tail or ("<think>" if kwargs else "")
            expected = {"calls": [], "content": sample.content, "reasoning": sample.reasoning}
            yield Play((name, None), sample.text, expected, (), opening, kwargs)
    for (first, second), (opening, before) in PAIRS.items():
        for sample in _samples_of(second, TOOLS, [one for one in tool_samples() if not one.content]):
            thought = "a\n" if "a\n" in before and first not in PADDED else "a"
            expected = {"calls": list(sample.calls), "content": "", "reasoning": thought}
            yield Play((first, second), before + sample.text, expected, sample.context.tools, opening)


PLAYS = [dataclasses.replace(play, number=number) for number, play in enumerate(_plays())]
SPECIAL = tuple(
    dict.fromkeys(
        mark for play in PLAYS for mark in play.marks
        if mark[0] in "<[]◁" and mark[-1] in ">]▷[" and not any(letter.isspace() for letter in mark)
    )
)  # fmt: skip
"""Marks that may be tokens: brackets around something without spaces."""


def _script(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    scenes: list[dict[str, Any]] = []
    for play in PLAYS:
        bytes_alone = [token for letter in play.text for token in tokenizer.encode(letter).ids]
        scenes += [
            {"when": f"special {play.number:04};", "say": play.text},
            {"when": f"plain {play.number:04};", "say": bytes_alone},
        ]
    return scenes


class Fronts:
    """Apps on one engine, one a pair of parsers and kind of marks; the first piece of a path says which."""

    def __init__(self, parts: ServerParts, host: PluginHost, stage: Path) -> None:
        self._parts = parts
        self._host = host
        self._backend = json.loads((stage / "tokenizer.json").read_text())
        self._apps: dict[tuple[str, ...], Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _, number, path = scope["path"].split("/", 2)
        app = self._app(PLAYS[int(number)], path.startswith("special"))
        rest = "/" + path.split("/", 1)[1]
        await app({**scope, "path": rest, "raw_path": rest.encode()}, receive, send)

    def _app(self, play: Play, special: bool) -> Any:
        key = (str(play.front), str(special))
        if key not in self._apps:
            reasoning, tools = play.front
            options = {"reasoning_parser": reasoning, "tool_call_parser": tools, "enable_auto_tool_choice": bool(tools)}
            parsers = AnswerParsers(self._load("reasoning_parser", reasoning), self._load("tool_parser", tools))
            parts = dataclasses.replace(self._parts, parsers=parsers, text=self._text(play.marks if special else ()))
            self._apps[key] = create_app(parts, Config.from_options(options))
        return self._apps[key]

    def _load(self, kind: str, name: str | None) -> Any:
        return None if name is None else self._host.load(self._host.select(kind, key=name, explicit=name).require())

    def _text(self, marks: tuple[str, ...]) -> TextProcessor:
        """The engine's tokens, of which these marks are special: left out of text unless somebody asks for them."""
        added = [{**token, "special": token["content"] in (*marks, END)} for token in self._backend["added_tokens"]]
        backend = Tokenizer.from_str(json.dumps({**self._backend, "added_tokens": added}))
        specials = SpecialTokens(eos_token_id=backend.token_to_id(END), names={"eos_token": END})
        return TextProcessor(FastTokenizer(backend, specials), {"default": CHAT_TEMPLATE}, self._parts.max_model_len)


@asynccontextmanager
async def _listening(app: Fronts) -> AsyncIterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def _body(play: Play, kind: str, stream: bool) -> dict[str, Any]:
    asked = {"role": "user", "content": f"{kind} {play.number:04};"}
    body: dict[str, Any] = {"messages": [asked], "stream": stream}
    body["chat_template_kwargs"] = {**dict(play.kwargs), "opening": play.opening}
    return {**body, "tools": list(play.tools)} if play.tools else body


def _read(choice: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [(call["function"]["name"], json.loads(call["function"]["arguments"]))
             for call in message.get("tool_calls") or ()]  # fmt: skip
    told = {name: message.get(name) or "" for name in ("content", "reasoning")}
    return {**told, "calls": calls, "finish_reason": choice["finish_reason"]}


def _gather(lines: list[str]) -> dict[str, Any]:
    """A stream's deltas as one message."""
    message: dict[str, Any] = {"tool_calls": []}
    choice: dict[str, Any] = {}
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        choice = json.loads(line.removeprefix("data: "))["choices"][0]
        delta = choice["delta"]
        for name in ("content", "reasoning"):
            message[name] = message.get(name, "") + (delta.get(name) or "")
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(message["tool_calls"]):
                message["tool_calls"].append(part)
            else:
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return _read(choice, message)


async def _ask(client: httpx.AsyncClient, play: Play, kind: str, stream: bool) -> dict[str, Any]:
    answer = await client.post(f"/{play.number}/{kind}/v1/chat/completions", json=_body(play, kind, stream))
    if answer.status_code != 200:
        return {"error": answer.text}
    if stream:
        return _gather([line for line in answer.text.splitlines() if line])
    choice = answer.json()["choices"][0]
    return _read(choice, choice["message"])


async def _answers(stage: Path, options: Mapping[str, Any]) -> dict[tuple[int, str, bool], dict[str, Any]]:
    config = Config.from_options(options)
    parts = await begin_server(config, tuple(options)).finish()
    turns = asyncio.Semaphore(AT_ONCE)
    try:
        host = plugin_host(config.plugins, frozenset({"front"}))
        async with (
            _listening(Fronts(parts, host, stage)) as url,
            httpx.AsyncClient(base_url=url, timeout=120) as client,
        ):

            async def one(play: Play, kind: str, stream: bool) -> tuple[tuple[int, str, bool], dict[str, Any]]:
                async with turns:
                    return (play.number, kind, stream), await _ask(client, play, kind, stream)

            asked = [one(play, kind, stream) for play in PLAYS for kind in ("special", "plain") for stream in (0, 1)]
            return dict(await asyncio.gather(*asked))
    finally:
        await parts.client.shutdown()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, str, bool], dict[str, Any]]:
    """What every play came to, by its number, the kind of its marks, and whether it was streamed."""
    stage = tmp_path_factory.mktemp("stage")
    write_stage(stage, SPECIAL, 1 << 14)
    script = stage / "script.json"
    script.write_text(json.dumps(_script(Tokenizer.from_file(str(stage / "tokenizer.json")))))
    options = {
        "model": str(stage), "load_format": "dummy", "device": "fake",
        "plugin_config": [f"platform:fake.script={script}"],
    }  # fmt: skip
    return asyncio.run(_answers(stage, options))


@pytest.mark.parametrize("play", PLAYS, ids=str)
def test_what_a_family_writes_is_what_a_client_reads(
    play: Play, answers: dict[tuple[int, str, bool], dict[str, Any]]
) -> None:
    expected = {**play.expected, "finish_reason": "tool_calls" if play.expected["calls"] else "stop"}
    for kind in ("special", "plain"):
        for stream in (False, True):
            assert answers[play.number, kind, stream] == expected, f"marks are {kind}, stream is {stream}"


def test_every_parser_that_is_installed_has_a_play() -> None:
    host = plugin_host(Config().plugins, frozenset({"front"}))
    for kind, place in (("reasoning_parser", 0), ("tool_parser", 1)):
        ours = {one.name for one in host.registry.of_kind(kind) if one.distribution.startswith("turret-parser-")}
        assert ours == {play.front[place] for play in PLAYS} - {None}
