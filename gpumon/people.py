"""Names of people as a page may show them: as they are, as a hash that only this server can make, or not at all.

The one place that decides. Whatever reads names (a ring, the ledger, accounts, events) asks the policy in force. It is
in force for a block of code; outside of one, names are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpumon.known_users import KnownUsers

SHOWN, HASHED, HIDDEN = "shown", "hashed", "hidden"
WAYS = (SHOWN, HASHED, HIDDEN)
SOMEBODY = "hidden"
"""In place of a name that is hidden."""
_PREFIX = "user-"
_DIGITS = 10


class People(NamedTuple):
    """A policy for names."""

    way: str = SHOWN
    """One of `WAYS`."""
    salt: bytes = b""
    """Secret of the server: without it nobody can try names until a hash fits."""
    me: str = ""
    """The hash of whoever looks at their own page, where names are hidden."""
    known: KnownUsers | None = None
    """Users whose names are sought in texts of others; without them none are."""

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
        """A text that people wrote, without names of `user` and of known ones, and of anybody in paths of homes."""
        if self.way == SHOWN or not text:
            return text
        from gpumon.known_users import replaced  # names are shown nearly everywhere

        return replaced(text, self._in_text, self.known.names if self.known else frozenset(), user)

    def meet(self, users: Iterable[str]) -> None:
        """Take in users as they are called: from now on their names are sought in texts of others."""
        if self.known is not None:
            self.known.meet(users)

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
