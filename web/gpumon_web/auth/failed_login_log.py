"""Log of failed logins: one line per wrong token, without the token itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.http.error_log import ErrorLog
from gpumon_web.jobs import Inline, Work

FILE = "web-refused.log"
"""File name in the state directory, mode 0600; the previous file has the suffix `.1`."""
LARGEST = 2**20
"""Size in bytes at which the file is rotated."""
BURST, PER_SECOND = 100.0, 5.0
"""Limit on lines written: burst, and lines per second. The next line gives the number of omitted ones."""
_PATH = 80
"""Longest path written, in characters."""


class FailedLoginLog:
    """Writes the log. Thread-safe. An empty `path` disables it."""

    def __init__(
        self, path: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic,
        error_log: ErrorLog | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._work = work or Inline()
        self._clock = clock
        self._error_log = error_log or ErrorLog()
        self._lines = Buckets(BURST, PER_SECOND)
        self._lock = Lock()
        self._omitted = 0

    def log(self, *, peer: str, source: str, path: str, status: int, now: float) -> None:
        """Log a failed login by `peer`; `source` is how the token was sent, such as `form`; `now`: s since 1970."""
        if not self._path:
            return
        with self._lock:
            if not self._lines.allows("", self._clock()):
                self._omitted += 1
                return
            omitted, self._omitted = self._omitted, 0
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        more = f" omitted={omitted}" if omitted else ""
        line = f"{moment} {status} {source} from {_word(peer)} at {_word(path)}{more}\n"
        self._work.ask(append, lambda: (self._path, line))
        message = f"wrong token from {_word(peer)}; {self._path} has each try"
        self._error_log.log("wrong token", f"gpumon web: {message}")


def append(path: str, line: str) -> None:
    """Append a line to the log, rotating it first if it is too large. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        is_full = os.fstat(fd).st_size + len(line) > LARGEST
        if not is_full:
            file.write(line)
    if is_full:
        os.replace(path, f"{path}.1")
        append(path, line)


def _word(text: str) -> str:
    """Escape text from a client into one ASCII word, because other programs parse this log."""
    return ascii(text[:_PATH])[1:-1].replace(" ", "\\x20") or "-"
