"""Starting a daemon: its directory, its ring, the ledger and history that follow it, its first frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import Clock
from gpumon.common.errors import GpumonError
from gpumon.common.paths import PLAYED, RING, Places, history_path, ledger_path, make_live_dir, make_tag_dir
from gpumon.daemon.awaited_runs import runs_at
from gpumon.daemon.earlier import frames_since, newest_frames
from gpumon.daemon.log import say as _say
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampling import make_sampler
from gpumon.daemon.use_counter import UseCounter
from gpumon.model.frame import Tick
from gpumon.model.origin import Capability
from gpumon.ring.writer import NO_ROOM, NoRoom
from gpumon.sampler import Sampler
from gpumon.sources.base import KnowsDevices
from gpumon.storage.history.tiers import USUAL_LIMITS, HistoryLimits

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback
    from gpumon.storage.history.recorder import HistoryPart


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
        from gpumon.daemon.activity import ActivityPart
        from gpumon.daemon.unwritten import ticks_since
        from gpumon.storage.history.recorder import start_history  # SQLite: only a daemon needs it
        from gpumon.storage.processes.recorder import ProcessPart

        directory = recorder.directory or ""
        ring = f"{directory}/{RING}"
        parts: list[HistoryPart] = [ActivityPart(holders=holders, earlier=partial(ticks_since, ring)), ProcessPart()]
        earlier = partial(frames_since, ring)
        recorder.followers.append(start_history(where, say, limits, directory, earlier, parts))
