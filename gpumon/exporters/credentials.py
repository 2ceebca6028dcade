"""Credentials of scrapers: the token, or a name with its password; none where neither is asked for."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from threading import BoundedSemaphore, Lock

from gpumon.errors import MissingPackage

_REMEMBERED = 64
"""Passwords that were right: to check one by bcrypt takes as long as fifty scrapes."""
_NOBODY = "$2b$10$AGShMgVbijdZKrx0Gw7IvuNuKDtN7ybmfR6Mw1VB3WIvWTswQX4Ym"
"""For names that nobody has: an answer to one must take as long."""
_WAITING = 4
"""Checks of passwords that may wait for each other; more are refused, whoever they are."""


class Credentials:
    """Asks for a token or a password; where there are both, either will do. `users`: hashes of bcrypt by name."""

    def __init__(self, token: str = "", users: Mapping[str, str] | None = None) -> None:
        self._token = token.encode()
        self._users = dict(users or {})
        self._check = _checker() if self._users else None
        self._salt = secrets.token_bytes(16)
        self._right: dict[bytes, None] = {}
        self._lock = Lock()
        self._waiting = BoundedSemaphore(_WAITING)

    @property
    def are_asked(self) -> bool:
        """Whether anything is asked for at all."""
        return bool(self._token or self._users)

    @property
    def challenge(self) -> str:
        """The header that says what is asked for."""
        return 'Basic realm="gpumon"' if self._users else "Bearer"

    def lets_in(self, authorization: str) -> bool:
        """Return whether this header is enough."""
        if not self.are_asked:
            return True
        kind, _, given = authorization.strip().partition(" ")
        if kind.lower() == "bearer":
            return bool(self._token) and hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token)
        return kind.lower() == "basic" and bool(self._users) and self._knows(given.strip())

    def _knows(self, given: str) -> bool:
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        if not colon or self._check is None:
            return False
        known = sha256(b"\0".join((self._salt, name.encode(), password.encode()))).digest()
        if known in self._right:
            return True
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            with self._lock:  # one at a time: who guesses takes one core at most
                right = self._check(password, self._users.get(name, _NOBODY)) and name in self._users
        finally:
            self._waiting.release()
        if right:
            if len(self._right) >= _REMEMBERED:
                self._right.clear()
            self._right[known] = None
        return right


def _checker() -> Callable[[str, str], bool]:
    try:
        import bcrypt
    except ImportError as error:
        raise MissingPackage("basic_auth_users", "gpumon[export]") from error

    def check(password: str, hashed: str) -> bool:
        try:
            return bcrypt.checkpw(password.encode(), hashed.encode())
        except ValueError:  # a hash that is none, or a password that is too long for any
            return False

    return check
