"""Named tokens: the file of token hashes, the file of last uses, and lookup in a running server.

`gpumon web token` adds and revokes tokens in the file; the server rereads it when it changes.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import open_regular
from gpumon.common.text import clean
from gpumon_web.http.error_log import Complaints
from gpumon_web.jobs import Inline, Work

TOKENS, USES = "web-tokens", "web-tokens-used"
"""File names in the state directory, mode 0600."""
MOST = 100
"""Maximum number of tokens."""
PREFIX = "gpumon_"
"""Prefix of every token, by which people and secret scanners recognize one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONGEST = 2**18
"""Most bytes read from a file."""
_VERSION = 1
_PEER = 80


class NamedToken(NamedTuple):
    """Name and hash of a token."""

    name: str
    hash: str
    """SHA-256 of the token, in hexadecimal digits."""
    created: int
    """Seconds since 1970."""

    @property
    def tag(self) -> str:
        """Short id of the token; differs between tokens that had the same name."""
        return self.hash[:12]


class TokenUse(NamedTuple):
    """Last use of a token."""

    time: int
    """Seconds since 1970."""
    peer: str
    """Address of the client that used it."""


def hash_of(token: str) -> str:
    """Return the SHA-256 of a token, in hexadecimal digits."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def read_tokens(path: str) -> list[NamedToken]:
    """Return the tokens in a file; an empty list if it does not exist.

    Raises GpumonError if it is damaged, or accessible to other users.
    """
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
    """Create a named token and return it. Only its hash is stored. Raises GpumonError."""
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
    """Remove a token, which also ends the sessions it began. Raises GpumonError."""
    with _changing(path) as tokens:
        known = [one.name for one in tokens]
        if name not in known:
            raise GpumonError(f"no such token: '{clean(name, 60)}'. Tokens: {', '.join(known) or 'none'}")
        del tokens[known.index(name)]


def read_uses(path: str) -> dict[str, TokenUse]:
    """Return the last use of each token, by tag; an empty dict if the file cannot be read."""
    found: dict[str, TokenUse] = {}
    with suppress(GpumonError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        for tag, (time, peer) in json.loads(_text_of(path) or "{}").items():
            found[clean(str(tag), 64)] = TokenUse(int(time), clean(str(peer), _PEER))
    return found


def write_uses(path: str, uses: Mapping[str, TokenUse]) -> None:
    """Merge last uses into the file, keeping the newer one for each token. Raises OSError."""
    merged = read_uses(path)
    for tag, use in uses.items():
        merged[tag] = max(use, merged.get(tag, use))
    newest = sorted(merged.items(), key=lambda one: one[1].time)[-2 * MOST :]
    _replace(path, json.dumps(dict(newest)))


@contextmanager
def _changing(path: str) -> Iterator[list[NamedToken]]:
    """Yield the tokens under a file lock, and write them back unless the block raises. Raises GpumonError."""
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
    """Return the text of a file; None if it does not exist.

    Raises GpumonError if it cannot be read, or is accessible to other users.
    """
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


_LOOK = 2.0
"""Seconds between checks of the file."""
_SOON = 0.2
"""Seconds between checks of the file after an unknown token, which may have been added just now."""
_KEEP = 60.0
"""Seconds between writes of last uses."""
_PATIENCE = 0.5
"""Seconds to wait for such a check."""
_MAX_TOKEN_LENGTH = 200
"""Longest token accepted, in characters."""


class NamedTokens:
    """Named tokens of a running server. Thread-safe. With an empty `path` there are none."""

    def __init__(
        self, path: str = "", uses: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic,
        complaints: Complaints | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._uses_path = uses
        self._work = work or Inline()
        self._clock = clock
        self._complaints = complaints or Complaints()
        self._lock = Lock()
        self._tokens: tuple[NamedToken, ...] = ()
        self._stamp: Any = None
        self._looked = -_LOOK
        self._used: dict[str, TokenUse] = {}
        self._kept = -_KEEP
        self.changes = 0
        """Number of changes of the tokens. Permissions granted before the last one must be checked again."""
        if path:
            self._read()

    def find(self, given: str) -> NamedToken | None:
        """Return the named token that matches; None if there is none."""
        if not self._path or not 0 < len(given) <= _MAX_TOKEN_LENGTH:
            return None
        looked = self._look(_LOOK)
        found = self._find(given)
        if found is None:
            looked = looked or self._look(_SOON)
            if looked is not None:
                with suppress(TimeoutError):
                    looked.result(_PATIENCE)
                found = self._find(given)
        return found

    def is_there(self, tag: str) -> bool:
        """Whether the token with this tag still exists."""
        if self._path:
            self._look(_LOOK)
        return any(one.tag == tag for one in self._tokens)

    def note_use(self, token: NamedToken, peer: str, now: float) -> None:
        """Record the use of a token at `now` (s since 1970). Uses are written once a minute."""
        when = self._clock()
        with self._lock:
            self._used[token.tag] = TokenUse(int(now), peer)
            if not self._uses_path or when - self._kept < _KEEP:
                return
            self._kept = when
            used, self._used = self._used, {}
        self._work.ask(write_uses, lambda: (self._uses_path, used))

    def _find(self, given: str) -> NamedToken | None:
        """Compare with every token in constant time, so that timing reveals nothing."""
        hashed, found = hash_of(given), None
        for one in self._tokens:
            if hmac.compare_digest(hashed, one.hash):
                found = one
        return found

    def _look(self, pause: float) -> Future[Any] | None:
        now = self._clock()
        if now - self._looked < pause:
            return None
        self._looked = now
        return self._work.ask(self._read, tuple)

    def _read(self) -> None:
        stamp = None
        with suppress(OSError):
            there = os.stat(self._path, follow_symlinks=False)
            stamp = (there.st_ino, there.st_mtime_ns, there.st_size, there.st_mode, there.st_uid)
        if stamp == self._stamp:
            return
        try:
            found = tuple(read_tokens(self._path))
        except GpumonError as error:  # a file that cannot be trusted grants no access
            found = ()
            self._complaints.say("named tokens", f"gpumon web: {error}")
        with self._lock:
            self._stamp = stamp
            self._tokens = found
            self.changes += 1
