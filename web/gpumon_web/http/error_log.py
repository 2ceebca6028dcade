"""Errors of the server on stderr, at most one of a kind per minute, so that no client can flood the journal."""

from __future__ import annotations

import sys
import time
from asyncio import CancelledError
from logging import ERROR, Handler, LogRecord, getLogger
from threading import Lock

PAUSE = 60.0
KINDS = 100


class ErrorLog:
    """Rate-limited error messages on stderr. Thread-safe."""

    def __init__(self) -> None:
        self._last_written: dict[str, float] = {}
        self._lock = Lock()

    def log(self, kind: str, text: str) -> None:
        """Write `text`, unless a message of this `kind` was written less than a minute ago."""
        now = time.monotonic()
        with self._lock:
            if now - self._last_written.get(kind, -PAUSE) < PAUSE or len(self._last_written) > KINDS:
                return
            self._last_written[kind] = now
        print(text, file=sys.stderr, flush=True)


class _ErrorLogHandler(Handler):
    """Logging handler that writes one line per record. The line contains only the kind of error and no user data."""

    def __init__(self, error_log: ErrorLog) -> None:
        super().__init__(ERROR)
        self._error_log = error_log

    def emit(self, record: LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CancelledError):  # a request that was being answered when the server stopped
            return
        kind = type(error).__name__ if error is not None else str(record.msg)
        self._error_log.log(f"{record.name} {kind}", f"gpumon web: {record.name}: {kind}")


def capture_logger(name: str, error_log: ErrorLog) -> None:
    """Send errors logged by the library `name` to `error_log`, and drop everything else it logs."""
    logger = getLogger(name)
    logger.handlers = [_ErrorLogHandler(error_log)]
    logger.setLevel(ERROR)
    logger.propagate = False
