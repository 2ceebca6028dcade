"""Answers to questions that take a while, found in a thread of their own: drawing has the last one at once."""

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
"""Seconds for which an answer about what goes on is good: a daemon writes its ledger as often."""
RETRY = 2.0
"""Seconds before a failed question is asked again: without a pause, a missing ledger would keep a core busy."""
_REST = 20.0
"""The thread rests for so many times as long as an answer took."""
_KEPT = 256
"""Answers kept: those that were asked for last."""


class Answer(NamedTuple, Generic[T]):
    """The result of a question, or why there is none."""

    found: T | None
    """None where there is none (yet)."""
    problem: str = ""
    """Why there is none."""
    until: float = -1.0
    """Monotonic time from which it is asked anew."""


NOT_YET: Answer[Any] = Answer(None)


class Asked:
    """Answers by question. `told` is called in the thread after each, for the screen to be drawn again."""

    def __init__(self, told: Callable[[], object] = bool) -> None:
        self.told = told
        self.is_held: Callable[[], bool] = lambda: False
        """Whether what is known stays as it is: the picture stands still. What nobody has asked yet is answered."""
        self._answers: dict[Hashable, Answer[Any]] = {}
        self._waiting: deque[tuple[Hashable, Callable[[], Any], float | Callable[[Any], float]]] = deque()
        self._pending: set[Hashable] = set()
        self._lock = Lock()
        self._works = False
        self._forgotten = 0
        """Counts the times that all was forgotten."""

    def ask(
        self, question: Hashable, answer: Callable[[], T], good_for: float | Callable[[T], float] = OFTEN
    ) -> Answer[T]:
        """The last answer to a question; one that is `good_for` fewer seconds than it is old is sought anew.

        `good_for` may be found in the answer itself. `answer` runs in the thread, one at a time; it raises GpumonError
        where there is none.
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
        """Whether every question that was asked has its answer."""
        return not self._pending

    def is_pending(self, question: Hashable) -> bool:
        """Whether a question waits for its answer."""
        return question in self._pending

    def known(self, question: Hashable) -> Answer[Any]:
        """The last answer to a question, which is not asked here."""
        return self._answers.get(question, NOT_YET)

    def drop(self, question: Hashable) -> None:
        """Keep an answer no longer: it takes much memory."""
        self._answers.pop(question, None)

    def forget(self, question: Hashable) -> None:
        """Ask anew next time."""
        known = self._answers.get(question)
        if known is not None:
            self._answers[question] = known._replace(until=-1.0)

    def forget_all(self) -> None:
        """Know nothing any more, also of what is being found just now: it is of before."""
        with self._lock:
            self._forgotten += 1
            self._answers.clear()
            self._waiting.clear()
            self._pending.clear()

    def _work(self) -> None:
        """Answer until nothing is asked any more."""
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
            except Exception as error:  # a thread that is gone would leave the page waiting for ever
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
            with suppress(RuntimeError):  # the view has ended meanwhile
                self.told()
