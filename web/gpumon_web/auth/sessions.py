"""Sessions of signed-in browsers, and their ends: of one browser or all, by its user or from the shell.

A cookie names its session, and is valid by its signature alone. A small file keeps a line for each session that began
or was ended; the server and `gpumon web --end-session` both append to it, and the server rewrites it when it
grows too long.
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
"""Seconds after which a session ends, however much it is used."""
LASTS = 12 * 3600
"""Seconds without a request after which it ends."""
ALL = "all"
"""Ends every session that has begun by now."""
_LOOK = 2.0
"""Seconds between looks at the file."""
_MOST = 2**20
"""Bytes of the file from which on it is rewritten without what is over."""
_KEPT = 4096
"""Ends that are remembered by name; of more of them the oldest end all that began no later."""


class Session(NamedTuple):
    """A browser that has signed in."""

    id: str
    begun: int
    """Seconds since 1970."""
    seen: int
    """When its cookie was given or renewed, the same."""


def new_id(tag: str = "") -> str:
    """Return the name of a session: of hexadecimal digits, because one that began with "-" would read as an option.

    One that a named token began has the `tag` of that token behind them.
    """
    return secrets.token_hex(6) + (f"@{tag}" if tag else "")


def tag_of(session: str) -> str:
    """Return the tag of the named token that began a session, by its id; empty where none did."""
    return session.partition("@")[2]


class SessionEvent(NamedTuple):
    """A line of the file."""

    is_end: bool
    id: str
    time: int
    peer: str
    """Address that it signed in from."""


class Sessions:
    """The file, read now and then. Safe to use from several threads. An empty `path` keeps nothing."""

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
        """Times that a session was ended."""

    def begin(self, peer: str, now: float, tag: str = "") -> Session:
        """A new session of somebody who has shown the token, or a named one with this `tag`."""
        found = Session(new_id(tag), int(now), int(now))
        self._append(SessionEvent(False, found.id, found.begun, peer))
        return found

    def end(self, session: Session, now: float) -> None:
        """End one from now on, also when the server starts again."""
        with self._lock:
            self._note(session.id, int(now))
        self._append(SessionEvent(True, session.id, int(now), ""))

    def is_over(self, session: Session, now: float) -> bool:
        """Whether it has been ended, or has lasted or been silent for too long."""
        self._look()
        # A clock that was put back a little is forgiven.
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
    """Add a line to the file, made with mode 0600 when there is none. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        opened.write(_text(line))


def read(path: str) -> list[SessionEvent]:
    """The lines of the file that can be understood; none where there is no file."""
    try:
        text = read_regular(path, 16 * _MOST).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for each in text.splitlines() if (line := _line(each)) is not None]


def shorten(path: str, now: float) -> None:
    """Rewrite the file without sessions that are over by themselves. Raises OSError."""
    kept = [line for line in read(path) if now - line.time <= LONGEST]
    beside = f"{path}.{os.getpid()}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        opened.writelines(_text(line) for line in kept[-2 * _KEPT :])
    os.rename(beside, path)


def open_ones(lines: list[SessionEvent], now: float) -> list[SessionEvent]:
    """The begins of sessions that may still go on, oldest first."""
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
