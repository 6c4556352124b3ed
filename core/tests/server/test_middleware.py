"""Middleware that the operator named: classes and functions, and nothing that cannot be used."""

from __future__ import annotations

import sys

import httpx
import pytest

from turret.errors import ConfigError
from turret.server.middleware import load_middleware

MODULE = '''
class Stamp:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def stamped(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-class", b"seen")]
            await send(message)
        await self.app(scope, receive, stamped)

async def gate(request, call_next):
    if request.headers.get("x-closed"):
        from starlette.responses import Response
        return Response("closed", 418)
    answer = await call_next(request)
    answer.headers["x-function"] = "seen"
    return answer

number = 3

def plain(request, call_next):
    return None
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "tried_middleware.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "tried_middleware"
    sys.modules.pop("tried_middleware", None)


def test_classes_and_functions(serve, module):
    with serve(middleware=[f"{module}.Stamp", f"{module}:gate"], api_key=["k"]) as running:
        url, key = f"{running.url}/v1/completions", {"authorization": "Bearer k"}
        answer = httpx.post(url, json={"prompt": "Hello", "max_tokens": 3, "stream": True}, headers=key)
        assert answer.status_code == 200 and answer.text.endswith("data: [DONE]\n\n")
        assert answer.headers["x-class"] == answer.headers["x-function"] == "seen"
        denied = httpx.get(f"{running.url}/v1/models")
        assert denied.status_code == 401 and denied.headers["x-function"] == "seen", "the operator's sees everything"
        assert httpx.get(f"{running.url}/health", headers={"x-closed": "1"}).status_code == 418


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere.at.All", "No module named"), ("Stamp", "package.module.Name"), ("{}.Missing", "Missing"),
        ("{}.number", "neither a class nor an async function"), ("{}.plain", "neither a class nor an async function"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told(module, path, words):
    with pytest.raises(ConfigError, match=words) as told:
        load_middleware([path.format(module)])
    assert told.value.option == "middleware"
