"""Background work for slow answers, in a thread or a process, and a cache of recent answers.

Concurrent requests for the same answer share one job.
"""

from __future__ import annotations

import gc
import gzip
import json
import multiprocessing
import os
import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from threading import BoundedSemaphore, RLock, Thread, Timer
from typing import Any, NamedTuple, Protocol

from gpumon.storage.sqlite.read import set_lock_timeout

WAITING = 64
"""Longest queue of jobs; when it is full, the server answers that it is busy."""
LONGEST = 60.0
"""Timeout of a job in seconds: a hanging disk must not block the jobs behind it."""
IDLE = 90.0
"""Seconds without a job after which the process is stopped: more than pages wait before they ask again (60 s)."""
NICER = 10
"""Niceness of the process relative to the server, whose ticks have priority."""
LOCKED_FOR = 0.25
"""Seconds that a task waits for a file locked by another program; after that the page shows it and retries."""

Task = Callable[..., Any]
"""Module-level function, which is pickled by its name."""
Arguments = Callable[[], tuple[Any, ...]]
"""Computes the arguments of a task; called just before the task runs, not in the requesting thread."""


class WorkError(Exception):
    """A job failed."""


class BusyError(WorkError):
    """The queue is full."""


class TaskError(WorkError):
    """The task itself raised an error; its process is still usable."""


class Work(Protocol):
    """Runs tasks."""

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        """Schedule `task`; the future gets its result or its error."""

    def close(self) -> None:
        """Stop without finishing pending tasks."""


class Inline:
    """Runs tasks immediately in the calling thread."""

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            value = task(*arguments())
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(value)
        return future

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


class ThreadWork:
    """Runs tasks one after the other in a thread, for tasks too slow for a tick but too short for a process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "work")
        self._places = BoundedSemaphore(WAITING)

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        if not self._places.acquire(blocking=False):
            future: Future[Any] = Future()
            future.set_exception(BusyError("too many requests at once"))
            return future
        future = self._thread.submit(lambda: self._run(task, arguments()))
        future.add_done_callback(lambda _: self._places.release())
        return future

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        return task(*arguments)


class ProcessWork(ThreadWork):
    """Runs tasks one after the other in a process of low priority, which is stopped when it is idle.

    Reading long runs creates hundreds of thousands of objects: in a thread of the server, that would delay the ticks.
    """

    def __init__(self, timeout: float = LONGEST, idle: float = IDLE) -> None:
        super().__init__()
        self._timeout = timeout
        self._idle = idle
        self._lock = RLock()
        self._pool: ProcessPoolExecutor | None = None
        self._timer: Timer | None = None

    def close(self) -> None:
        super().close()
        self._stop()

    def _run(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            self._cancel_timer()
            if self._pool is None:
                # Ctrl-C is for the server, which then stops the process. The process inherits what this thread blocks.
                resource_tracker.ensure_running()  # multiprocessing starts it too, and then unblocks Ctrl-C
                signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
                spawn = multiprocessing.get_context("spawn")  # forking would copy the locks of the server's threads
                self._pool = ProcessPoolExecutor(1, spawn, _start_process)
            pool = self._pool
        try:
            return pool.submit(_run_task, task, arguments).result(self._timeout)
        except TimeoutError:
            self._stop()
            raise WorkError(f"timed out after {self._timeout:.0f} s") from None
        except BrokenProcessPool:
            self._stop()
            raise WorkError("the process ended") from None
        finally:
            with self._lock:
                self._timer = Timer(self._idle, self._stop_idle)
                self._timer.daemon = True
                self._timer.start()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _stop_idle(self) -> None:
        with self._lock:
            if self._timer is not None:  # else a task began just now
                self._stop()

    def _stop(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
            self._cancel_timer()
        if pool is not None:
            # Public only since Python 3.14, and a task that hangs has to be stopped.
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


def _start_process() -> None:
    """Prepare the process, which ends if the server is killed.

    Garbage is only collected between tasks: collecting while a run of thousands of epochs is read would double the
    time.
    """
    os.nice(NICER)
    set_lock_timeout(LOCKED_FOR)
    gc.disable()
    gc.freeze()
    Thread(target=_end_with_server, daemon=True).start()


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
    os._exit(1)


def _run_task(task: Task, arguments: tuple[Any, ...]) -> Any:
    """Run a task in the process. Errors of any type become a TaskError, which can always be pickled."""
    try:
        return task(*arguments)
    except Exception as error:
        raise TaskError(f"{type(error).__name__}: {error}") from None
    finally:
        del arguments
        gc.collect()


MOST = 16 * 2**20
"""Size limit of the cache: bytes of compressed answers."""
MOST_ANSWERS = 512


class Packed(NamedTuple):
    """An answer ready to be sent."""

    body: bytes
    """Compressed with gzip; empty if the requested item does not exist or cannot be read."""
    version: Any = None
    """Lets the task detect that nothing changed; None if the answer must always be made again."""
    unread: str = ""
    """Why the data cannot be read now, although it may exist; the body is empty then."""
    missing: str = ""
    """Why the item does not exist, if that is known; the body is empty then."""


UNCHANGED = "unchanged"
"""Result of a task if the cached version is still current."""
NOTHING = Packed(b"")
"""Answer for an item that does not exist."""


class _Entry(NamedTuple):
    answer: Packed
    requested: float


class AnswerCache:
    """Cache of recent answers. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = MOST) -> None:
        self._clock = clock
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._jobs: dict[Hashable, Future[Packed]] = {}
        self._lock = RLock()

    def get(self, key: Hashable, fresh: float, start: Callable[[Any], Future[Any]]) -> Future[Packed]:
        """Return the answer for `key`: a cached one if requested at most `fresh` seconds ago, else a job's.

        `start` starts the job. It gets the version of the cached answer, or None; its future must have a `Packed` or
        `UNCHANGED` as result.
        """
        with self._lock:
            now = self._clock()
            entry = self._entries.get(key)
            if entry is not None and now - entry.requested < fresh:
                self._entries.move_to_end(key)
                future: Future[Packed] = Future()
                future.set_result(entry.answer)
                return future
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Future()
                task_future = start(entry.answer.version if entry else None)
                task_future.add_done_callback(lambda done, job=job: self._finish(key, now, done, job))  # type: ignore[misc]
            return job

    def _finish(self, key: Hashable, requested: float, future: Future[Any], job: Future[Packed]) -> None:
        try:
            error = future.exception()
        except CancelledError:  # the server stops
            error = WorkError("stopped")
        with self._lock:
            self._jobs.pop(key, None)
            if error is None:
                entry = self._entries.get(key)
                answer = future.result()
                if answer == UNCHANGED:
                    answer = entry.answer if entry else None
                if answer is None:  # evicted from the cache meanwhile
                    error = BusyError("ask again")
                else:
                    self._add(key, _Entry(answer, requested))
        if error is not None:
            job.set_exception(error)
        else:
            job.set_result(answer)

    def _add(self, key: Hashable, entry: _Entry) -> None:
        previous = self._entries.pop(key, None)
        self._bytes += len(entry.answer.body) - (len(previous.answer.body) if previous else 0)
        self._entries[key] = entry
        while len(self._entries) > MOST_ANSWERS or (self._bytes > self._limit and len(self._entries) > 1):
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= len(oldest.answer.body)


def packed(value: Any, version: Any = None) -> Packed:
    """Return `value` as JSON, compressed with gzip."""
    return Packed(
        gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 5, mtime=0), version
    )


def compressed(parts: Iterable[bytes]) -> bytes:
    """Compress the joined parts with gzip, without holding them all uncompressed in memory."""
    from zlib import compressobj

    packer = compressobj(5, wbits=31)
    return b"".join((*(packer.compress(part) for part in parts), packer.flush()))
