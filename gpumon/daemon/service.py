"""The daemon: opens the ring and the files, samples in a thread, and stops on a signal even if the driver hangs.

A Python signal handler runs only when the main thread returns to Python. A hanging driver call never does. So sampling
has a thread of its own, and the main thread only waits for a signal or for the end of the sampling thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from threading import Thread
from typing import TYPE_CHECKING, Any

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import Clock, StopSign
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import PLAYED, RING, Places, history_path, ledger_path, make_live_dir, make_tag_dir
from gpumon.daemon.followers import lazy_ledger
from gpumon.daemon.recorder import Recorder, UsageCounters, log_line
from gpumon.daemon.recovery import frames_since, newest_frames
from gpumon.daemon.sampler import Sampler, make_sampler
from gpumon.model.frame import Tick
from gpumon.model.origin import Capability
from gpumon.ring.writer import NO_ROOM, NoRoom
from gpumon.sources.base import RestoresDevices
from gpumon.storage.history.tiers import USUAL_LIMITS, HistoryLimits

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback
    from gpumon.storage.follower import HistoryPlugin


_GC_THRESHOLD = 50_000
"""A garbage collection starts after this number of allocations minus deallocations, which are a few MB."""
_M_ARENA_MAX = -8
"""The option `M_ARENA_MAX` of mallopt, from malloc.h of glibc."""


def tune_garbage_collection() -> None:
    """Exempt all existing objects from garbage collection, and make collections rare.

    Ticks create no reference cycles, but each tick keeps some objects alive until the history has processed it. So
    Python would start a useless collection every few ticks. Some of these would be full collections, which take about
    20 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def limit_malloc_arenas() -> None:
    """Make all threads share one malloc arena of glibc. Must be called before any thread starts.

    By default, glibc creates up to eight arenas per core, and a thread that uses one arena does not reuse memory freed
    in another arena. The threads that make driver calls come and go. Only one of them holds the GIL at a time, so they
    do not contend for the shared arena. Source: mallopt(3). With C libraries that lack mallopt, nothing is changed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


class PrivateSampler:
    """A sampler in a thread of this process, for a view without a daemon."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.failure: Exception | None = None
        """The error that ended sampling early, or None."""
        self._stop = StopSign()
        # A daemon thread, because a hanging driver call must not keep the view from exiting.
        self._thread = Thread(target=self._run, name="gpumon-sampler", daemon=True)

    def start(self) -> PrivateSampler:
        self._thread.start()
        return self

    def request_stop(self) -> None:
        """Request the thread to stop, without waiting for it."""
        self._stop.set()

    def stop(self) -> None:
        """Request the thread to stop, and wait up to a second for it."""
        self.request_stop()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self.recorder.run(self._stop)
        except Exception as error:
            self.failure = error  # the view shows the error, and keeps its data


_EARLIER_FRAMES = 256
"""The ledger searches this number of an earlier daemon's newest frames for boundaries that were not yet written."""


def open_daemon(
    places: Places,
    spec: str,
    interval: float,
    speed: float,
    clock: Clock,
    log: Callable[[str], None] = log_line,
    playback: Playback | None = None,
    limits: HistoryLimits = USUAL_LIMITS,
    *,
    gpm: bool = True,
    idle_interval: float = 0.0,
    job_dir: str = "",
    for_command: bool = False,
) -> Recorder:
    """Return a recorder that owns its directory and its lock and has stored its first frame.

    `spec`: value of `--source`. `interval`: seconds between ticks. `log`: called with a line for each later problem.
    `gpm`: read the GPUs' performance counters (GPM). `idle_interval`: seconds between ticks while every GPU is idle, or
    0 to use `interval`. `for_command`: the daemon runs only as long as a command that this process has started. Raises
    AlreadyRunning, SourceError, UsageError or another GpumonError. Their messages say what to do.
    """
    sampler = make_sampler(
        spec, places, clock, interval, speed, playback=playback, gpm=gpm, idle_interval=idle_interval, job_dir=job_dir
    )
    try:
        recorder, ticks = _open_ring(sampler, places, clock, log, for_command=for_command)
    except BaseException:
        sampler.close()  # so that the caller can try again
        raise
    try:
        holders = HolderWatch()
        recorder.followers.append(UsageCounters(lambda: recorder.writer, holders))
        _open_ledger(recorder, places, clock, log)
        _open_history(recorder, places, log, limits, holders)
        with _directory_errors(recorder.directory or ""):
            recorder.sample_once(ticks)
    except BaseException:
        recorder.close()
        raise
    return recorder


def _open_ring(
    sampler: Sampler, places: Places, clock: Clock, log: Callable[[str], None], *, for_command: bool
) -> tuple[Recorder, Iterable[Tick]]:
    """Return a recorder with a ring in the first directory that has room for it, and the first round of ticks.

    The source is read only once, even if some directories are full. Reopening a driver would be recorded as an event.
    """
    full: list[str] = []
    ticks: Iterator[Tick] | None = None
    while True:
        directory = make_live_dir(places, full=full)
        with _directory_errors(directory):
            recorder = None
            try:
                recorder = Recorder(sampler, clock, directory, for_command=for_command)
                recorder.log = log
                if ticks is None:
                    if isinstance(sampler.source, RestoresDevices):
                        earlier = newest_frames(f"{directory}/{RING}", 1, clock.monotonic())
                        sampler.source.restore([sample for frame in earlier for sample in frame.samples])
                    ticks = sampler.ticks()
                    first = list(islice(ticks, 1))
                for tick in first:  # `first` is empty for a recording that has not started
                    recorder.ensure_ring(tick)
                make_tag_dir(directory, everyone=places.uid == 0 and directory == places.system)
            except BaseException as error:
                if recorder is not None:
                    recorder.release()
                is_full = isinstance(error, NoRoom) or (isinstance(error, OSError) and error.errno in NO_ROOM)
                if places.explicit or not is_full:
                    raise
                full.append(directory)
            else:
                return recorder, chain(first, ticks)


@contextmanager
def _directory_errors(directory: str) -> Iterator[None]:
    """Convert an OSError about the live directory into a GpumonError."""
    try:
        yield
    except OSError as error:  # the directory is full or read-only, or another file has the name of one of ours
        file = f"{error.filename}: " if error.filename else ""
        raise GpumonError(
            f"cannot keep live data in {directory} ({file}{error.strerror or error}): pass another --dir"
        ) from error


def _open_ledger(recorder: Recorder, places: Places, clock: Clock, log: Callable[[str], None]) -> None:
    """Start recording runs.

    Runs of this machine are recorded in its ledger, if a directory for it is configured. Runs of a simulation or a
    recording are recorded in a file next to the ring.
    """
    path = ledger_path(places)
    if Capability.LIVE not in recorder.sampler.source.capabilities:
        _keep_replayed_runs(recorder, places)
        return
    if not path:
        return
    from gpumon.common.rapl import PackageEnergy
    from gpumon.storage.ledger.recorder import LedgerRecorder  # imports SQLite, which only a daemon needs
    from gpumon.storage.ledger.writer import LedgerWriter

    shared = places.uid == 0 and os.path.dirname(path) == places.system_state
    store = LedgerWriter(path, places.uid, log, shared=shared).start()
    ledger = LedgerRecorder(store, packages=PackageEnergy())
    ledger.add_earlier(newest_frames(f"{recorder.directory}/{RING}", _EARLIER_FRAMES, clock.monotonic()))
    recorder.followers.append(ledger)


def _keep_replayed_runs(recorder: Recorder, places: Places) -> None:
    """Record the runs of a simulation or a recording in a ledger next to the ring.

    It is kept for as long as the ring.
    """
    path = f"{recorder.directory}/{PLAYED}"
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            os.unlink(path + suffix)  # an earlier replay left it behind
    shared = recorder.directory == places.system
    recorder.followers.append(lazy_ledger(lambda: path, places.uid, recorder.log, waits=True, shared=shared))


def _open_history(
    recorder: Recorder, places: Places, log: Callable[[str], None], limits: HistoryLimits, holders: HolderWatch
) -> None:
    """Start recording history, accounts, events and processes, if the source is this machine's hardware.

    Nothing is recorded if no state directory is configured.
    """
    if Capability.LIVE in recorder.sampler.source.capabilities and history_path(places):
        from gpumon.daemon.followers import ActivityRecorder
        from gpumon.daemon.recovery import ticks_since
        from gpumon.storage.history.recorder import start_history  # imports SQLite, which only a daemon needs
        from gpumon.storage.processes.recorder import ProcessRecorder

        directory = recorder.directory or ""
        ring = f"{directory}/{RING}"
        parts: list[HistoryPlugin[Any]] = [
            ActivityRecorder(holders=holders, earlier=partial(ticks_since, ring)),
            ProcessRecorder(),
        ]
        earlier = partial(frames_since, ring)
        recorder.followers.append(start_history(places, log, limits, directory, earlier, parts))


_DRIVER_GRACE_S = 1.5
"""After a signal, a driver call may take this many seconds. Together with `recorder.FINAL_WRITE_S`, this is less than 3
s."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service:
    """Samples in a thread until SIGTERM or SIGINT.

    `open_recorder`: function that opens the recorder. This may take as long as the driver needs to answer. `started`:
    called with the recorder afterward.
    """

    def __init__(self, open_recorder: Callable[[], Recorder], started: Callable[[Recorder], object]) -> None:
        self._open = open_recorder
        self._started = started
        self._stop = StopSign()
        self._recorder: Recorder | None = None
        self._error: BaseException | None = None
        # A pipe is used because a handler may interrupt the main thread at any point, even while it holds the lock of
        # an Event.
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_write, False)

    def run(self) -> None:
        """Sample until a signal arrives. If the sampling thread ended with an error, raise this error.

        If the driver hangs, this exits the process.
        """
        # The kernel may deliver a signal to any thread, and wakes only this thread. Python's handler in C writes a byte
        # to the pipe in the thread that received the signal.
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        worker = Thread(target=self._work, name="gpumon-sampler", daemon=True)
        worker.start()
        os.read(self._wakeup_read, 1)
        self._stop.set()
        worker.join(_DRIVER_GRACE_S)
        if worker.is_alive() and not (self._recorder and self._recorder.driver_released.is_set()):
            self._exit_without_driver()
        worker.join()  # the ledger writes its last rows
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._recorder = recorder = self._open()
            try:
                self._started(recorder)
            except BaseException:
                recorder.close()  # otherwise, readers would assume that the daemon is still running
                raise
            recorder.run(self._stop)
        except BaseException as error:
            self._error = error  # the main thread raises it
        finally:
            os.write(self._wakeup_write, b".")

    def _exit_without_driver(self) -> None:
        """Exit the process although the sampling thread still waits for the driver."""
        log_line(f"the driver did not answer within {_DRIVER_GRACE_S:g} s: stopped without waiting for it")
        if self._recorder is not None:
            self._recorder.abandon()
        os._exit(EXIT_OK)
