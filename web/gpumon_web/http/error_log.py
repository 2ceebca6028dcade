"""Errors of ours on stderr, each kind once a minute: whoever can cause one must not fill the journal with it."""

from __future__ import annotations

import sys
import time
from logging import ERROR, Handler, LogRecord, getLogger
from threading import Lock

PAUSE = 60.0
KINDS = 100


class Complaints:
    """Says what went wrong. Safe to use from several threads."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._lock = Lock()

    def say(self, kind: str, text: str) -> None:
        """Write `text`, unless something of this `kind` was written less than a minute ago."""
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(kind, -PAUSE) < PAUSE or len(self._said) > KINDS:
                return
            self._said[kind] = now
        print(text, file=sys.stderr, flush=True)


class _ComplaintHandler(Handler):
    """Turns a library's log records into one line each, without other users' data."""

    def __init__(self, complaints: Complaints) -> None:
        super().__init__(ERROR)
        self._complaints = complaints

    def emit(self, record: LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error is not None else str(record.msg)
        self._complaints.say(f"{record.name} {kind}", f"gpumon web: {record.name}: {kind}")


def listen_to(name: str, complaints: Complaints) -> None:
    """Say errors that the library `name` logs here, and nothing else of what it logs."""
    logger = getLogger(name)
    logger.handlers = [_ComplaintHandler(complaints)]
    logger.setLevel(ERROR)
    logger.propagate = False
