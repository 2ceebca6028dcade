"""Sessions of signed-in browsers: beginning them, and ending one or all of them.

A cookie contains its session's id and is validated by its signature alone. A small file has a line for each session
begun or ended. Both the server and `gpumon web --end-session` append to it; the server rewrites it when it gets too
large.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from gpumon.common.paths import read_regular
from gpumon.common.text import clean
from gpumon_web.jobs import Inline, Work

FILE = "web-sessions"
LONGEST = 7 * 86400
"""Seconds after which a session expires even if it is in use."""
LASTS = 12 * 3600
"""Seconds without a request after which a session expires."""
ALL = "all"
"""Session id that stands for every session begun so far."""
_LOOK = 2.0
"""Seconds between checks of the file."""
_MOST = 2**20
"""File size in bytes above which it is rewritten without expired sessions."""
_KEPT = 4096
"""Ended sessions remembered by id. Dropping the oldest also ends every session that began no later than it ended."""


class Session(NamedTuple):
    """Session of a signed-in browser."""

    id: str
    begun: int
    """Seconds since 1970."""
    seen: int
    """When its cookie was last set; seconds since 1970."""


def new_id(tag: str = "") -> str:
    """Return a new session id: hexadecimal digits, then `@tag` for a session of a named token.

    Hexadecimal, because an id beginning with "-" would be parsed as a command-line option.
    """
    return secrets.token_hex(6) + (f"@{tag}" if tag else "")


def tag_of(session: str) -> str:
    """Return the tag of the named token in a session id; empty if it has none."""
    return session.partition("@")[2]


class SessionEvent(NamedTuple):
    """One line of the file: a session that began or ended."""

    is_end: bool
    id: str
    time: int
    peer: str
    """Address that signed in; empty for an end."""


class Sessions:
    """The sessions file, reread when it changes. Thread-safe. With an empty `path` nothing is stored."""

    def __init__(self, path: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._work = work or Inline()
        self._clock = clock
        self._lock = Lock()
        self._looked = -_LOOK
        self._stamp: tuple[int, ...] = ()
        self._ended: dict[str, int] = {}
        self._all_ended = 0
        self.ended = 0
        """Number of session ends seen so far."""

    def begin(self, peer: str, now: float, tag: str = "") -> Session:
        """Begin a session; `tag` is that of the named token used, empty for the printed token."""
        found = Session(new_id(tag), int(now), int(now))
        self._append(SessionEvent(False, found.id, found.begun, peer))
        return found

    def end(self, session: Session, now: float) -> None:
        """End a session; it stays ended after a restart of the server."""
        with self._lock:
            self._note(session.id, int(now))
        self._append(SessionEvent(True, session.id, int(now), ""))

    def is_over(self, session: Session, now: float) -> bool:
        """Whether a session was ended or has expired, by age or by inactivity."""
        self._look()
        # Tolerate a clock that was set back by up to a minute.
        if not (-60 <= now - session.seen <= LASTS and -60 <= now - session.begun <= LONGEST):
            return True
        with self._lock:
            return session.id in self._ended or session.begun <= self._all_ended

    def _look(self) -> None:
        now = self._clock()
        if not self._path or now - self._looked < _LOOK:
            return
        self._looked = now
        self._work.ask(self._read, tuple)

    def _read(self) -> None:
        try:
            there = os.stat(self._path)
        except OSError:
            return
        stamp = (there.st_ino, there.st_mtime_ns, there.st_size)
        if stamp == self._stamp:
            return
        found = read(self._path)
        self._stamp = stamp
        with self._lock:
            for line in found:
                if line.is_end:
                    self._note(line.id, line.time)
        if there.st_size > _MOST:
            shorten(self._path, time.time())

    def _note(self, ended: str, now: int) -> None:
        self.ended += 1
        if ended == ALL:
            self._all_ended = max(self._all_ended, now)
            return
        self._ended[ended] = now
        while len(self._ended) > _KEPT:
            oldest = next(iter(self._ended))
            self._all_ended = max(self._all_ended, self._ended.pop(oldest))

    def _append(self, line: SessionEvent) -> None:
        if self._path:
            self._work.ask(append, lambda: (self._path, line))


def append(path: str, line: SessionEvent) -> None:
    """Append a line to the file, creating it with mode 0600. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        opened.write(_text(line))


def read(path: str) -> list[SessionEvent]:
    """Return the valid lines of the file; an empty list if it cannot be read."""
    try:
        text = read_regular(path, 16 * _MOST).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for each in text.splitlines() if (line := _line(each)) is not None]


def shorten(path: str, now: float) -> None:
    """Rewrite the file without lines older than `LONGEST`. Raises OSError."""
    kept = [line for line in read(path) if now - line.time <= LONGEST]
    beside = f"{path}.{os.getpid()}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        opened.writelines(_text(line) for line in kept[-2 * _KEPT :])
    os.rename(beside, path)


def open_ones(lines: list[SessionEvent], now: float) -> list[SessionEvent]:
    """Return the lines that began sessions which are neither ended nor older than `LONGEST`, oldest first."""
    ended = {line.id for line in lines if line.is_end}
    all_ended = max((line.time for line in lines if line.is_end and line.id == ALL), default=0)
    return [
        line for line in lines
        if not line.is_end and line.id not in ended and line.time > all_ended and now - line.time <= LONGEST
    ]  # fmt: skip


def _text(line: SessionEvent) -> str:
    return f"{'ended' if line.is_end else 'begun'} {line.id} {line.time} {line.peer}".rstrip() + "\n"


def _line(text: str) -> SessionEvent | None:
    kind, _, rest = text.partition(" ")
    named, _, rest = rest.partition(" ")
    when, _, peer = rest.partition(" ")
    if kind not in ("begun", "ended") or not named or not (when.isascii() and when.isdigit() and len(when) < 12):
        return None
    return SessionEvent(kind == "ended", named, int(when), clean(peer, 80))
