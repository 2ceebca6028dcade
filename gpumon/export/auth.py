"""Credentials of scrapers: the token, or a name with its password; none where neither is asked for."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import NamedTuple

from gpumon.common.errors import GpumonError, MissingPackage
from gpumon.export.web_config import WebConfig, read_web_config

_REMEMBERED = 64
"""Passwords that were right: to check one by bcrypt takes as long as fifty scrapes."""
_NOBODY = "$2b$10$AGShMgVbijdZKrx0Gw7IvuNuKDtN7ybmfR6Mw1VB3WIvWTswQX4Ym"
"""For names that nobody has: an answer to one must take as long."""
_WAITING, _WAITING_OF_ONE = 16, 2
"""Checks of passwords that may wait for each other, and those of one address: its guesses keep no other one out."""


class TooManyChecks(GpumonError):
    """No check of a password can be waited for now: whether it is right is not known."""


class Credentials:
    """Asks for a token or a password; where there are both, either will do. `users`: hashes of bcrypt by name.

    `former`: those that were in force before. What was right by a hash that is still in force needs no other check.
    """

    def __init__(
        self, token: str = "", users: Mapping[str, str] | None = None, former: Credentials | None = None
    ) -> None:
        self._token = token.encode()
        self._users = dict(users or {})
        self._check = _checker() if self._users else None
        self._salt: bytes = former._salt if former else secrets.token_bytes(16)
        self._right: dict[bytes, str] = former._right if former else {}
        """The hash by which each was right."""
        self._lock = Lock()
        self._waiting: Counter[str] = Counter()
        """Checks by address."""
        self._counting = Lock()

    @property
    def are_asked(self) -> bool:
        """Whether anything is asked for at all."""
        return bool(self._token or self._users)

    @property
    def challenge(self) -> str:
        """The header that says what is asked for."""
        return 'Basic realm="gpumon"' if self._users else "Bearer"

    def lets_in(self, authorization: str, address: str = "") -> bool:
        """Return whether this header is enough. Raises TooManyChecks."""
        if not self.are_asked:
            return True
        kind, _, given = authorization.strip().partition(" ")
        if kind.lower() == "bearer":
            return bool(self._token) and hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token)
        return kind.lower() == "basic" and bool(self._users) and self._knows(given.strip(), address)

    def _knows(self, given: str, address: str) -> bool:
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        if not colon or self._check is None:
            return False
        known = sha256(b"\0".join((self._salt, name.encode(), password.encode()))).digest()
        hashed = self._users.get(name)
        if hashed is not None and self._right.get(known) == hashed:
            return True
        with self._waits(address), self._lock:  # one at a time: who guesses takes one core at most
            right = self._check(password, hashed or _NOBODY) and hashed is not None
        if right and hashed is not None:
            if len(self._right) >= _REMEMBERED:
                self._right.clear()
            self._right[known] = hashed
        return right

    @contextmanager
    def _waits(self, address: str) -> Iterator[None]:
        """Take a place among the checks. Raises TooManyChecks where there is none."""
        with self._counting:
            if self._waiting.total() >= _WAITING or self._waiting[address] >= _WAITING_OF_ONE:
                raise TooManyChecks
            self._waiting[address] += 1
        try:
            yield
        finally:
            with self._counting:
                self._waiting[address] -= 1
                self._waiting += Counter()  # forgets addresses of which none waits


def _checker() -> Callable[[str, str], bool]:
    try:
        import bcrypt
    except ImportError as error:
        raise MissingPackage("basic_auth_users", "bcrypt") from error

    def check(password: str, hashed: str) -> bool:
        try:
            return bcrypt.checkpw(password.encode(), hashed.encode())
        except ValueError:  # a hash that is none, or a password that is too long for any
            return False

    return check


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
