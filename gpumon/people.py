"""Names of people as a page may show them: as they are, as a hash that only this server can make, or not at all.

The one place that decides. Whatever reads names (a ring, the ledger, accounts, events) asks the policy in force. It is
in force for a block of code; outside of one, names are shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

SHOWN, HASHED, HIDDEN = "shown", "hashed", "hidden"
WAYS = (SHOWN, HASHED, HIDDEN)
SOMEBODY = "hidden"
"""In place of a name that is hidden."""
_PREFIX = "user-"
_DIGITS = 10
_HOME = re.compile(r"(/(?:home|Users|data/home|export/home|nfs/home)/)([^/\s:;,'\"]+)")
"""Directories of people in a path."""


class People(NamedTuple):
    """A policy for names."""

    way: str = SHOWN
    """One of `WAYS`."""
    salt: bytes = b""
    """Secret of the server: without it nobody can try names until a hash fits."""
    me: str = ""
    """The hash of whoever looks at their own page, where names are hidden."""

    def name(self, user: str) -> str:
        """The name of a user for whoever looks; an unknown one stays empty."""
        if self.way == SHOWN or not user:
            return user
        alias = self.alias(user)
        return alias if self.way == HASHED or alias == self.me else SOMEBODY

    def alias(self, user: str) -> str:
        """The hash of a name, such as `user-3fa9c1d20b`."""
        import hmac  # OpenSSL takes its time to load, and names are shown nearly everywhere

        return _PREFIX + hmac.new(self.salt, user.encode(), "sha256").hexdigest()[:_DIGITS]

    def words(self, text: str, user: str = "") -> str:
        """A text that people wrote, without the name of `user`, and without names in the paths of homes."""
        if self.way == SHOWN or not text:
            return text
        found = _HOME.sub(lambda part: part[1] + self._in_text(part[2]), text)
        if not user:
            return found
        return re.sub(rf"(?<![^\W_]){re.escape(user)}(?![^\W_])", self._in_text(user), found, flags=re.IGNORECASE)

    def plain(self, value: Any, user: str = "") -> Any:
        """JSON with every text in it as `words` gives it."""
        if self.way == SHOWN:
            return value
        if isinstance(value, str):
            return self.words(value, user)
        if isinstance(value, dict):
            return {self.words(str(key), user): self.plain(one, user) for key, one in value.items()}
        return [self.plain(one, user) for one in value] if isinstance(value, list) else value

    def _in_text(self, user: str) -> str:
        return self.alias(user) if self.way == HASHED else SOMEBODY


EVERYBODY = People()
"""Shows every name as it is."""
_IN_FORCE: ContextVar[People] = ContextVar("people", default=EVERYBODY)


def in_force() -> People:
    """Return the policy that is in force here."""
    return _IN_FORCE.get()


@contextmanager
def under(people: People) -> Iterator[None]:
    """Put a policy in force for a block."""
    token = _IN_FORCE.set(people)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)
