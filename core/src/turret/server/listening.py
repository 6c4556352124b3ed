"""The socket the server listens on, bound before anything slow happens.

Owns: binding, and the sentences for an address that cannot be had. Knows nothing of HTTP.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from turret.config import ServerConfig, TlsConfig
from turret.errors import ConfigError
from turret.server.tls import TlsFiles

__all__ = ["Listener", "adopt", "bind"]


class Listener:
    """A bound socket and how to reach it; `tls` when it speaks TLS."""

    def __init__(self, sock: socket.socket, host: str, uds: Path | None, tls: TlsFiles | None = None) -> None:
        self.sock = sock
        self.tls = tls
        self._host = host
        self._uds = uds

    @property
    def url(self) -> str:
        """The base URL for a client on this machine."""
        scheme = "http" if self.tls is None else "https"
        if self._uds is not None:
            return f"{scheme}://localhost"
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._host, self._host)
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return f"{scheme}://{host}:{self.sock.getsockname()[1]}"

    @property
    def curl_option(self) -> str:
        """What curl needs besides the URL."""
        trust = "-k " if self.tls is not None else ""
        return trust + (f"--unix-socket {self._uds} " if self._uds is not None else "")

    def close(self) -> None:
        """Close the socket and remove its file."""
        self.sock.close()
        if self._uds is not None:
            self._uds.unlink(missing_ok=True)


def bind(config: ServerConfig, tls: TlsConfig | None = None) -> Listener:
    """Bind what --host and --port, or --uds, say; raises `ConfigError` when somebody else has it, or when the TLS files
    cannot be used."""
    files = _files(tls)
    if config.uds is not None:
        return _bind_path(Path(config.uds), files)
    host = config.host or "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because event loops switch Nagle's delays off only where they see that it is TCP.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, config.port))
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen on {host} port {config.port}: {reason}; choose another with --host and --port", "port"
        ) from error
    return Listener(sock, host, None, files)


def adopt(fd: int, tls: TlsConfig | None = None) -> Listener:
    """The socket that another process bound; its file, if it has one, is that process's to remove."""
    return Listener(socket.socket(fileno=fd), "localhost", None, _files(tls))


def _files(tls: TlsConfig | None) -> TlsFiles | None:
    return TlsFiles(tls) if tls is not None and tls.ssl_certfile is not None else None


def _bind_path(path: Path, tls: TlsFiles | None) -> Listener:
    """A Unix socket; the file a dead server left behind is replaced, a live server's is not."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists():
            _clear(path)
        sock.bind(os.fspath(path))
    except (OSError, ConfigError) as error:
        sock.close()
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"cannot listen on --uds {path}: {error.strerror or error}", "uds") from error
    return Listener(sock, "localhost", path, tls)


def _clear(path: Path) -> None:
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise ConfigError(f"--uds {path} exists and is not a socket", "uds")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            path.unlink()
            return
    raise ConfigError(f"cannot listen on --uds {path}: another server uses it", "uds")
