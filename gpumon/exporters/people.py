"""Names of users as they leave this machine."""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Callable
from enum import StrEnum

from gpumon.common.privacy import HIDDEN, People
from gpumon.exporters.labels import label_text

_HASH_LETTERS = 12


class UserNames(StrEnum):
    """A policy."""

    NAME = "name"
    UID = "uid"
    HASH = "hash"
    """Of the name: the same on every machine, so that sums over a cluster stay right. Not a secret: who guesses a name
    can check it."""
    OFF = "off"

    def told(self, user: str, uid_of: Callable[[str], str] | None = None) -> str:
        """Return how a user is called; empty for one who is not known."""
        if not user or self is UserNames.OFF:
            return ""
        if self is UserNames.UID:
            return (uid_of or _uid_of)(user)
        if self is UserNames.HASH:
            return hashlib.sha256(user.encode(errors="replace")).hexdigest()[:_HASH_LETTERS]
        return label_text(user)

    def words(self, text: str, user: str) -> str:
        """Return what people wrote, without the name of `user` where users are not told by name."""
        return label_text(text if self is UserNames.NAME else _NAMELESS.words(text, user))


_NAMELESS = People(HIDDEN)


def _uid_of(user: str) -> str:
    """The number of a user; empty where this machine knows none. One without an account here is called by it."""
    if user.isascii() and user.isdigit():
        return user
    try:
        return str(pwd.getpwnam(user).pw_uid)
    except (KeyError, ValueError):
        return ""
