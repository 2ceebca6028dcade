"""Errors of the server on stderr, at most one of a kind per minute, so that no client can flood the journal."""

from __future__ import annotations

import sys
import time
from logging import ERROR, Handler, LogRecord, getLogger
from threading import Lock

PAUSE = 60.0
KINDS = 100


class Complaints:
    """Rate-limited error messages on stderr. Thread-safe."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._lock = Lock()

    def say(self, kind: str, text: str) -> None:
        """Write `text`, unless a message of this `kind` was written less than a minute ago."""
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(kind, -PAUSE) < PAUSE or len(self._said) > KINDS:
                return
            self._said[kind] = now
        print(text, file=sys.stderr, flush=True)


class _ComplaintHandler(Handler):
    """Logging handler that writes one line per record: only the kind of error, without data of users."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__(ERROR)
        self._complaints = complaints

    def emit(self, record: LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else str(record.msg)
        self._complaints.say(f"{record.name} {kind}", f"gpumon web: {record.name}: {kind}")


def listen_to(name: str, complaints: Complaints) -> None:
    """Send errors logged by the library `name` to `complaints`, and drop everything else it logs."""
    logger = getLogger(name)
    logger.handlers = [_ComplaintHandler(complaints)]
    logger.setLevel(ERROR)
    logger.propagate = False
