"""Answers that take long to make: made once for all who ask meanwhile, and kept while they are fresh.

A route that asks for one does not wait for it: it raises `Deferred`, its thread answers others, and the route is
run again once the answer is there (`channel`).
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
"""Pieces of work that wait at most; beyond them the server says that it is busy."""
LONGEST = 60.0
"""Seconds after which work is given up: a disk that hangs must not hold all that comes after."""
STARTING = 60.0
"""Seconds that the process may take to start, on a machine that has much to do."""
IDLE = 60.0
"""Seconds without work after which the process ends."""

Task = Callable[..., Any]
"""A function of a module, which the other process finds by its name."""
Arguments = Callable[[], tuple[Any, ...]]
"""Gives a task's arguments when its turn has come, not in the thread that asks."""


class WorkError(Exception):
    """Work that could not be done."""


class BusyError(WorkError):
    """More was asked for than may wait."""


class TaskError(WorkError):
    """The task itself failed; whoever did it can do the next."""


class Work(Protocol):
    """A worker."""

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        """Do `task` some time; the future has its result, or its error."""

    def close(self) -> None:
        """Stop, whatever is still to do."""


class Inline:
    """Does work at once, in the thread that asks."""

    def ask(self, task: Task, arguments: Arguments) -> Future[Any]:
        found: Future[Any] = Future()
        _settle(found, lambda: task(*arguments()))
        return found

    def close(self) -> None:
        """Nothing is left to do."""


class _Piece(NamedTuple):
    found: Future[Any]
    task: Task
    arguments: Arguments


class Queued:
    """Does work in a thread, one piece after the other; `done_by` makes what does a piece, when the first one comes."""

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
    """Does one piece of work after the other."""

    def do(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        """The task's result. Raises what it raises, and OSError, EOFError or WorkError when no more can be done."""

    def close(self) -> None:
        """Stop, also in the middle of a piece."""


class Here:
    """Does work in the thread that asks it."""

    def do(self, task: Task, arguments: tuple[Any, ...]) -> Any:
        return task(*arguments)

    def close(self) -> None:
        """Nothing to stop."""


class WorkerProcess:
    """Does work in a process of its own, with the lower priority of `worker`."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with theirs:
            # A session of its own: Ctrl-C in the terminal is for this process, which then ends that one.
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
    """Work for another process."""
    return Queued(WorkerProcess)


def threads() -> Queued:
    """Work for one thread of this process: what is too much for a tick, and too little to be sent elsewhere."""
    return Queued(Here)


def _settle(found: Future[Any], result: Callable[[], Any]) -> None:
    try:
        value = result()
    except Exception as error:
        found.set_exception(error)
    else:
        found.set_result(value)


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


def packed(value: Any, version: Any = None) -> Packed:
    """`value` as JSON, compressed."""
    return Packed(
        gzip.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), 5, mtime=0), version
    )


def compressed(parts: Iterable[bytes]) -> bytes:
    """All parts together compressed, without ever having them all in memory as they are."""
    from zlib import compressobj

    packer = compressobj(5, wbits=31)
    return b"".join((*(packer.compress(part) for part in parts), packer.flush()))
