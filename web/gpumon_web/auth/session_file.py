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
_CHECK_INTERVAL = 2.0
"""Seconds between checks of the file."""
_MAX_BYTES = 2**20
"""File size in bytes above which it is rewritten without expired sessions."""
_MAX_ENDED = 4096
"""Ended sessions remembered by id. Dropping the oldest also ends every session that began before it ended."""


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
        self._checked_at = -_CHECK_INTERVAL
        self._stamp: tuple[int, ...] = ()
        self._ended: dict[str, int] = {}
        self._all_ended = 0

    def begin(self, peer: str, now: float, tag: str = "") -> Session:
        """Begin a session; `tag` is the tag of the named token used, empty for the printed token."""
        session = Session(new_id(tag), int(now), int(now))
        self._append(SessionEvent(False, session.id, session.begun, peer))
        return session

    def end(self, session: Session, now: float) -> None:
        """End a session; it stays ended after a restart of the server."""
        with self._lock:
            self._add_end(session.id, int(now))
        self._append(SessionEvent(True, session.id, int(now), ""))

    def is_over(self, session: Session, now: float) -> bool:
        """Whether a session was ended or has expired, by age or by inactivity."""
        self._check_file()
        # Tolerate a clock that was set back by up to a minute.
        if not (-60 <= now - session.seen <= LASTS and -60 <= now - session.begun <= LONGEST):
            return True
        with self._lock:
            return session.id in self._ended or session.begun <= self._all_ended

    def _check_file(self) -> None:
        now = self._clock()
        if not self._path or now - self._checked_at < _CHECK_INTERVAL:
            return
        self._checked_at = now
        self._work.ask(self._read, tuple)

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
        except OSError:
            return
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        events = read(self._path)
        self._stamp = stamp
        with self._lock:
            for event in events:
                if event.is_end:
                    self._add_end(event.id, event.time)
        if status.st_size > _MAX_BYTES:
            shorten(self._path, time.time())

    def _add_end(self, session_id: str, now: int) -> None:
        if session_id == ALL:
            self._all_ended = max(self._all_ended, now)
            return
        self._ended[session_id] = now
        while len(self._ended) > _MAX_ENDED:
            oldest = next(iter(self._ended))
            self._all_ended = max(self._all_ended, self._ended.pop(oldest))

    def _append(self, line: SessionEvent) -> None:
        if self._path:
            self._work.ask(append, lambda: (self._path, line))


def append(path: str, line: SessionEvent) -> None:
    """Append a line to the file, creating it with mode 0600. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(_text(line))


def read(path: str) -> list[SessionEvent]:
    """Return the valid lines of the file; an empty list if it cannot be read."""
    try:
        text = read_regular(path, 16 * _MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [event for text_line in text.splitlines() if (event := _line(text_line)) is not None]


def shorten(path: str, now: float) -> None:
    """Rewrite the file without lines older than `LONGEST`. Raises OSError."""
    recent = [event for event in read(path) if now - event.time <= LONGEST]
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.writelines(_text(event) for event in recent[-2 * _MAX_ENDED :])
    os.rename(temporary, path)


def open_sessions(lines: list[SessionEvent], now: float) -> list[SessionEvent]:
    """Return the lines that began sessions which are neither ended nor older than `LONGEST`, oldest first."""
    ended = {event.id for event in lines if event.is_end}
    all_ended = max((event.time for event in lines if event.is_end and event.id == ALL), default=0)
    return [
        event for event in lines
        if not event.is_end and event.id not in ended and event.time > all_ended and now - event.time <= LONGEST
    ]  # fmt: skip


def _text(line: SessionEvent) -> str:
    return f"{'ended' if line.is_end else 'begun'} {line.id} {line.time} {line.peer}".rstrip() + "\n"


def _line(text: str) -> SessionEvent | None:
    kind, _, rest = text.partition(" ")
    session_id, _, rest = rest.partition(" ")
    seconds, _, peer = rest.partition(" ")
    if (
        kind not in ("begun", "ended")
        or not session_id
        or not (seconds.isascii() and seconds.isdigit() and len(seconds) < 12)
    ):
        return None
    return SessionEvent(kind == "ended", session_id, int(seconds), clean(peer, 80))
