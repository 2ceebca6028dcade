"""How a server shows the names of users: unchanged, hashed, or hidden together with all texts that users wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SHOWN, HASHED, HIDDEN = "shown", "hashed", "hidden"
WAYS = (SHOWN, HASHED, HIDDEN)
SOMEBODY = "hidden"
"""Stands for a hidden name."""
_USER, _RUN = "user-", "run-"
_DIGITS = 10
_HOME = re.compile(r"/(?:home|Users)/[^/\s]")


def contains_user_name(text: str, user: str) -> bool:
    """Return whether a text contains the name of `user` as a word, or a path in a home directory."""
    if _HOME.search(text):
        return True
    return bool(user) and re.search(rf"(?<![^\W_]){re.escape(user)}(?![^\W_])", text, re.IGNORECASE) is not None


class People(NamedTuple):
    """How to show the names of users."""

    way: str = SHOWN
    """One of `WAYS`."""
    salt: bytes = b""
    """Secret of the server, which prevents finding a name by trying hashes."""
    me: str = ""
    """Hash of the user who views their own page while names are hidden."""

    def name(self, user: str) -> str:
        """Return the name of a user as it is to be shown; empty if the user is unknown."""
        if self.way == SHOWN or not user:
            return user
        alias = self.alias(user)
        return alias if self.way == HASHED or alias == self.me else SOMEBODY

    def alias(self, user: str) -> str:
        """Return a hash of a user's name, such as `user-3fa9c1d20b`."""
        return _USER + self._hash(user)

    def run_id(self, run_id: str) -> str:
        """Return the id of a run as it is to be shown.

        Users choose ids, so if names are hidden this is a hash: `run-3fa9c1d20b`.
        """
        return run_id if self.way == SHOWN or not run_id else _RUN + self._hash(run_id)

    def text(self, text: str) -> str:
        """Return a text that a user wrote, or a path. It is hidden if names are, because it may contain names."""
        return text if self.way == SHOWN or not text else SOMEBODY

    def label(self, label: str) -> str:
        """Return the label of a source. If names are hidden, only its first word, because a file name may follow."""
        return label if self.way == SHOWN else label.partition(" ")[0]

    def _hash(self, text: str) -> str:
        import hmac  # OpenSSL is slow to load, and usually names are shown

        return hmac.new(self.salt, text.encode(errors="replace"), "sha256").hexdigest()[:_DIGITS]


EVERYBODY = People()
"""Shows every name."""
_POLICY: ContextVar[People] = ContextVar("people", default=EVERYBODY)


def current_policy() -> People:
    """Return how to show names now."""
    return _POLICY.get()


@contextmanager
def use_policy(people: People) -> Iterator[None]:
    """Show names in this way during the `with` statement."""
    token = _POLICY.set(people)
    try:
        yield
    finally:
        _POLICY.reset(token)
