"""Names of people as a server shows them: as they are, hashed, or hidden together with all that people wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SHOWN, HASHED, HIDDEN = "shown", "hashed", "hidden"
WAYS = (SHOWN, HASHED, HIDDEN)
SOMEBODY = "hidden"
"""In place of a name that is hidden."""
_USER, _RUN = "user-", "run-"
_DIGITS = 10
_HOME = re.compile(r"/(?:home|Users)/[^/\s]")


def names_somebody(text: str, user: str) -> bool:
    """Whether a text has the name of `user` as a word in it, or a path below a home directory."""
    if _HOME.search(text):
        return True
    return bool(user) and re.search(rf"(?<![^\W_]){re.escape(user)}(?![^\W_])", text, re.IGNORECASE) is not None


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
        return _USER + self._hash(user)

    def run_id(self, run_id: str) -> str:
        """The id of a run, which people choose: where names are not shown a hash, such as `run-3fa9c1d20b`."""
        return run_id if self.way == SHOWN or not run_id else _RUN + self._hash(run_id)

    def text(self, text: str) -> str:
        """A text that people wrote, or a path: hidden where names are not shown, since anybody may be named in it."""
        return text if self.way == SHOWN or not text else SOMEBODY

    def label(self, label: str) -> str:
        """The label of a source; where names are not shown only its first word, as a file may be named behind it."""
        return label if self.way == SHOWN else label.partition(" ")[0]

    def _hash(self, text: str) -> str:
        import hmac  # OpenSSL takes its time to load, and names are shown nearly everywhere

        return hmac.new(self.salt, text.encode(errors="replace"), "sha256").hexdigest()[:_DIGITS]


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
