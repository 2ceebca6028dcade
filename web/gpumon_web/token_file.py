"""The file of named tokens: their names and hashes, never the tokens. Commands change it, and servers read it.

A token has 256 random bits, so that its plain SHA-256 tells nothing about it. Last uses stand in a file of their own,
which servers write: so a command and a server never write the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import open_regular
from gpumon.common.text import clean

TOKENS, USES = "web-tokens", "web-tokens-used"
"""Files in the state directory, mode 0600."""
MOST = 100
"""Tokens that there may be."""
PREFIX = "gpumon_"
"""Begins every token, so that people and scanners of secrets know one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONGEST = 2**18
"""Bytes of a file that are read."""
_VERSION = 1
_PEER = 80


class NamedToken(NamedTuple):
    """A token by its name."""

    name: str
    hash: str
    """SHA-256 of the token, in hexadecimal digits."""
    created: int
    """Seconds since 1970."""

    @property
    def tag(self) -> str:
        """Short name of this very token: another one of the same name has another."""
        return self.hash[:12]


class TokenUse(NamedTuple):
    """The last use of a token."""

    time: int
    """Seconds since 1970."""
    peer: str
    """Address that it came from."""


def hash_of(token: str) -> str:
    """Return the hash by which a token is known."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def read_tokens(path: str) -> list[NamedToken]:
    """Return the tokens in a file, none where there is none. Raises GpumonError for one that is not to be trusted."""
    text = _text_of(path)
    if text is None:
        return []
    try:
        found = json.loads(text)
        rows: Any = found["tokens"] if found["version"] == _VERSION else None
        tokens = [NamedToken(row["name"], row["hash"], int(row["created"])) for row in rows]
        is_whole = all(_NAME.fullmatch(one.name) and _HASH.fullmatch(one.hash) for one in tokens)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        is_whole = False
    if not is_whole:
        raise GpumonError(f"{path} is damaged, or of another version of gpumon: remove it, and add tokens anew")
    return tokens


def add_token(path: str, name: str, now: float) -> str:
    """Add a token of this name, and return it: nobody can read it again. Raises GpumonError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a token cannot be named '{clean(name, 60)}': use 1 to 40 letters, digits, dots, dashes and underscores, "
            "with a letter or a digit first"
        )
    token = PREFIX + secrets.token_urlsafe(32)
    with _changing(path) as tokens:
        if name in {one.name for one in tokens}:
            raise GpumonError(f"there is a token named '{name}': revoke it first, or choose another name")
        if len(tokens) >= MOST:
            raise GpumonError(f"there are {MOST} tokens: revoke one first")
        tokens.append(NamedToken(name, hash_of(token), int(now)))
    return token


def revoke_token(path: str, name: str) -> None:
    """Remove a token: what it opened is closed. Raises GpumonError."""
    with _changing(path) as tokens:
        known = [one.name for one in tokens]
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise GpumonError(f"no such token: '{clean(name, 60)}'; {there}")
        del tokens[known.index(name)]


def read_uses(path: str) -> dict[str, TokenUse]:
    """Return the last use of each token by its tag; of a file that cannot be read, none."""
    found: dict[str, TokenUse] = {}
    with suppress(GpumonError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        for tag, (time, peer) in json.loads(_text_of(path) or "{}").items():
            found[clean(str(tag), 64)] = TokenUse(int(time), clean(str(peer), _PEER))
    return found


def write_uses(path: str, uses: Mapping[str, TokenUse]) -> None:
    """Keep last uses, the newer of two of the same token. Raises OSError."""
    merged = read_uses(path)
    for tag, use in uses.items():
        merged[tag] = max(use, merged.get(tag, use))
    newest = sorted(merged.items(), key=lambda one: one[1].time)[-2 * MOST :]
    _replace(path, json.dumps(dict(newest)))


@contextmanager
def _changing(path: str) -> Iterator[list[NamedToken]]:
    """The tokens, written back where nothing is raised; one command at a time."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise GpumonError(f"cannot lock {path}.lock: {error.strerror or error}") from error
        tokens = read_tokens(path)
        yield tokens
        try:
            _replace(path, json.dumps({"version": _VERSION, "tokens": [one._asdict() for one in tokens]}))
        except OSError as error:
            raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        os.close(lock)


def _text_of(path: str) -> str | None:
    """The text of a file that only its user can read; None where there is none. Raises GpumonError."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpumonError(f"cannot read {path}: {error.strerror or error}") from error
    with os.fdopen(fd, "rb") as opened:
        there = os.fstat(fd)
        if there.st_uid != os.getuid() or stat.S_IMODE(there.st_mode) & 0o077:
            raise GpumonError(f"{path} is not a file that only you can read and write: remove it, and add tokens anew")
        return opened.read(_LONGEST).decode("utf-8", "replace")


def _replace(path: str, text: str) -> None:
    beside = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as opened:
            opened.write(text + "\n")
        os.rename(beside, path)
    except OSError:
        with suppress(OSError):
            os.unlink(beside)
        raise


def names_by_tag(tokens: Sequence[NamedToken]) -> dict[str, str]:
    """Return the name of each token by its tag."""
    return {one.tag: one.name for one in tokens}
