"""Decides who may scrape, by client certificate, token or password. Their configuration may change at any time."""

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
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from gpumon.common.errors import GpumonError, MissingPackage
from gpumon.export.web_config import WebConfig, read_web_config

_MAX_CACHED = 64
"""Maximum number of accepted passwords that are cached. A bcrypt check takes as long as fifty scrapes."""
_DUMMY_HASH = "$2b$10$AGShMgVbijdZKrx0Gw7IvuNuKDtN7ybmfR6Mw1VB3WIvWTswQX4Ym"
"""Hash that is checked for unknown user names, so that a check takes as long as for existing names."""
_MAX_WAITING, _MAX_WAITING_PER_ADDRESS = 16, 2
"""Maximum number of waiting password checks, in total and per address. The second limit keeps guesses from one address
from blocking others."""


class TooManyChecks(GpumonError):
    """Raised if too many password checks are waiting, so that this password cannot be checked."""


class Credentials:
    """Checks tokens and passwords. If both are configured, either is enough."""

    def __init__(
        self, token: str = "", users: Mapping[str, str] | None = None, previous: Credentials | None = None
    ) -> None:
        """`users`: bcrypt hashes of passwords, by user name. `previous`: credentials that these replace.

        A password that `previous` accepted is not checked again if the user's hash is the same.
        """
        self._token = token.encode()
        self._users = dict(users or {})
        self._check = _password_checker() if self._users else None
        self._salt: bytes = previous._salt if previous else secrets.token_bytes(16)
        self._accepted: dict[bytes, str] = previous._accepted if previous else {}
        """The bcrypt hash that accepted a password, by a digest of user name and password."""
        self._lock = Lock()
        self._waiting: Counter[str] = Counter()
        """Number of waiting checks, by client address."""
        self._waiting_lock = Lock()

    @property
    def is_required(self) -> bool:
        """True if a token or password is configured."""
        return bool(self._token or self._users)

    @property
    def challenge(self) -> str:
        """Value of the response header `WWW-Authenticate`."""
        return 'Basic realm="gpumon"' if self._users else "Bearer"

    def accepts(self, authorization: str, address: str = "") -> bool:
        """Return True if the request's credentials are correct. Raises TooManyChecks.

        `authorization`: value of the header `Authorization`. `address`: address of the client.
        """
        if not self.is_required:
            return True
        scheme, _, value = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            return bool(self._token) and hmac.compare_digest(value.strip().encode("utf-8", "replace"), self._token)
        return scheme.lower() == "basic" and bool(self._users) and self._accepts_password(value.strip(), address)

    def _accepts_password(self, encoded: str, address: str) -> bool:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        if not colon or self._check is None:
            return False
        digest = sha256(b"\0".join((self._salt, name.encode(), password.encode()))).digest()
        hashed = self._users.get(name)
        if hashed is not None and self._accepted.get(digest) == hashed:
            return True
        with self._queued(address), self._lock:  # one check at a time, so that guesses use at most one core
            is_correct = self._check(password, hashed or _DUMMY_HASH) and hashed is not None
        if is_correct and hashed is not None:
            if len(self._accepted) >= _MAX_CACHED:
                self._accepted.clear()
            self._accepted[digest] = hashed
        return is_correct

    @contextmanager
    def _queued(self, address: str) -> Iterator[None]:
        """Count a waiting check during the `with` block. Raises TooManyChecks if too many are waiting."""
        with self._waiting_lock:
            if self._waiting.total() >= _MAX_WAITING or self._waiting[address] >= _MAX_WAITING_PER_ADDRESS:
                raise TooManyChecks
            self._waiting[address] += 1
        try:
            yield
        finally:
            with self._waiting_lock:
                self._waiting[address] -= 1
                self._waiting += Counter()  # drops addresses without a waiting check


def _password_checker() -> Callable[[str, str], bool]:
    try:
        import bcrypt
    except ImportError as error:
        raise MissingPackage("basic_auth_users", "bcrypt") from error

    def check(password: str, hashed: str) -> bool:
        try:
            return bcrypt.checkpw(password.encode(), hashed.encode())
        except ValueError:  # an invalid hash, or a password that is too long
            return False

    return check


_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class AuthState:
    """The current access rules: configuration, credentials, and TLS context (None without TLS)."""

    config: WebConfig
    credentials: Credentials
    context: ssl.SSLContext | None


_ENCRYPTION, _CERTIFICATES, _NAMES, _CREDENTIALS = (
    "TLS", "client certificates", "names in client certificates", "passwords"
)  # fmt: skip


class Authenticator:
    """Decides who may scrape, from a token and a file in the format of `web_config`.

    The file is read again when it changes. Scrapes are refused while it is invalid, and also if it no longer requires
    something that it required before.
    """

    def __init__(self, file: str = "", token: str = "", log: Callable[[str], None] = lambda _: None) -> None:
        """`file`: path of the file, or empty for none. `log`: called with later problems of the file.

        Raises GpumonError if the file is invalid.
        """
        self._file, self._token, self._log = file, token, log
        self._lock = Lock()
        self._state: AuthState | None = None
        self._stamp: _Stamp = ()
        self._problem = ""
        self._files: tuple[str, ...] = (file,) if file else ()
        self._required: frozenset[str] = frozenset()
        """The kinds of credentials that scrapers had to present when the file was last valid."""
        self.uses_tls = False
        """True if connections are encrypted, or were encrypted when the file was last valid."""
        self._credentials: Credentials | None = None
        self._state = self._read()

    @property
    def is_open(self) -> bool:
        """True if anyone who can connect may scrape."""
        state = self._state
        return state is not None and not {_CERTIFICATES, _CREDENTIALS} & _requirements(state)

    def current(self) -> AuthState | None:
        """Return the current configuration, or None while the file is invalid."""
        if not self._file:
            return self._state
        with self._lock:
            if self._stamps() != self._stamp:
                self._state = None  # set first, so that the previous state is not used if reading fails in any way
                try:
                    self._state, self._problem = self._read(), ""
                except GpumonError as error:
                    if str(error) != self._problem:
                        self._problem = str(error)
                        self._log(f"all scrapes are denied: {error}")
            return self._state

    def _read(self) -> AuthState:
        self._stamp = self._stamps()  # before reading, so that a change in the meantime causes another reading
        config = read_web_config(self._file) if self._file else WebConfig()
        if config.tls is not None:
            self.uses_tls = True
            files = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
            self._files = (self._file, *filter(None, files))
            self._stamp = self._stamps()
        self._credentials = Credentials(self._token, config.users, self._credentials)
        state = AuthState(config, self._credentials, config.tls.context() if config.tls is not None else None)
        required = _requirements(state)
        if removed := sorted(self._required - required):
            raise GpumonError(
                f"{self._file} no longer requires {', '.join(removed)}: restart gpumon export if that is intended"
            )
        self._required = required
        return state

    def _stamps(self) -> _Stamp:
        return tuple(_stamp(file) for file in self._files)


def _requirements(state: AuthState) -> frozenset[str]:
    """Return the kinds of credentials that scrapers must present. Optional certificates do not count."""
    tls = state.config.tls
    checks = {
        _ENCRYPTION: tls is not None,
        _CERTIFICATES: tls is not None and tls.verify_mode is ssl.CERT_REQUIRED,
        _NAMES: tls is not None and bool(tls.allowed_names),
        _CREDENTIALS: state.credentials.is_required,
    }
    return frozenset(name for name, is_required in checks.items() if is_required)


def _stamp(file: str) -> tuple[int, int, int]:
    """Return values that change whenever a file changes, or zeros if it does not exist."""
    try:
        status = os.stat(file)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def has_allowed_name(connection: ssl.SSLSocket, names: tuple[str, ...]) -> bool:
    """Return True if the client's certificate has one of `names`, or if `names` is empty."""
    if not names:
        return True
    certificate = connection.getpeercert() or {}
    actual = {value for entry in certificate.get("subjectAltName", ()) for value in entry[1:]}
    return bool(actual & set(names))
