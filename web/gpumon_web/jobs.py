"""Background jobs for slow answers: workers in a thread or a process, and a cache of recent answers.

Concurrent requests for the same answer share one job. A route does not block on a job: it raises `Deferred`, its thread
answers other requests, and the route runs again when the job is done (`server.connections`).
"""

from __future__ import annotations

import gzip
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from threading import Lock, RLock, Thread
from typing import Any, NamedTuple, Protocol

WAITING = 64
"""Longest queue of jobs; when it is full, the server answers that it is busy."""
LONGEST = 60.0
"""Timeout of a job in seconds: a hanging disk must not block the jobs behind it."""
STARTING = 60.0
"""Seconds that the process may take to start on a busy machine."""
IDLE = 60.0
"""Seconds without a job after which the process is stopped."""

Task = Callable[..., Any]
"""Module-level function, which is pickled by its name."""
Arguments = Callable[[], tuple[Any, ...]]
"""Computes the arguments of a task; called just before the task runs, not in the requesting thread."""


class WorkError(Exception):
    """A job failed."""


class BusyError(WorkError):
    """The queue is full."""


class TaskError(WorkError):
    """The task itself raised an error; its worker is still usable."""


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
        _complete(future, lambda: task(*arguments()))
        return future

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


class _Job(NamedTuple):
    future: Future[Any]
    task: Task
    arguments: Arguments


class QueuedWork:
    """Runs tasks one after the other in a background thread; `make_worker` creates the worker at the first task."""

    def __init__(self, make_worker: Callable[[], Worker], idle: float = IDLE) -> None:
        self._make_worker = make_worker
        self._idle = idle
        self._queue: queue.Queue[_Job] = queue.Queue(WAITING)
        self._lock = Lock()
        self._thread: Thread | None = None
        self._worker: Worker | None = None
        self._closed = False

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="work", daemon=True)
                self._thread.start()
        try:
            self._queue.put_nowait(_Job(future, task, arguments))
        except queue.Full:
            future.set_exception(BusyError("too many requests at once"))
        return future

    def close(self) -> None:
        self._closed = True
        worker = self._worker
        if worker is not None:
            worker.close()

    def _run(self) -> None:
        while not self._closed:
            try:
                job = self._queue.get(timeout=self._idle if self._worker else None)
            except queue.Empty:
                self._stop_worker()
                continue
            self._run_job(job)

    def _run_job(self, job: _Job) -> None:
        def result() -> Any:
            if self._worker is None:
                self._worker = self._make_worker()
            return self._worker.run(job.task, job.arguments())

        _complete(job.future, result)
        error = job.future.exception()
        if isinstance(error, OSError | EOFError | WorkError) and not isinstance(error, TaskError):
            self._stop_worker()

    def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class Worker(Protocol):
    """Runs one task at a time."""

    def run(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        """Return the task's result, or raise its error.

        Raises OSError, EOFError or a WorkError other than TaskError if the worker is no longer usable.
        """

    def close(self) -> None:
        """Stop, even in the middle of a task."""


class ThreadWorker:
    """Runs tasks in the calling thread."""

    def run(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        return task(*arguments)

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""


class WorkerProcess:
    """Runs tasks in a separate process at low priority (`worker`)."""

    def __init__(self, timeout: float = LONGEST) -> None:
        self._timeout = timeout
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with theirs:
            # In its own session, so that Ctrl-C in the terminal only reaches this process, which then stops it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpumon_web.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._is_ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        if not self._is_ready:
            self._receive(STARTING)
            self._is_ready = True
        self._connection.send((task, arguments))
        is_result, result = self._receive(self._timeout)
        if not is_result:
            raise TaskError(result)
        return result

    def _receive(self, timeout: float) -> tuple[bool, Any]:
        if not self._connection.poll(timeout):
            raise WorkError(f"timed out after {timeout:.0f} s")
        reply: tuple[bool, Any] = self._connection.recv()
        return reply

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()


def processes() -> QueuedWork:
    """Return a worker that runs tasks in another process."""
    return QueuedWork(WorkerProcess)


def threads() -> QueuedWork:
    """Return a worker with one thread of this process, for tasks too slow for a tick but too short for a process."""
    return QueuedWork(ThreadWorker)


def _complete(future: Future[Any], result: Callable[[], Any]) -> None:
    try:
        value = result()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(value)


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


class Deferred(BaseException):
    """Raised while an answer is being made. Not an Exception, so that `except Exception` does not catch it."""

    def __init__(self, job: Future[Packed]) -> None:
        super().__init__()
        self.job = job


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
        error = future.exception()
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
