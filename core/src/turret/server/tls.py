"""TLS of the listening socket.

Owns: the context made of the operator's files, and taking new files up while connections go on. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl

from turret.config import TlsConfig
from turret.errors import ConfigError

__all__ = ["TlsFiles", "watch_tls"]

log = logging.getLogger("turret.server")

_LOOK_SECONDS = 1.0


class TlsFiles:
    """The TLS side of one listener. `context` is the same object for its whole life; a handshake is made with what the
    files held when `refresh` last looked."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._seen = self._stamps()
        self._current = _context_of(config)
        self.context = _context_of(config)
        # A handshake may be handed to another context as long as it has only just begun; so that certificates and
        # the authorities for clients change together, and old ones are forgotten.
        self.context.sni_callback = self._hand_over

    def refresh(self) -> bool:
        """Take up files that changed; False when none did. Raises `ConfigError`, and keeps what works, for broken ones.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        self._current = _context_of(self._config)
        return True

    def _hand_over(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        config = self._config
        return [_stamp(path) for path in (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs) if path]


async def watch_tls(files: TlsFiles) -> None:
    """Take changed files up for --enable-ssl-refresh. Runs until cancelled."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            if files.refresh():
                log.info("the TLS files changed; new connections get the new ones")
        except ConfigError as error:
            log.error("the TLS files changed and cannot be used, so connections get the old ones: %s", error)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What tells one version of a file from the next; None while it is not there (it is being replaced)."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context_of(config: TlsConfig) -> ssl.SSLContext:
    """A server context as the options say; raises `ConfigError` naming the option at fault."""
    assert config.ssl_certfile is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    key = config.ssl_keyfile or config.ssl_certfile
    try:
        context.load_cert_chain(config.ssl_certfile, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--ssl-certfile {config.ssl_certfile} with the key in {key} cannot be used: {error}", "ssl-certfile"
        ) from error
    if config.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(config.ssl_ca_certs)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--ssl-ca-certs {config.ssl_ca_certs}: {error}", "ssl-ca-certs") from error
    context.verify_mode = ssl.VerifyMode(int(config.ssl_cert_reqs))
    if config.ssl_ciphers is not None:
        try:
            context.set_ciphers(config.ssl_ciphers)
        except ssl.SSLError as error:
            raise ConfigError(f"--ssl-ciphers {config.ssl_ciphers}: {error}", "ssl-ciphers") from error
    return context
