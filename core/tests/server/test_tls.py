"""TLS of the server: certificates, client certificates, and files that change while it runs."""

from __future__ import annotations

import shutil
import socket
import ssl

import httpx
import pytest
import trustme

from turret.config import ServerConfig, TlsConfig
from turret.errors import ConfigError
from turret.server.listening import bind
from turret.server.tls import TlsFiles


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """Paths of a certificate, its key and its authority, as options."""
    return written(authority.issue_cert("127.0.0.1", "localhost"), authority, tmp_path)


def written(certificate, authority, folder):
    paths = {name: folder / f"{name}.pem" for name in ("certificate", "key", "authority")}
    certificate.private_key_pem.write_to_path(paths["key"])
    paths["certificate"].write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    authority.cert_pem.write_to_path(paths["authority"])
    return {
        "ssl_certfile": str(paths["certificate"]), "ssl_keyfile": str(paths["key"]),
        "ssl_ca_certs": str(paths["authority"]),
    }  # fmt: skip


def trusting(authority, own=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    return context


def serial(running, authority):
    """Number of the certificate that the server shows."""
    host, port = running.url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        trusting(authority).wrap_socket(plain, server_hostname=host) as connection,
    ):
        return connection.getpeercert()["serialNumber"]


def test_requests_over_tls(serve, authority, files):
    with serve(**files) as running:
        assert running.url.startswith("https://")
        body = {"prompt": "Hello", "max_tokens": 5, "stream": True}
        with httpx.Client(verify=trusting(authority), base_url=running.url) as client:
            assert client.get("/health").status_code == 200
            assert client.post("/v1/completions", json=body).text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{running.url}/health")
        with pytest.raises(httpx.HTTPError):
            httpx.get(running.url.replace("https", "http") + "/health")


def test_client_certificates(serve, authority, files):
    stranger = trustme.CA().issue_cert("somebody@nowhere.example")
    member = authority.issue_cert("somebody@here.example")
    with serve(**files, ssl_cert_reqs="2") as running:
        for own, fine in ((member, True), (stranger, False), (None, False)):
            with httpx.Client(verify=trusting(authority, own), base_url=running.url) as client:
                if fine:
                    assert client.get("/health").status_code == 200
                else:
                    with pytest.raises(httpx.HTTPError):
                        client.get("/health")
    with serve(**files, ssl_cert_reqs="1") as running:
        assert httpx.get(f"{running.url}/health", verify=trusting(authority)).status_code == 200


def test_changed_files_are_taken_up_and_broken_ones_are_not(serve, authority, files, tmp_path, until):
    with serve(**files, enable_ssl_refresh=True) as running:
        before = serial(running, authority)
        written(authority.issue_cert("127.0.0.1"), authority, tmp_path)
        until(lambda: serial(running, authority) != before)
        after = serial(running, authority)
        (tmp_path / "certificate.pem").write_text("nonsense")
        with pytest.raises(ConfigError):
            TlsFiles(TlsConfig(**files))
        assert serial(running, authority) == after


def test_old_authorities_are_forgotten(authority, files, tmp_path):
    made = TlsFiles(TlsConfig(**files, ssl_cert_reqs="2"))
    assert not made.refresh()
    other = trustme.CA()
    shutil.copy(tmp_path / "certificate.pem", tmp_path / "kept.pem")
    other.cert_pem.write_to_path(files["ssl_ca_certs"])
    assert made.refresh() and not made.refresh()
    assert handshake(made.context, trusting(authority, other.issue_cert("x@y.example"))) == []
    assert handshake(made.context, trusting(authority, authority.issue_cert("x@y.example"))) != []


def handshake(server_context, client_context):
    """Errors of the server's side of a handshake between two contexts."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    errors = []
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                errors.append(error)
                return errors if side is server else [*errors, error]
    return errors


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"ssl_certfile": "/nowhere.pem"}, "ssl-certfile"),
        ({"ssl_ca_certs": "/nowhere.pem"}, "ssl-ca-certs"),
        ({"ssl_ciphers": "none-such"}, "ssl-ciphers"),
    ],
)
def test_files_that_cannot_be_used_are_told_before_anything_starts(files, change, option):
    with pytest.raises(ConfigError) as told:
        bind(ServerConfig(host="127.0.0.1", port=0), TlsConfig(**{**files, **change}))
    assert told.value.option == option


def test_ciphers_are_those_named(serve, authority, files):
    with serve(**files, ssl_ciphers="ECDHE+AESGCM") as running:
        context = trusting(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert httpx.get(f"{running.url}/health", verify=context).status_code == 200
        context.set_ciphers("ECDHE+CHACHA20")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/health", verify=context)
