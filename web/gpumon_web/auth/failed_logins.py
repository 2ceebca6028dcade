"""The log of refused tries: a line for each wrong token, without the token."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.http.error_log import Complaints
from gpumon_web.jobs import Inline, Work

FILE = "web-refused.log"
"""In the state directory, mode 0600; the file before it is the same name with `.1`."""
LARGEST = 2**20
"""Bytes of the file, after which a new one begins."""
BURST, PER_SECOND = 100.0, 5.0
"""Lines that are written, at once and each second; the number of those left out stands in the next one."""
_PATH = 80
"""Characters of a path."""


class RefusedTries:
    """Writes the log. Safe to use from several threads. An empty `path` writes none."""

    def __init__(
        self, path: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic,
        complaints: Complaints | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._work = work or Inline()
        self._clock = clock
        self._complaints = complaints or Complaints()
        self._lines = Buckets(BURST, PER_SECOND)
        self._lock = Lock()
        self._omitted = 0

    def note(self, *, peer: str, way: str, path: str, status: int, now: float) -> None:
        """Note a try of `peer` to enter by a `way`, such as `form`, answered with `status`; `now`: s since 1970."""
        if not self._path:
            return
        with self._lock:
            if not self._lines.takes("", self._clock()):
                self._omitted += 1
                return
            omitted, self._omitted = self._omitted, 0
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        more = f" omitted={omitted}" if omitted else ""
        line = f"{moment} {status} {way} from {_word(peer)} at {_word(path)}{more}\n"
        self._work.ask(append, lambda: (self._path, line))
        where = f"wrong token from {_word(peer)}; {self._path} has each try"
        self._complaints.say("wrong token", f"gpumon web: {where}")


def append(path: str, line: str) -> None:
    """Add a line to the log, to a new one where it is too large. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as opened:
        is_full = os.fstat(fd).st_size + len(line) > LARGEST
        if not is_full:
            opened.write(line)
    if is_full:
        os.replace(path, f"{path}.1")
        append(path, line)


def _word(text: str) -> str:
    """Text of whoever asks, as one word of plain ASCII: other programs read this log."""
    return ascii(text[:_PATH])[1:-1].replace(" ", "\\x20") or "-"
