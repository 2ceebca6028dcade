"""Policy for user names on a server. Names are shown, hashed, or hidden. Hiding also applies to all strings that users
wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

SHOWN, HASHED, HIDDEN = "shown", "hashed", "hidden"
WAYS = (SHOWN, HASHED, HIDDEN)
SOMEBODY = "hidden"
"""Name that is shown in place of a hidden name."""
_USER, _RUN = "user-", "run-"
_DIGITS = 10
_HOME = re.compile(r"/(?:home|Users)/[^/\s]")


def contains_user_name(text: str, user: str) -> bool:
    """Return whether a string contains the name of `user` as a word, or a path in a home directory."""
    if _HOME.search(text):
        return True
    return bool(user) and re.search(rf"(?<![^\W_]){re.escape(user)}(?![^\W_])", text, re.IGNORECASE) is not None


class People(NamedTuple):
    """The policy for showing user names."""

    way: str = SHOWN
    """How names are shown: one of `WAYS`."""
    salt: bytes = b""
    """The server's secret. Without the secret, a name cannot be found by hashing guesses."""
    me: str = ""
    """Hash of the viewer's own name, which is shown even while names are hidden. Empty on other pages."""

    def name(self, user: str) -> str:
        """Return the name to show for a user; empty if `user` is empty."""
        if self.way == SHOWN or not user:
            return user
        alias = self.alias(user)
        return alias if self.way == HASHED or alias == self.me else SOMEBODY

    def alias(self, user: str) -> str:
        """Return a hash of a user's name, such as `user-3fa9c1d20b`."""
        return _USER + self._hash(user)

    def run_id(self, run_id: str) -> str:
        """Return the id to show for a run.

        Users choose the ids of runs. So unless names are shown, this is a hash such as `run-3fa9c1d20b`.
        """
        return run_id if self.way == SHOWN or not run_id else _RUN + self._hash(run_id)

    def text(self, text: str) -> str:
        """Return the text to show for a string that a user wrote, or for a path.

        It is hidden unless names are shown.
        """
        return text if self.way == SHOWN or not text else SOMEBODY

    def label(self, label: str) -> str:
        """Return the label to show for a source.

        Unless names are shown, this is only the first word of the label, because a file name may follow.
        """
        return label if self.way == SHOWN else label.partition(" ")[0]

    def _hash(self, text: str) -> str:
        import hmac  # slow to load, and not needed while names are shown

        return hmac.new(self.salt, text.encode(errors="replace"), "sha256").hexdigest()[:_DIGITS]


EVERYBODY = People()
"""Policy that shows all names."""
_POLICY: ContextVar[People] = ContextVar("people", default=EVERYBODY)


def current_policy() -> People:
    """Return the policy that is currently in use."""
    return _POLICY.get()


@contextmanager
def use_policy(people: People) -> Iterator[None]:
    """Use this policy within the `with` statement."""
    token = _POLICY.set(people)
    try:
        yield
    finally:
        _POLICY.reset(token)
