"""A daemon that can be stopped whatever its driver does.

A call into a driver that hangs never comes back to Python, so a signal handler of the thread that made it never runs.
Sampling therefore has a thread of its own, and the main thread only waits: for a signal, or for the end of the work.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from threading import Thread
from typing import TYPE_CHECKING

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import Clock, StopSign
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import PLAYED, RING, Places, history_path, ledger_path, make_live_dir, make_tag_dir
from gpumon.daemon.followers import runs_at
from gpumon.daemon.recorder import Recorder, UseCounter
from gpumon.daemon.recorder import say as _say
from gpumon.daemon.recovery import frames_since, newest_frames
from gpumon.daemon.sampler import Sampler
from gpumon.daemon.sampling import make_sampler
from gpumon.model.frame import Tick
from gpumon.model.origin import Capability
from gpumon.ring.writer import NO_ROOM, NoRoom
from gpumon.sources.base import KnowsDevices
from gpumon.storage.history.tiers import USUAL_LIMITS, HistoryLimits

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback
    from gpumon.storage.history.recorder import HistoryPart


_MANY_OBJECTS = 50_000
"""Objects that have come and not gone by themselves when garbage is looked for: some MB."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def collect_seldom() -> None:
    """Leave what is there by now to the end, and look for garbage in cycles seldom.

    Ticks make none: what they leave behind goes by itself. But each keeps some objects until history has taken it, and
    Python would go through these every few ticks unasked, and now and then, for some 20 ms, through all that there are.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MANY_OBJECTS)


def share_one_arena() -> None:
    """Let all threads take their memory from one arena of the C library; call it before any begins.

    Else glibc gives each thread its own, up to eight a core, and what one of them frees serves no other. Threads of the
    driver's calls come and go, and one holds Python's lock at a time, so that they never wait for each other's arena.
    Source: mallopt(3). Other C libraries have no arenas, or no mallopt; they keep their ways.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


class PrivateSampler:
    """A sampler in a thread of this process, for a view without a daemon."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.failure: Exception | None = None
        """Error that ended sampling early; None if there was none."""
        self._stop = StopSign()
        # A daemon thread: a driver call that hangs must not keep the view from ending.
        self._thread = Thread(target=self._run, name="gpumon-sampler", daemon=True)

    def start(self) -> PrivateSampler:
        self._thread.start()
        return self

    def end_soon(self) -> None:
        """Ask it to end, and wait for nothing."""
        self._stop.set()

    def stop(self) -> None:
        """Ask it to end, and wait a moment."""
        self.end_soon()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self.recorder.run(self._stop)
        except Exception as error:
            self.failure = error  # shown by the view, which keeps what it has


_FRAMES_BEFORE = 256
"""Of an earlier daemon, which the ledger looks through for what was not written."""


def open_daemon(
    where: Places,
    spec: str,
    interval: float,
    speed: float,
    clock: Clock,
    say: Callable[[str], None] = _say,
    playback: Playback | None = None,
    limits: HistoryLimits = USUAL_LIMITS,
    *,
    gpm: bool = True,
    idle_interval: float = 0.0,
    job_dir: str = "",
    for_command: bool = False,
) -> Recorder:
    """A recorder that has its directory, its lock and its first frame. `say` is told, in a line, what goes wrong later.

    `gpm`: whether the GPUs' performance counters are read; `idle_interval`: seconds between ticks while no GPU does
    anything, 0 for those of always; `for_command`: whether it ends with a command that this process runs.

    Raises AlreadyRunning, SourceError, UsageError or GpumonError, each with what to do.
    """
    sampler = make_sampler(
        spec, where, clock, interval, speed, playback=playback, gpm=gpm, idle_interval=idle_interval, job_dir=job_dir
    )
    try:
        recorder, ticks = _open_ring(sampler, where, clock, say, for_command=for_command)
    except BaseException:
        sampler.close()  # who is refused may try again
        raise
    try:
        holders = HolderWatch()
        recorder.followers.append(UseCounter(lambda: recorder.writer, holders))
        _open_ledger(recorder, where, clock, say)
        _open_history(recorder, where, say, limits, holders)
        with _no_fault_of_ours(recorder.directory or ""):
            recorder.take_one(ticks)
    except BaseException:
        recorder.close()
        raise
    return recorder


def _open_ring(
    sampler: Sampler, where: Places, clock: Clock, say: Callable[[str], None], *, for_command: bool
) -> tuple[Recorder, Iterable[Tick]]:
    """Return a recorder with a ring in the first directory that has room for one, and its first round of ticks.

    The source is read once, however many directories are full: closing and opening a driver again is told as an event.
    """
    full: list[str] = []
    ticks: Iterator[Tick] | None = None
    while True:
        directory = make_live_dir(where, full=full)
        with _no_fault_of_ours(directory):
            recorder = None
            try:
                recorder = Recorder(sampler, clock, directory, for_command=for_command)
                recorder.say = say
                if ticks is None:
                    if isinstance(sampler.source, KnowsDevices):
                        before = newest_frames(f"{directory}/{RING}", 1, clock.monotonic())
                        sampler.source.remember([sample for frame in before for sample in frame.samples])
                    ticks = sampler.ticks()
                    first = list(islice(ticks, 1))
                for tick in first:  # none of a recording that has not begun
                    recorder.open_ring_for(tick)
                make_tag_dir(directory, everyone=where.uid == 0 and directory == where.system)
            except BaseException as error:
                if recorder is not None:
                    recorder.leave()
                is_full = isinstance(error, NoRoom) or (isinstance(error, OSError) and error.errno in NO_ROOM)
                if where.explicit or not is_full:
                    raise
                full.append(directory)
            else:
                return recorder, chain(first, ticks)


@contextmanager
def _no_fault_of_ours(directory: str) -> Iterator[None]:
    """Raise GpumonError for what a directory refuses."""
    try:
        yield
    except OSError as error:  # full, read-only, or something else has the name of one of our files
        what = f"{error.filename}: " if error.filename else ""
        raise GpumonError(
            f"cannot keep live data in {directory} ({what}{error.strerror or error}): pass another --dir"
        ) from error


def _open_ledger(recorder: Recorder, where: Places, clock: Clock, say: Callable[[str], None]) -> None:
    """Let the ledger follow it, for the hardware of this machine, where there is something to keep, and a place."""
    path = ledger_path(where)
    if Capability.LIVE not in recorder.sampler.source.capabilities:
        _keep_played(recorder, where)
        return
    if not path:
        return
    from gpumon.common.rapl import PackageEnergy
    from gpumon.storage.ledger.recorder import LedgerRecorder  # SQLite: only a daemon needs it
    from gpumon.storage.ledger.writer import Store

    shared = where.uid == 0 and os.path.dirname(path) == where.system_state
    store = Store(path, where.uid, say, shared=shared).start()
    ledger = LedgerRecorder(store, packages=PackageEnergy())
    ledger.remember(newest_frames(f"{recorder.directory}/{RING}", _FRAMES_BEFORE, clock.monotonic()))
    recorder.followers.append(ledger)


def _keep_played(recorder: Recorder, where: Places) -> None:
    """Keep the runs of a simulation or a recording beside its frames, for as long as these are there."""
    path = f"{recorder.directory}/{PLAYED}"
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            os.unlink(path + end)  # of what was played before
    shared = recorder.directory == where.system
    recorder.followers.append(runs_at(lambda: path, where.uid, recorder.say, waits=True, shared=shared))


def _open_history(
    recorder: Recorder, where: Places, say: Callable[[str], None], limits: HistoryLimits, holders: HolderWatch
) -> None:
    """Let history follow it, for the hardware of this machine, where there is a place."""
    if Capability.LIVE in recorder.sampler.source.capabilities and history_path(where):
        from gpumon.daemon.followers import ActivityPart
        from gpumon.daemon.recovery import ticks_since
        from gpumon.storage.history.recorder import start_history  # SQLite: only a daemon needs it
        from gpumon.storage.processes.recorder import ProcessPart

        directory = recorder.directory or ""
        ring = f"{directory}/{RING}"
        parts: list[HistoryPart] = [ActivityPart(holders=holders, earlier=partial(ticks_since, ring)), ProcessPart()]
        earlier = partial(frames_since, ring)
        recorder.followers.append(start_history(where, say, limits, directory, earlier, parts))


_GRACE = 1.5
"""Seconds that a driver call may take after a signal. With `recorder.LAST_WORDS` it makes less than 3."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service:
    """Samples in a thread until SIGTERM or SIGINT.

    `open_recorder` opens what is sampled into, and may take as long as the driver does; then `started` is called.
    """

    def __init__(self, open_recorder: Callable[[], Recorder], started: Callable[[Recorder], object]) -> None:
        self._open = open_recorder
        self._started = started
        self._stop = StopSign()
        self._recorder: Recorder | None = None
        self._error: BaseException | None = None
        # A byte in a pipe, because a handler may interrupt the main thread anywhere: also inside an Event's own lock.
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def run(self) -> None:
        """Serve until a signal, or raise what the work raised. Where the driver hangs, the process ends here."""
        # The kernel may hand a signal to any thread, such as after SIGCONT, and then wakes that one alone: the byte is
        # written by the handler in C, wherever it runs.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        worker = Thread(target=self._work, name="gpumon-sampler", daemon=True)
        worker.start()
        os.read(self._woken, 1)
        self._stop.set()
        worker.join(_GRACE)
        if worker.is_alive() and not (self._recorder and self._recorder.has_let_go.is_set()):
            self._leave()
        worker.join()  # the last of the ledger is written
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._recorder = recorder = self._open()
            try:
                self._started(recorder)
            except BaseException:
                recorder.close()  # so that nobody takes it for one that runs
                raise
            recorder.run(self._stop)
        except BaseException as error:
            self._error = error  # raised by the main thread
        finally:
            os.write(self._wake, b".")

    def _leave(self) -> None:
        """End without the thread that the driver holds."""
        print(f"gpumon: the driver did not answer within {_GRACE:g} s: stopped without it", file=sys.stderr, flush=True)
        if self._recorder is not None:
            self._recorder.abandon()
        os._exit(EXIT_OK)
