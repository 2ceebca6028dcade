"""Credentials of scrapers: the token, or a name with its password; none where neither is asked for."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock

from gpumon.common.errors import GpumonError, MissingPackage

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
