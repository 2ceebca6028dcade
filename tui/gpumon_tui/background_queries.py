"""Slow queries answered by a background thread, with the last answer cached for immediate drawing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from gpumon.common.errors import GpumonError

T = TypeVar("T")

ACTIVE_VALID_FOR = 10.0
"""Seconds for which answers about active runs stay valid; the daemon writes its ledger at the same interval."""
RETRY = 2.0
"""Seconds before a failed query is repeated. Without this pause a missing ledger would keep a core busy."""
_MIN_VALID_FACTOR = 20.0
"""An answer stays valid for at least this multiple of the time its query took, so that slow queries do not keep a
core busy.
"""
_MAX_ANSWERS = 256
"""Maximum number of cached answers; the least recently requested are dropped."""


class Answer(NamedTuple, Generic[T]):
    """Result of a query, or the reason why there is none."""

    result: T | None
    """None while there is no result."""
    problem: str = ""
    """Why there is no result."""
    expires: float = -1.0
    """Monotonic time after which the query is repeated."""


PENDING: Answer[Any] = Answer(None)


class BackgroundQueries:
    """Cache of answers by query. `on_answer` is called in the background thread after each answer, to redraw."""

    def __init__(self, on_answer: Callable[[], object] = bool) -> None:
        self.on_answer = on_answer
        self.is_paused: Callable[[], bool] = lambda: False
        """Returns True while the view is paused: cached answers are kept, and only new queries are executed."""
        self._answers: dict[Hashable, Answer[Any]] = {}
        self._waiting: deque[tuple[Hashable, Callable[[], Any], float | Callable[[Any], float]]] = deque()
        self._pending: set[Hashable] = set()
        self._lock = Lock()
        self._is_working = False
        self._clear_count = 0
        """Number of calls of `clear`."""

    def get(
        self, key: Hashable, query: Callable[[], T], valid_for: float | Callable[[T], float] = ACTIVE_VALID_FOR
    ) -> Answer[T]:
        """Return the cached answer, and schedule the query if the answer is older than `valid_for` seconds.

        `valid_for` may be a function of the answer. `query` runs in the background thread, one query at a time, and
        raises GpumonError when there is no result.
        """
        cached = self._answers.get(key, PENDING)
        if cached.expires < monotonic() and not (cached.result is not None and self.is_paused()):
            with self._lock:
                if key not in self._pending:
                    self._pending.add(key)
                    self._waiting.append((key, query, valid_for))
                    if not self._is_working:
                        self._is_working = True
                        Thread(target=self._work, name="gpumon-queries", daemon=True).start()
        return cached

    @property
    def is_idle(self) -> bool:
        """Whether no query is pending."""
        return not self._pending

    def is_pending(self, key: Hashable) -> bool:
        """Whether a query is waiting for its answer."""
        return key in self._pending

    def cached(self, key: Hashable) -> Answer[Any]:
        """Return the cached answer without scheduling the query."""
        return self._answers.get(key, PENDING)

    def drop(self, key: Hashable) -> None:
        """Remove an answer from the cache, to free its memory."""
        self._answers.pop(key, None)

    def expire(self, key: Hashable) -> None:
        """Mark an answer as expired, so that the next request repeats the query."""
        cached = self._answers.get(key)
        if cached is not None:
            self._answers[key] = cached._replace(expires=-1.0)

    def clear(self) -> None:
        """Clear the cache, and discard the result of a query in progress: it belongs to the previous source."""
        with self._lock:
            self._clear_count += 1
            self._answers.clear()
            self._waiting.clear()
            self._pending.clear()

    def _work(self) -> None:
        """Answer queries until none is pending."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_working = False
                    return
                key, query, valid_for = self._waiting.popleft()
                clear_count = self._clear_count
            started = monotonic()
            try:
                result, problem = query(), ""
            except GpumonError as error:
                result, problem = None, str(error)
            except Exception as error:  # if the thread died, the page would wait forever
                result, problem = None, f"cannot read it: {type(error).__name__}: {error}"
            duration = monotonic() - started
            if result is None:
                valid_for = RETRY
            elif callable(valid_for):
                valid_for = valid_for(result)
            with self._lock:
                if clear_count == self._clear_count:
                    self._answers.pop(key, None)
                    self._answers[key] = Answer(
                        result, problem, monotonic() + max(valid_for, _MIN_VALID_FACTOR * duration)
                    )
                    while len(self._answers) > _MAX_ANSWERS:
                        self._answers.pop(next(iter(self._answers)))
                    self._pending.discard(key)
            with suppress(RuntimeError):  # the app has ended in the meantime
                self.on_answer()
