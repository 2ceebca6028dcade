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
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import Inline, Work

TOKENS, USES = "web-tokens", "web-tokens-used"
"""File names in the state directory, mode 0600."""
MOST = 100
"""Maximum number of tokens."""
PREFIX = "gpumon_"
"""Prefix of every token, by which people and secret scanners recognize one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_BYTES = 2**18
"""Maximum number of bytes read from a file."""
_VERSION = 1
_MAX_PEER_LENGTH = 80


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
    text = _read_private_file(path)
    if text is None:
        return []
    try:
        document = json.loads(text)
        rows: Any = document["tokens"] if document["version"] == _VERSION else None
        tokens = [NamedToken(row["name"], row["hash"], int(row["created"])) for row in rows]
        is_whole = all(_NAME.fullmatch(token.name) and _HASH.fullmatch(token.hash) for token in tokens)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        is_whole = False
    if not is_whole:
        raise GpumonError(f"{path} is damaged, or from another version of gpumon: remove it, and add the tokens again")
    return tokens


def add_token(path: str, name: str, now: float) -> str:
    """Create a named token and return it. Only its hash is stored. Raises GpumonError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a token cannot be named '{clean(name, 60)}': use 1 to 40 letters, digits, dots, dashes and underscores, "
            "with a letter or a digit first"
        )
    token = PREFIX + secrets.token_urlsafe(32)
    with _edit_tokens(path) as tokens:
        if name in {existing.name for existing in tokens}:
            raise GpumonError(f"there is a token named '{name}': revoke it first, or choose another name")
        if len(tokens) >= MOST:
            raise GpumonError(f"there are {MOST} tokens: revoke one first")
        tokens.append(NamedToken(name, hash_of(token), int(now)))
    return token


def revoke_token(path: str, name: str) -> None:
    """Remove a token, which also ends the sessions it began. Raises GpumonError."""
    with _edit_tokens(path) as tokens:
        names = [token.name for token in tokens]
        if name not in names:
            raise GpumonError(f"no such token: '{clean(name, 60)}'. Tokens: {', '.join(names) or 'none'}")
        del tokens[names.index(name)]


def read_uses(path: str) -> dict[str, TokenUse]:
    """Return the last use of each token, by tag; an empty dict if the file cannot be read."""
    uses: dict[str, TokenUse] = {}
    with suppress(GpumonError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        for tag, (time, peer) in json.loads(_read_private_file(path) or "{}").items():
            uses[clean(str(tag), 64)] = TokenUse(int(time), clean(str(peer), _MAX_PEER_LENGTH))
    return uses


def write_uses(path: str, uses: Mapping[str, TokenUse]) -> None:
    """Merge last uses into the file, keeping the newer one for each token. Raises OSError."""
    merged = read_uses(path)
    for tag, use in uses.items():
        merged[tag] = max(use, merged.get(tag, use))
    newest = sorted(merged.items(), key=lambda entry: entry[1].time)[-2 * MOST :]
    _replace(path, json.dumps(dict(newest)))


@contextmanager
def _edit_tokens(path: str) -> Iterator[list[NamedToken]]:
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
            _replace(path, json.dumps({"version": _VERSION, "tokens": [token._asdict() for token in tokens]}))
        except OSError as error:
            raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        os.close(lock)


def _read_private_file(path: str) -> str | None:
    """Return the text of a file; None if it does not exist.

    Raises GpumonError if it cannot be read, or is accessible to other users.
    """
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpumonError(f"cannot read {path}: {error.strerror or error}") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise GpumonError(
                f"{path} must be a regular file that only you can read and write (mode 0600): "
                "remove it, and add the tokens again"
            )
        return file.read(_MAX_BYTES).decode("utf-8", "replace")


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def names_by_tag(tokens: Sequence[NamedToken]) -> dict[str, str]:
    """Return the name of each token by its tag."""
    return {token.tag: token.name for token in tokens}


_CHECK_INTERVAL = 2.0
"""Seconds between checks of the file."""
_RECHECK_INTERVAL = 0.2
"""Seconds between checks of the file after an unknown token, which may have been added just now."""
_WRITE_INTERVAL = 60.0
"""Seconds between writes of last uses."""
_MAX_TOKEN_LENGTH = 200
"""Longest token accepted, in characters."""


class NamedTokens:
    """Named tokens of a running server. Thread-safe. With an empty `path` there are none."""

    def __init__(
        self, path: str = "", uses: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic,
        error_log: ErrorLog | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._uses_path = uses
        self._work = work or Inline()
        self._clock = clock
        self._error_log = error_log or ErrorLog()
        self._lock = Lock()
        self._tokens: tuple[NamedToken, ...] = ()
        self._stamp: Any = None
        self._checked_at = -_CHECK_INTERVAL
        self._check: Future[Any] | None = None
        self._unwritten: dict[str, TokenUse] = {}
        self._written_at = -_WRITE_INTERVAL
        if path:
            self._read()

    def find(self, token: str) -> NamedToken | None:
        """Return the named token whose hash matches `token`; None if there is none."""
        if not self._path or not 0 < len(token) <= _MAX_TOKEN_LENGTH:
            return None
        self._check_file(_CHECK_INTERVAL)
        return self._find(token)

    def check_for(self, token: str) -> Future[Any] | None:
        """Return the check of the file after which an unknown token may be known; None if none is due."""
        if not self._path or not 0 < len(token) <= _MAX_TOKEN_LENGTH:
            return None
        return self._check_file(_RECHECK_INTERVAL)

    def exists(self, tag: str) -> bool:
        """Whether the token with this tag still exists."""
        if self._path:
            self._check_file(_CHECK_INTERVAL)
        return any(token.tag == tag for token in self._tokens)

    def record_use(self, token: NamedToken, peer: str, now: float) -> None:
        """Record the use of a token at `now` (s since 1970). Uses are written once a minute."""
        monotonic = self._clock()
        with self._lock:
            self._unwritten[token.tag] = TokenUse(int(now), peer)
            if not self._uses_path or monotonic - self._written_at < _WRITE_INTERVAL:
                return
            self._written_at = monotonic
            uses, self._unwritten = self._unwritten, {}
        self._work.ask(write_uses, lambda: (self._uses_path, uses))

    def _find(self, token: str) -> NamedToken | None:
        """Compare with every token in constant time, so that timing reveals nothing."""
        digest, match = hash_of(token), None
        for candidate in self._tokens:
            if hmac.compare_digest(digest, candidate.hash):
                match = candidate
        return match

    def _check_file(self, pause: float) -> Future[Any] | None:
        """Return the check in progress, or start one if the last began `pause` seconds ago; else None."""
        now = self._clock()
        if self._check is not None and not self._check.done():
            return self._check
        if now - self._checked_at < pause:
            return None
        self._checked_at = now
        self._check = self._work.ask(self._read, tuple)
        return self._check

    def _read(self) -> None:
        stamp = None
        with suppress(OSError):
            status = os.stat(self._path, follow_symlinks=False)
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid)
        if stamp == self._stamp:
            return
        try:
            tokens = tuple(read_tokens(self._path))
        except GpumonError as error:  # a file that cannot be trusted grants no access
            tokens = ()
            self._error_log.log("named tokens", f"gpumon web: {error}")
        with self._lock:
            self._stamp = stamp
            self._tokens = tokens
