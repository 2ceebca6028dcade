"""The doors of an exporter: certificates and credentials, as their files have them now.

The files are looked at again for every connection and every request, as Prometheus' own programs do: a certificate
that was renewed counts from then on. While a file is wrong nobody comes in, and the terminal says why. Wrong is also a
file that asks for less than before: one that is being written, or was emptied, opens nothing. Only a new start does.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.exporters.credentials import Credentials
from gpumon.exporters.web_config import WebConfig, read_web_config

_Stamp = tuple[tuple[int, int, int], ...]


class Opened(NamedTuple):
    """Config and credentials that are in force."""

    config: WebConfig
    credentials: Credentials
    context: ssl.SSLContext | None


_ENCRYPTION, _CERTIFICATES, _NAMES, _CREDENTIALS = (
    "TLS", "client certificates", "names in client certificates", "passwords"
)  # fmt: skip


class Doors:
    """Lets scrapers in, or not. `file`: in the format of `web_config`, or empty; `say` is told what is wrong later."""

    def __init__(self, file: str = "", token: str = "", say: Callable[[str], None] = lambda _: None) -> None:
        """Raises GpumonError where the file is wrong already."""
        self._file, self._token, self._say = file, token, say
        self._lock = Lock()
        self._opened: Opened | None = None
        self._stamp: _Stamp = ()
        self._problem = ""
        self._files: tuple[str, ...] = (file,) if file else ()
        self._asked: frozenset[str] = frozenset()
        """Proofs that were asked for when the file was right last."""
        self.had_tls = False
        """Whether connections are encrypted, or were when the file was right last."""
        self._credentials: Credentials | None = None
        self._opened = self._read()

    @property
    def are_open(self) -> bool:
        """Whether anybody who can connect may scrape."""
        found = self._opened
        return found is not None and not {_CERTIFICATES, _CREDENTIALS} & _asked(found)

    def now(self) -> Opened | None:
        """Return what is in force; None while the file is wrong."""
        if not self._file:
            return self._opened
        with self._lock:
            if self._stamps() != self._stamp:
                self._opened = None  # first: whatever ends the reading, what was in force before is over
                try:
                    self._opened, self._problem = self._read(), ""
                except GpumonError as error:
                    if str(error) != self._problem:
                        self._problem = str(error)
                        self._say(f"nobody may scrape: {error}")
            return self._opened

    def _read(self) -> Opened:
        self._stamp = self._stamps()  # first: what changes meanwhile is read again
        config = read_web_config(self._file) if self._file else WebConfig()
        if config.tls is not None:
            self.had_tls = True
            files = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
            self._files = (self._file, *filter(None, files))
            self._stamp = self._stamps()
        self._credentials = Credentials(self._token, config.users, self._credentials)
        found = Opened(config, self._credentials, config.tls.context() if config.tls is not None else None)
        asked = _asked(found)
        if gone := sorted(self._asked - asked):
            raise GpumonError(
                f"{self._file} does not ask for {', '.join(gone)} any more: restart gpumon export if that is meant"
            )
        self._asked = asked
        return found

    def _stamps(self) -> _Stamp:
        return tuple(_stamp(file) for file in self._files)


def _asked(opened: Opened) -> frozenset[str]:
    """Proofs that scrapers must have: a certificate that is checked only where one is given counts for nothing."""
    tls = opened.config.tls
    checks = {
        _ENCRYPTION: tls is not None,
        _CERTIFICATES: tls is not None and tls.clients is ssl.CERT_REQUIRED,
        _NAMES: tls is not None and bool(tls.allowed_names),
        _CREDENTIALS: opened.credentials.are_asked,
    }
    return frozenset(name for name, is_asked in checks.items() if is_asked)


def _stamp(file: str) -> tuple[int, int, int]:
    """Marks that change with a file; zeros where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_allowed(connection: ssl.SSLSocket, names: tuple[str, ...]) -> bool:
    """Return whether the certificate of a client has one of these names."""
    if not names:
        return True
    certificate = connection.getpeercert() or {}
    given = {value for entry in certificate.get("subjectAltName", ()) for value in entry[1:]}
    return bool(given & set(names))
