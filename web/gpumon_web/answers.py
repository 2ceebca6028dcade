"""Answers that take long to make: made once for all who ask meanwhile, and kept while they are fresh.

A route that asks for one does not wait for it: it raises `Deferred`, its thread answers others, and the route is
run again once the answer is there (`channel`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import RLock
from typing import Any, NamedTuple

from gpumon_web.work import BusyError

MOST = 16 * 2**20
"""Bytes of answers that are kept, compressed as they are."""
MOST_ANSWERS = 512


class Packed(NamedTuple):
    """An answer as it is sent."""

    body: bytes
    """Compressed; empty when there is no such thing."""
    version: Any = None
    """Says whether it is still true, to whoever made it; None: it must be made anew."""
    unread: str = ""
    """Why it could not be made: what it is of cannot be read now, and may be there; it has no body then."""
    missing: str = ""
    """Why there is no such thing, where that is known; it has no body then."""


UNCHANGED = "unchanged"
"""The result of work that found the known version still true."""
NOTHING = Packed(b"")
"""There is no such thing."""


class Deferred(BaseException):
    """Not an error: the answer is being made. No `except Exception` on the way may take it for one."""

    def __init__(self, job: Future[Packed]) -> None:
        super().__init__()
        self.job = job


class _Kept(NamedTuple):
    answer: Packed
    asked: float


class AnswerCache:
    """Cache of recent answers. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._jobs: dict[Hashable, Future[Packed]] = {}
        self._lock = RLock()

    def get(self, key: Hashable, fresh: float, start: Callable[[Any], Future[Any]]) -> Future[Packed]:
        """The answer of `key`, asked for `fresh` seconds ago at most, or being made.

        `start` begins to make it; it gets the version of the one that is known, or None, and its future has a `Packed`
        or `UNCHANGED`.
        """
        with self._lock:
            now = self._clock()
            known = self._kept.get(key)
            if known is not None and now - known.asked < fresh:
                self._kept.move_to_end(key)
                found: Future[Packed] = Future()
                found.set_result(known.answer)
                return found
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Future()
                begun = start(known.answer.version if known else None)
                begun.add_done_callback(lambda done, job=job: self._done(key, now, done, job))  # type: ignore[misc]
            return job

    def _done(self, key: Hashable, asked: float, done: Future[Any], job: Future[Packed]) -> None:
        error = done.exception()
        with self._lock:
            self._jobs.pop(key, None)
            if error is None:
                known = self._kept.get(key)
                answer = done.result()
                if answer == UNCHANGED:
                    answer = known.answer if known else None
                if answer is None:  # forgotten meanwhile, as others were asked for more
                    error = BusyError("ask again")
                else:
                    self._keep(key, _Kept(answer, asked))
        if error is not None:
            job.set_exception(error)
        else:
            job.set_result(answer)

    def _keep(self, key: Hashable, kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        self._bytes += len(kept.answer.body) - (len(before.answer.body) if before else 0)
        self._kept[key] = kept
        while len(self._kept) > MOST_ANSWERS or (self._bytes > self._most and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.answer.body)
