"""Threads for calls that may hang: those that are swift share one, and one that hangs keeps its own.

A thread for each GPU would be woken at each tick, which costs more than what it asks. Here one thread asks all GPUs in
turn, and where a GPU keeps it, another one takes those that are left. So no GPU waits for another, and on a
machine that is well a tick wakes one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, Generic, Protocol, TypeVar

from gpumon.common.clock import SECOND, Clock

T = TypeVar("T")
_CAREFUL = 16
"""Rounds for which a job that was slow has a thread of its own from the start."""
_SPARE = 4
"""Threads beyond two for each inquiry: one of a GPU that went away while its call hung, and one of the next."""
_UNUSED_FOR = 60 * SECOND
"""ns after which threads end that no round has needed meanwhile."""
_LONGEST_GRACE = SECOND // 10
"""ns that a thread may be silent before another one goes on, however long a round may take."""


class Inquiry(Generic[T]):
    """A question that is asked again and again; it is under way once at most."""

    __slots__ = ("_answer", "_ask", "asked_at", "careful", "failure", "is_under_way")

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: T | None = None
        self.failure: Exception | None = None
        """The error that the last one ended with."""
        self.is_under_way = False
        """Set by who asks, cleared by the thread that has answered: only then is the answer whole."""
        self.asked_at = 0
        """ns, CLOCK_MONOTONIC: when it was asked last; 0 before."""
        self.careful = 0
        """Rounds for which it has a thread of its own."""

    def take(self) -> T | None:
        """The answer that has come since the last time; None where there is none."""
        if self.is_under_way:
            return None
        answer, self._answer = self._answer, None
        return answer

    def run(self, clock: Clock, grace: int) -> None:
        """Ask, and keep the answer; what takes longer than `grace` (ns) is slow. Never raises."""
        began = clock.monotonic()
        try:
            self._answer, self.failure = self._ask(), None
        except Exception as error:  # a fault of one must not silence the others
            self.failure = error
        if clock.monotonic() - began > grace:
            self.careful = _CAREFUL
        elif self.careful:
            self.careful -= 1
        self.is_under_way = False


AnyInquiry = Inquiry[Any]


class Asker(Protocol):
    """Runs jobs: in threads, or in a test where it is asked."""

    def ask(self, jobs: Sequence[AnyInquiry], patience: int) -> None:
        """Ask what is not under way, and wait for it, no longer than `patience` (ns)."""

    def close(self) -> None:
        """Let go of the threads; one whose call hangs ends with the process."""


class _Round:
    """Jobs of one tick. One thread waits for its end, so a lock tells of it: an Event takes several times as long."""

    __slots__ = ("_lock", "_unfinished", "grace", "left")

    def __init__(self, jobs: Sequence[AnyInquiry], grace: int) -> None:
        self.left = deque(jobs)
        self.grace = grace
        self._unfinished = list(range(len(jobs)))
        """As many as there are jobs that are not done: its end is atomic, so one thread alone takes the 0."""
        self._lock = Lock()
        self._lock.acquire()

    @property
    def is_done(self) -> bool:
        """Whether all its jobs have answered."""
        return not self._lock.locked()

    @property
    def unfinished(self) -> int:
        """Number of jobs that have not answered."""
        return len(self._unfinished)

    def finish_one(self) -> None:
        """Note that a job has answered."""
        if self._unfinished.pop() == 0:
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds for the last one; return whether it has answered."""
        is_done = self._lock.acquire(timeout=timeout)
        if is_done:
            self._lock.release()
        return is_done


class _Lane:
    """A thread that works on the rounds it is handed. It is woken by itself: of a queue that threads share, each is."""

    __slots__ = ("_handed", "_round")

    def __init__(self, first: _Round) -> None:
        self._round: _Round | None = first
        self._handed = Lock()
        """Free while there is a round that is not taken, or the end."""

    def hand(self, this: _Round | None) -> None:
        """Give a lane that is free its next round, or None to end it."""
        self._round = this
        self._handed.release()

    def next(self) -> _Round | None:
        """Wait for the next round; None: there is none."""
        self._handed.acquire()
        this, self._round = self._round, None
        return this


class Lanes:
    """Threads that work on the rounds they are handed: one for each, and more where one makes no progress.

    There are at most two for each inquiry of the largest round and `_SPARE`; those that are not needed end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads: list[Thread] = []
        self._free: deque[_Lane] = deque()
        """Those that wait for a round, the one that did last at the end: its caches are the warmest. Its ends are
        atomic."""
        self._is_closed = False
        self._late: list[_Round] = []
        self._most = 0
        """Inquiries in the largest round."""
        self._unused = 0
        """Threads that have waited all the time since the last look at them."""
        self._look_at = 0

    def ask(self, jobs: Sequence[AnyInquiry], patience: int) -> None:
        """Ask what is not under way, and wait for it, no longer than `patience` (ns).

        What has let a round go by is not waited for again until it has answered.
        """
        self._late = [one for one in self._late if not one.is_done]
        for one in self._late:
            if one.left:  # begun by none before its time was over
                self._wake(one)
        asked = [job for job in jobs if not job.is_under_way]
        if not asked:
            return
        now = self._clock.monotonic()
        for job in asked:
            job.is_under_way, job.asked_at = True, now
        # Those that were slow come first, each with a thread of its own; one more is for all the others.
        careful = sum([job.careful > 0 for job in asked])
        if careful:
            asked.sort(key=_is_swift)
        self._most = max(self._most, len(asked))
        # Where each takes less than this, one thread is done with all of them in time.
        this = _Round(asked, min(_LONGEST_GRACE, patience // (len(asked) + 1)))
        for _ in range(min(careful + 1, len(asked))):
            self._wake(this)
        if not self._wait(this, now + patience):
            self._late.append(this)
        if now >= self._look_at:
            self._look_at = now + _UNUSED_FOR
            self._end_unused()

    def close(self) -> None:
        """Let go of the threads; one whose call hangs ends with the process."""
        self._is_closed = True
        self._end_free(len(self._free))

    def _end_unused(self) -> None:
        """Let threads end that were needed once, while calls hung, and not since the last look."""
        self._end_free(min(self._unused, len(self._free)))
        self._unused = len(self._free)

    def _end_free(self, count: int) -> None:
        """End so many of the threads that are free, those that waited longest."""
        for _ in range(count):
            with suppress(IndexError):  # another thread was quicker
                self._free.popleft().hand(None)

    def _wait(self, this: _Round, until: int) -> bool:
        """Wait for it until then (ns); return whether all of it was done."""
        now, before = self._clock.monotonic(), this.unfinished
        while not this.wait(max(0, min(until - now, this.grace)) / SECOND):
            now = self._clock.monotonic()
            if now >= until:
                return this.is_done
            if this.left and this.unfinished == before:
                self._wake(this)
            before = this.unfinished
        return True

    def _wake(self, this: _Round) -> None:
        """Let one more thread work on a round."""
        try:
            lane = self._free.pop()
        except IndexError:
            if len(self._threads) >= _SPARE + 2 * self._most:
                return  # the machine is too busy for them, or they all hang: more would not help
            # A daemon thread: a call that hangs must not keep the process from ending.
            thread = Thread(target=self._run, args=(_Lane(this),), name="gpumon-driver", daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            lane.hand(this)
        self._unused = min(self._unused, len(self._free))

    def _run(self, lane: _Lane) -> None:
        while (this := lane.next()) is not None:
            self._work_on(this)
            del this  # with its jobs, which hold the driver's buffers
            if len(self._free) >= self._most:  # others took the place of this one while its call hung
                break
            self._free.append(lane)
            if self._is_closed:  # perhaps before it could be seen among them
                self._end_free(len(self._free))
        self._threads.remove(current_thread())

    def _work_on(self, this: _Round) -> None:
        while this.left:
            try:
                job = this.left.popleft()
            except IndexError:  # another thread was quicker
                return
            job.run(self._clock, this.grace)
            this.finish_one()


def _is_swift(job: AnyInquiry) -> bool:
    return not job.careful
