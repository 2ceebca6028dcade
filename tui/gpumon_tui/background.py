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

OFTEN = 10.0
"""Seconds for which answers about active runs stay valid; the daemon writes its ledger at the same interval."""
RETRY = 2.0
"""Seconds before a failed query is repeated. Without this pause a missing ledger would keep a core busy."""
_REST = 20.0
"""An answer stays valid for at least this multiple of the time its query took, so that slow queries do not keep a
core busy.
"""
_KEPT = 256
"""Maximum number of cached answers; the least recently requested are dropped."""


class Answer(NamedTuple, Generic[T]):
    """Result of a query, or the reason why there is none."""

    found: T | None
    """None while there is no result."""
    problem: str = ""
    """Why there is no result."""
    until: float = -1.0
    """Monotonic time after which the query is repeated."""


NOT_YET: Answer[Any] = Answer(None)


class Asked:
    """Cache of answers by query. `told` is called in the background thread after each answer, to trigger a redraw."""

    def __init__(self, told: Callable[[], object] = bool) -> None:
        self.told = told
        self.is_held: Callable[[], bool] = lambda: False
        """Returns True while the view is paused: cached answers are kept, and only new queries are executed."""
        self._answers: dict[Hashable, Answer[Any]] = {}
        self._waiting: deque[tuple[Hashable, Callable[[], Any], float | Callable[[Any], float]]] = deque()
        self._pending: set[Hashable] = set()
        self._lock = Lock()
        self._works = False
        self._forgotten = 0
        """Number of calls of `forget_all`."""

    def ask(
        self, question: Hashable, answer: Callable[[], T], good_for: float | Callable[[T], float] = OFTEN
    ) -> Answer[T]:
        """Return the cached answer, and schedule the query if the answer is older than `good_for` seconds.

        `good_for` may be a function of the answer. `answer` runs in the background thread, one query at a time, and
        raises GpumonError when there is no result.
        """
        known = self._answers.get(question, NOT_YET)
        if known.until < monotonic() and not (known.found is not None and self.is_held()):
            with self._lock:
                if question not in self._pending:
                    self._pending.add(question)
                    self._waiting.append((question, answer, good_for))
                    if not self._works:
                        self._works = True
                        Thread(target=self._work, name="gpumon-asked", daemon=True).start()
        return known

    @property
    def is_idle(self) -> bool:
        """Whether no query is pending."""
        return not self._pending

    def is_pending(self, question: Hashable) -> bool:
        """Whether a query is waiting for its answer."""
        return question in self._pending

    def known(self, question: Hashable) -> Answer[Any]:
        """Return the cached answer without scheduling the query."""
        return self._answers.get(question, NOT_YET)

    def drop(self, question: Hashable) -> None:
        """Remove an answer from the cache, to free its memory."""
        self._answers.pop(question, None)

    def forget(self, question: Hashable) -> None:
        """Mark an answer as expired, so that the next request repeats the query."""
        known = self._answers.get(question)
        if known is not None:
            self._answers[question] = known._replace(until=-1.0)

    def forget_all(self) -> None:
        """Clear the cache, and discard the result of a query in progress: it belongs to the previous source."""
        with self._lock:
            self._forgotten += 1
            self._answers.clear()
            self._waiting.clear()
            self._pending.clear()

    def _work(self) -> None:
        """Answer queries until none is pending."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._works = False
                    return
                question, answer, good_for = self._waiting.popleft()
                forgotten = self._forgotten
            began = monotonic()
            try:
                found, problem = answer(), ""
            except GpumonError as error:
                found, problem = None, str(error)
            except Exception as error:  # if the thread died, the page would wait forever
                found, problem = None, f"cannot read it: {type(error).__name__}: {error}"
            took = monotonic() - began
            if found is None:
                good_for = RETRY
            elif callable(good_for):
                good_for = good_for(found)
            with self._lock:
                if forgotten == self._forgotten:
                    self._answers.pop(question, None)
                    self._answers[question] = Answer(found, problem, monotonic() + max(good_for, _REST * took))
                    while len(self._answers) > _KEPT:
                        self._answers.pop(next(iter(self._answers)))
                    self._pending.discard(question)
            with suppress(RuntimeError):  # the app has ended in the meantime
                self.told()
