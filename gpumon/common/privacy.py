"""Users that a server has met, and their names as they stand in texts that others wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

MOST = 4096
"""Names that are kept: those met first. A stranger's file may have any number of them."""
LONGEST = 128
"""Characters of a name; a longer one is of no account."""
_SHORT = 2
"""Letters of a name that is sought between spaces and punctuation alone: `lr_max` is not of the user `lr`."""
_NOBODY = frozenset(("", "root"))
"""Names that tell nobody: every machine has the administrator, and many a parameter is called `data_root`."""
_PEOPLE = range(1000, 65534)
"""Numbers of the accounts of people: those below are of services, and the last ones of nobody."""
_HOME = r"(?P<above>/(?:home|Users|data/home|export/home|nfs/home)/)(?P<home>[^/\s:;,'\"]+)"
"""Directories of people in a path."""


class KnownUsers:
    """Names of users, which grow in number as they are met. Safe to use from several threads, and sent to others."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: frozenset[str] = frozenset()
        """Those that are sought in texts: a number is none, it would be found in many a text."""
        self._lock = Lock()
        self.meet(names)

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownUsers, (self.names,)

    def meet(self, names: Iterable[str]) -> None:
        """Take in the names of some users."""
        found = {name for name in names if name not in self.names} - _NOBODY
        new = sorted(name for name in found if len(name) <= LONGEST and not name.isdigit())
        if not new:
            return
        with self._lock:
            self.names = self.names.union(new[: max(0, MOST - len(self.names))])


def local_accounts(passwd: str = "/etc/passwd") -> list[str]:
    """Return the names of people with an account of this machine itself; none where its list cannot be read."""
    found = []
    try:
        with open(passwd, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, uid, *_ = [*line.split(":"), "", "", ""]
                if uid.isdecimal() and int(uid) in _PEOPLE:
                    found.append(name)
    except OSError:
        pass  # a container may have none
    return found


def replaced(text: str, told: Callable[[str], str], names: frozenset[str], own: str = "") -> str:
    """Return a text with what is `told` in place of the names, of `own`, and of whoever's home is in a path."""
    if own in names and len(own) > _SHORT:
        own = ""  # it is sought anyway: one pattern is of all users
    pattern = _pattern(names, own)

    def alias(found: re.Match[str]) -> str:
        if found["home"]:
            return found["above"] + told(found["home"])
        name = found[0]
        return told(_as_met(names, own).get(name.lower(), name))

    return pattern.sub(alias, text)


@lru_cache(maxsize=64)
def _pattern(names: frozenset[str], own: str) -> re.Pattern[str]:
    """All that is sought, in one pattern: what took the place of a name is not searched again."""
    long = {name for name in names if len(name) > _SHORT}
    return re.compile(
        rf"{_HOME}|(?<![^\W_])(?i:{_any_of(long | ({own} if own else set()))})(?![^\W_])"
        rf"|(?<!\w)(?i:{_any_of(names - long)})(?!\w)"
    )


def _any_of(names: Iterable[str]) -> str:
    """A pattern of any of some names: by first letter, so that few are tried at a place, the longest of them first."""
    by_letter: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (-len(name), name)):
        small = name[0].lower()
        by_letter.setdefault(small if len(small) == 1 else name[0], []).append(re.escape(name[1:]))
    return "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in by_letter.items()) or r"(?!)"


@lru_cache(maxsize=64)
def _as_met(names: frozenset[str], own: str) -> dict[str, str]:
    """The names by how they are in small letters; that of `own` comes first."""
    return {**{name.lower(): name for name in sorted(names)}, **({own.lower(): own} if own else {})}


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
