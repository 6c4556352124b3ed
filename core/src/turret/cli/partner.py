"""Who answers `turret chat` and `turret complete`: a server behind a URL, or an engine in this process.

Owns: both ways of asking, piece by piece. Knows nothing of what is done with the pieces.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import httpx

from turret.config import Config
from turret.errors import RequestError, TurretError

__all__ = ["LocalPartner", "Message", "Partner", "RemotePartner", "Wishes", "server_answer"]

Message = dict[str, str]
_DEFAULTED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Wishes:
    """Sampling options that were named on the command line; None leaves it to the model or server."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Those that were named."""
        values = {name: getattr(self, name) for name in ("max_tokens", "temperature", "top_p", "seed")}
        return {name: value for name, value in values.items() if value is not None}


class Partner(Protocol):
    """Answers in pieces of text. Closing an answer early ends its generation."""

    @property
    def model(self) -> str:
        """The model's name."""

    def complete(self, prompt: str, wishes: Wishes) -> Iterator[str]:
        """What follows the prompt."""

    def chat(self, messages: list[Message], wishes: Wishes) -> Iterator[str]:
        """The next message."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class RemotePartner:
    """Any server with the OpenAI API. `url` may end with /v1 or not; without `model` the server's first is asked."""

    def __init__(self, url: str, api_key: str | None = None, model: str | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(None, connect=10.0))
        self._model = model

    @property
    def model(self) -> str:
        """The name that requests carry."""
        if self._model is None:
            with _reachable(self._url):
                listed = server_answer(self._client.get(f"{self._url}/models"))
            self._model = str(listed["data"][0]["id"])
        return self._model

    def complete(self, prompt: str, wishes: Wishes) -> Iterator[str]:
        """What follows the prompt."""
        for choice in self._stream("completions", {"prompt": prompt, **wishes.given()}):
            yield str(choice.get("text") or "")

    def chat(self, messages: list[Message], wishes: Wishes) -> Iterator[str]:
        """The next message."""
        for choice in self._stream("chat/completions", {"messages": messages, **wishes.given()}):
            yield str((choice.get("delta") or {}).get("content") or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _stream(self, route: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        sent = {"model": self.model, "stream": True, **body}
        with _reachable(self._url), self._client.stream("POST", f"{self._url}/{route}", json=sent) as answer:
            if answer.status_code != 200:
                answer.read()
                server_answer(answer)
            for line in answer.iter_lines():
                event = line.removeprefix("data:").strip()
                if not line.startswith("data:") or event == "[DONE]":
                    continue
                chunk = json.loads(event)
                if "error" in chunk:
                    raise TurretError(_message(chunk))
                yield from chunk.get("choices", [])[:1]


class LocalPartner:
    """An engine in this process. Imports it when made: that takes seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from turret.compose.logs import setup_logging
        from turret.compose.offline import build_offline
        from turret.llm.loading import LoadBar
        from turret.server.expansion import Expander

        config = Config.from_options(options)
        setup_logging(config.observability.log_level if "log_level" in options else "warning")
        with LoadBar(config.load.use_tqdm_on_load and sys.stderr.isatty()) as bar:
            self._parts = build_offline(config, tuple(options), bar.update)
        self._expander = Expander(config.model.seed, self._parts.checkpoint.eos_token_ids, self._parts.text)
        self._serial = itertools.count()

    @property
    def model(self) -> str:
        """The checkpoint's name."""
        return self._parts.checkpoint.name

    def complete(self, prompt: str, wishes: Wishes) -> Iterator[str]:
        """What follows the prompt."""
        return self._run(self._parts.text.encode_prompt(prompt), wishes)

    def chat(self, messages: list[Message], wishes: Wishes) -> Iterator[str]:
        """The next message."""
        from turret.text import ChatOptions

        prompt = self._parts.text.encode_chat(messages, ChatOptions(add_generation_prompt=True))
        return self._run(prompt.token_ids, wishes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.engine.shutdown()

    def _run(self, prompt: list[int], wishes: Wishes) -> Iterator[str]:
        from turret.engine import event_error
        from turret.sampling import SamplingParams
        from turret.server.choices import Choice
        from turret.server.expansion import Generation
        from turret.server.lengths import Limits

        defaults = self._parts.generation_defaults
        kept = {name: defaults[name] for name in _DEFAULTED if defaults.get(name) is not None}
        params = SamplingParams(**{**kept, "max_tokens": None, **wishes.given()})
        limit = Limits(self._parts.max_model_len).resolve(len(prompt), wishes.max_tokens)
        job = Generation(str(next(self._serial)), (prompt,), params, (limit,))
        (request,) = self._expander.expand(job)
        choice = Choice.of(0, request, self._parts.text)
        for event in self._parts.engine.generate([request]):
            if (error := event_error(event)) is not None:
                raise error
            yield choice.advance(event).text
            if choice.finished:
                return


def server_answer(answer: httpx.Response) -> Any:
    """The JSON of an answer; raises the server's own words when it says no."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.status_code != 200 or found is None:
        raise RequestError(f"the server answered {answer.status_code}: {_message(found) or answer.text[:200]}")
    return found


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") if isinstance(error, dict) else error or "")


@contextmanager
def _reachable(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise TurretError(f"{url} does not answer: {str(error) or type(error).__name__}") from error
    except httpx.InvalidURL as error:
        raise RequestError(f"--url {url}: {error}") from error
