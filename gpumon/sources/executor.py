"""A thread pool for driver calls that may hang. Fast calls share one thread. A call that hangs keeps its thread.

With one thread for each GPU, all threads would have to be woken at each tick, which costs more than the calls. Instead,
one thread makes the calls for all GPUs in turn. If one of the calls blocks, another thread continues with the rest. So
no GPU waits for another GPU, and on a healthy machine, a tick wakes a single thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, Generic, Protocol, TypeVar

from gpumon.common.clock import SECOND, Clock

T = TypeVar("T")
_SLOW_ROUNDS = 16
"""After a call was slow, it gets a thread of its own from the start for this number of batches."""
_SPARE = 4
"""Threads in addition to two per call: one for a GPU that went away while its call hung, and one for the GPU that
replaced it."""
_UNUSED_FOR = 60 * SECOND
"""A thread that no batch has needed for this many ns ends."""
_LONGEST_GRACE = SECOND // 10
"""After this many ns without progress, another thread takes over, independent of the timeout of the batch."""


class PendingCall(Generic[T]):
    """A call that is made repeatedly. It is not started again while it is still in progress."""

    __slots__ = ("_function", "_result", "failure", "is_running", "slow_rounds", "started_at")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | None = None
        self.failure: Exception | None = None
        """The error that the last call raised."""
        self.is_running = False
        """True from the request of a call until its result is complete. The caller sets it, and the thread clears
        it."""
        self.started_at = 0
        """Time at which the call was last requested (ns, CLOCK_MONOTONIC); 0 if it never was."""
        self.slow_rounds = 0
        """Number of further batches for which the call gets its own thread."""

    def pop(self) -> T | None:
        """Return the result of the call; None if the call has not returned since the last `pop`."""
        if self.is_running:
            return None
        result, self._result = self._result, None
        return result

    def execute(self, clock: Clock, grace: int) -> None:
        """Make the call and store the result. Never raises.

        A call that takes longer than `grace` (ns) counts as slow.
        """
        begin = clock.monotonic()
        try:
            self._result, self.failure = self._function(), None
        except Exception as error:  # a failing call must not stop the others
            self.failure = error
        if clock.monotonic() - begin > grace:
            self.slow_rounds = _SLOW_ROUNDS
        elif self.slow_rounds:
            self.slow_rounds -= 1
        self.is_running = False


AnyCall = PendingCall[Any]


class Executor(Protocol):
    """Makes driver calls in threads. Tests use a fake that makes them in the caller's thread."""

    def run(self, calls: Sequence[AnyCall], timeout: int) -> None:
        """Start the calls that are not in progress, and wait up to `timeout` (ns) for all calls."""

    def close(self) -> None:
        """End the threads. A thread whose call hangs ends with the process."""


class _Batch:
    """The calls of one tick.

    A lock signals their end to the one thread that waits, because an Event takes much longer.
    """

    __slots__ = ("_lock", "_unfinished", "grace", "queue")

    def __init__(self, calls: Sequence[AnyCall], grace: int) -> None:
        self.queue = deque(calls)
        """Calls that no thread has started."""
        self.grace = grace
        self._unfinished = list(range(len(calls)))
        """One number for each unfinished call. `pop` is atomic, so exactly one thread gets the 0."""
        self._lock = Lock()
        self._lock.acquire()

    @property
    def is_done(self) -> bool:
        return not self._lock.locked()

    @property
    def unfinished(self) -> int:
        """Number of calls without a result."""
        return len(self._unfinished)

    def finish_call(self) -> None:
        if self._unfinished.pop() == 0:
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all calls, and return whether they have ended."""
        is_done = self._lock.acquire(timeout=timeout)
        if is_done:
            self._lock.release()
        return is_done


class _Worker:
    """Assigns batches to one thread.

    Each worker has its own lock, because a shared queue would wake every waiting thread.
    """

    __slots__ = ("_batch", "_is_assigned")

    def __init__(self, first: _Batch) -> None:
        self._batch: _Batch | None = first
        self._is_assigned = Lock()
        """Lock that is released when there is a new batch, or when the worker must end."""

    def assign(self, batch: _Batch | None) -> None:
        """Give an idle worker its next batch, or None to end it."""
        self._batch = batch
        self._is_assigned.release()

    def next(self) -> _Batch | None:
        """Wait for the next batch, and return it. None means that the thread must end."""
        self._is_assigned.acquire()
        batch, self._batch = self._batch, None
        return batch


class WorkerPool:
    """Threads that make batches of calls: one thread for each batch, and more if a batch makes no progress.

    There are at most two threads for each call of the largest batch, plus `_SPARE`. Unused threads end after a while.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads: list[Thread] = []
        self._idle: deque[_Worker] = deque()
        """Workers without a batch. The worker that worked last is at the end, because its caches are warm. Operations
        at both ends of the deque are atomic."""
        self._is_closed = False
        self._late: list[_Batch] = []
        self._largest = 0
        """Number of calls in the largest batch."""
        self._unused = 0
        """Number of workers that have been idle since the last `_end_unused`."""
        self._end_unused_at = 0

    def run(self, calls: Sequence[AnyCall], timeout: int) -> None:
        """Start the calls that are not in progress, and wait up to `timeout` (ns) for all calls.

        If a call does not return within `timeout`, later batches do not wait for it until it has returned.
        """
        self._late = [batch for batch in self._late if not batch.is_done]
        for batch in self._late:
            if batch.queue:  # calls that no thread started before the timeout
                self._wake(batch)
        new = [call for call in calls if not call.is_running]
        if not new:
            return
        now = self._clock.monotonic()
        for call in new:
            call.is_running, call.started_at = True, now
        # Slow calls come first, and each gets a thread of its own. One more thread makes all other calls.
        slow = sum([call.slow_rounds > 0 for call in new])
        if slow:
            new.sort(key=_is_quick)
        self._largest = max(self._largest, len(new))
        # If each call takes less than this time, one thread can finish all calls in time.
        batch = _Batch(new, min(_LONGEST_GRACE, timeout // (len(new) + 1)))
        for _ in range(min(slow + 1, len(new))):
            self._wake(batch)
        if not self._wait(batch, now + timeout):
            self._late.append(batch)
        if now >= self._end_unused_at:
            self._end_unused_at = now + _UNUSED_FOR
            self._end_unused()

    def close(self) -> None:
        """End the threads. A thread whose call hangs ends with the process."""
        self._is_closed = True
        self._end_idle(len(self._idle))

    def _end_unused(self) -> None:
        """End threads that have not been needed since the last call of this method.

        Such threads were started because calls hung, for example.
        """
        self._end_idle(min(self._unused, len(self._idle)))
        self._unused = len(self._idle)

    def _end_idle(self, count: int) -> None:
        """End `count` idle threads, longest idle first."""
        for _ in range(count):
            with suppress(IndexError):  # another thread was quicker
                self._idle.popleft().assign(None)

    def _wait(self, batch: _Batch, until: int) -> bool:
        """Wait for a batch until `until` (ns), and return whether it is done."""
        now, before = self._clock.monotonic(), batch.unfinished
        while not batch.wait(max(0, min(until - now, batch.grace)) / SECOND):
            now = self._clock.monotonic()
            if now >= until:
                return batch.is_done
            if batch.queue and batch.unfinished == before:
                self._wake(batch)
            before = batch.unfinished
        return True

    def _wake(self, batch: _Batch) -> None:
        """Put one more thread to work on a batch."""
        try:
            worker = self._idle.pop()
        except IndexError:
            if len(self._threads) >= _SPARE + 2 * self._largest:
                return  # the machine is too busy, or all threads hang, so more threads would not help
            # A daemon thread, because a call that hangs must not keep the process from exiting.
            thread = Thread(target=self._run, args=(_Worker(batch),), name="gpumon-driver", daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            worker.assign(batch)
        self._unused = min(self._unused, len(self._idle))

    def _run(self, worker: _Worker) -> None:
        while (batch := worker.next()) is not None:
            self._work_on(batch)
            del batch  # the batch's calls hold buffers of the driver
            if len(self._idle) >= self._largest:  # other threads replaced this one while its call hung
                break
            self._idle.append(worker)
            if self._is_closed:  # `close` may have run before this worker was idle
                self._end_idle(len(self._idle))
        self._threads.remove(current_thread())

    def _work_on(self, batch: _Batch) -> None:
        while batch.queue:
            try:
                call = batch.queue.popleft()
            except IndexError:  # another thread was quicker
                return
            call.execute(self._clock, batch.grace)
            batch.finish_call()


def _is_quick(call: AnyCall) -> bool:
    return not call.slow_rounds
