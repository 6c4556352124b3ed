"""`turret serve` over TLS, with middleware of the operator's own: named in the environment and on the command line."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

MIDDLEWARE = '''
async def stamp(request, call_next):
    answer = await call_next(request)
    answer.headers["x-stamped"] = request.url.scheme
    return answer
'''


def written(authority: trustme.CA, folder: Path) -> None:
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")


def test_a_server_over_tls(serve, until, tiny_llama: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    written(authority, tmp_path)
    (tmp_path / "operators_own.py").write_text(MIDDLEWARE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    environment = {"TURRET_SSL_CERTFILE": str(tmp_path / "server.pem"), "PYTHONPATH": str(tmp_path)}
    options = ("--device", "fake", "--kv-cache-memory-bytes", "4M", "--enable-ssl-refresh",
               "--middleware", "operators_own.stamp")  # fmt: skip
    with serve(tiny_llama, *options, env=environment) as started:
        url = started.wait_ready()
        assert url.startswith("https://")
        with httpx.Client(verify=context, base_url=url, timeout=60) as client:
            body = {"prompt": [5, 6, 7], "max_tokens": 3, "stream": True}
            answer = client.post("/v1/completions", json=body)
            assert answer.text.endswith("data: [DONE]\n\n") and answer.headers["x-stamped"] == "https"
        (tmp_path / "server.pem").write_text("half a file")
        until(lambda: "connections get the old ones" in started.said, 30, lambda: started.said)
        written(authority, tmp_path)
        until(lambda: "new connections get the new ones" in started.said, 30, lambda: started.said)
        assert httpx.get(f"{url}/health", verify=context).status_code == 200
        assert started.stop() == 0 and "Traceback" not in started.said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ssl-certfile", "/nowhere.pem"], "--ssl-certfile /nowhere.pem"),
        (["--middleware", "no.such.Module"], "--middleware no.such.Module cannot be loaded"),
        (["--log-config-file", "/nowhere.json"], "--log-config-file /nowhere.json: No such file"),
        (["--ssl-keyfile", "k.pem"], "--ssl-keyfile needs --ssl-certfile"),
    ],
)
def test_mistakes_are_told_in_one_line_before_anything_starts(serve, tiny_llama: str, options, words) -> None:
    with serve(tiny_llama, "--device", "fake", *options) as started:
        assert started.wait() == 2
        assert words in started.lines[-1] and "loading" not in started.said
