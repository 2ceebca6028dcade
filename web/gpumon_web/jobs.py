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
        found: Future[Any] = Future()
        _settle(found, lambda: task(*arguments()))
        return found

    def close(self) -> None:
        """Nothing to stop."""


class _Piece(NamedTuple):
    found: Future[Any]
    task: Task
    arguments: Arguments


class Queued:
    """Runs tasks one after the other in a background thread; `done_by` creates the `Doer` at the first task."""

    def __init__(self, done_by: Callable[[], Doer], idle: float = IDLE) -> None:
        self._done_by = done_by
        self._idle = idle
        self._pieces: queue.Queue[_Piece] = queue.Queue(WAITING)
        self._lock = Lock()
        self._thread: Thread | None = None
        self._doer: Doer | None = None
        self._closed = False

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        found: Future[Any] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="work", daemon=True)
                self._thread.start()
        try:
            self._pieces.put_nowait(_Piece(found, task, arguments))
        except queue.Full:
            found.set_exception(BusyError("too many requests at once"))
        return found

    def close(self) -> None:
        self._closed = True
        doer = self._doer
        if doer is not None:
            doer.close()

    def _run(self) -> None:
        while not self._closed:
            try:
                piece = self._pieces.get(timeout=self._idle if self._doer else None)
            except queue.Empty:
                self._drop()
                continue
            self._do(piece)

    def _do(self, piece: _Piece) -> None:
        def result() -> Any:
            if self._doer is None:
                self._doer = self._done_by()
            return self._doer.do(piece.task, piece.arguments())

        _settle(piece.found, result)
        error = piece.found.exception()
        if isinstance(error, OSError | EOFError | WorkError) and not isinstance(error, TaskError):
            self._drop()

    def _drop(self) -> None:
        doer, self._doer = self._doer, None
        if doer is not None:
            doer.close()


class Doer(Protocol):
    """Runs one task at a time."""

    def do(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        """Return the task's result, or raise its error.

        Raises OSError, EOFError or a WorkError other than TaskError if the doer is no longer usable.
        """

    def close(self) -> None:
        """Stop, even in the middle of a task."""


class Here:
    """Runs tasks in the calling thread."""

    def do(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        return task(*arguments)

    def close(self) -> None:
        """There is nothing to stop."""


class WorkerProcess:
    """Runs tasks in a separate process at low priority (`worker`)."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
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

    def do(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        if not self._is_ready:
            self._received(STARTING)
            self._is_ready = True
        self._connection.send((task, arguments))
        is_result, found = self._received(self._longest)
        if not is_result:
            raise TaskError(found)
        return found

    def _received(self, longest: float) -> tuple[bool, Any]:
        if not self._connection.poll(longest):
            raise WorkError(f"timed out after {longest:.0f} s")
        found: tuple[bool, Any] = self._connection.recv()
        return found

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()


def processes() -> Queued:
    """Return a worker that runs tasks in another process."""
    return Queued(WorkerProcess)


def threads() -> Queued:
    """Return a worker with one thread of this process, for tasks too slow for a tick but too short for a process."""
    return Queued(Here)


def _settle(found: Future[Any], result: Callable[[], Any]) -> None:
    try:
        value = result()
    except Exception as error:
        found.set_exception(error)
    else:
        found.set_result(value)


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
"""Result of a task that found the known version still current."""
NOTHING = Packed(b"")
"""Answer for an item that does not exist."""


class Deferred(BaseException):
    """Raised while an answer is being made. Not an Exception, so that `except Exception` does not catch it."""

    def __init__(self, job: Future[Packed]) -> None:
        super().__init__()
        self.job = job


class _Kept(NamedTuple):
    answer: Packed
    asked: float


class AnswerCache:
    """Cache of recent answers. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._bytes = 0
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._jobs: dict[Hashable, Future[Packed]] = {}
        self._lock = RLock()

    def get(self, key: Hashable, fresh: float, start: Callable[[Any], Future[Any]]) -> Future[Packed]:
        """Return the answer for `key`: a cached one if requested at most `fresh` seconds ago, else a job's.

        `start` starts the job. It gets the version of the cached answer, or None; its future must have a `Packed` or
        `UNCHANGED` as result.
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
                if answer is None:  # evicted from the cache meanwhile
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
