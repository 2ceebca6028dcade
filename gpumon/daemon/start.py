"""Starting a daemon: its directory, its ring, the ledger and history that follow it, its first frame."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpumon.analysis.holders import HolderWatch
from gpumon.clock import Clock
from gpumon.daemon.awaited_runs import runs_at
from gpumon.daemon.earlier import frames_since, newest_frames
from gpumon.daemon.log import say as _say
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampling import make_sampler
from gpumon.daemon.use_counter import UseCounter
from gpumon.errors import GpumonError
from gpumon.history.limits import USUAL_LIMITS, HistoryLimits
from gpumon.origin import Capability
from gpumon.paths import PLAYED, RING, Places, history_path, ledger_path, make_live_dir, make_tag_dir
from gpumon.ring.writer import NoRoom
from gpumon.sampler import Sampler
from gpumon.sources.base import KnowsDevices

if TYPE_CHECKING:
    from gpumon.history.part import HistoryPart
    from gpumon.recording.playback import Playback


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
    directory = make_live_dir(where)
    try:
        return _start(sampler, where, clock, directory, say, limits=limits, for_command=for_command)
    except NoRoom:
        # The last rung of the ladder: the disk is slow, but better than nothing.
        if where.explicit or not where.state:
            raise
        fallback = make_live_dir(where._replace(explicit=f"{where.state}/live"))
        return _start(sampler, where, clock, fallback, say, limits=limits, for_command=for_command)
    except OSError as error:  # full, read-only, or something else has the name of one of our files
        what = f"{error.filename}: " if error.filename else ""
        raise GpumonError(
            f"cannot keep live data in {directory} ({what}{error.strerror or error}): pass another --dir"
        ) from error


def _start(
    sampler: Sampler, where: Places, clock: Clock, directory: str, say: Callable[[str], None], *, limits: HistoryLimits,
    for_command: bool,
) -> Recorder:  # fmt: skip
    make_tag_dir(directory, everyone=where.uid == 0 and directory == where.system)
    try:
        recorder = Recorder(sampler, clock, directory, for_command=for_command)
    except BaseException:
        sampler.close()  # who is refused may try again
        raise
    recorder.say = say
    holders = HolderWatch()
    try:
        recorder.followers.append(UseCounter(lambda: recorder.writer, holders))
        _open_ledger(recorder, where, clock, say)
        _open_history(recorder, where, say, limits, holders)
        if isinstance(sampler.source, KnowsDevices):
            before = newest_frames(f"{directory}/{RING}", 1, clock.monotonic())
            sampler.source.remember([sample for frame in before for sample in frame.samples])
        recorder.take_one()
    except BaseException:
        recorder.close()
        raise
    return recorder


def _open_ledger(recorder: Recorder, where: Places, clock: Clock, say: Callable[[str], None]) -> None:
    """Let the ledger follow it, for the hardware of this machine, where there is something to keep, and a place."""
    path = ledger_path(where)
    if Capability.LIVE not in recorder.sampler.source.capabilities:
        _keep_played(recorder, where)
        return
    if not path:
        return
    from gpumon.ledger.recorder import LedgerRecorder  # SQLite: only a daemon needs it
    from gpumon.ledger.store import Store
    from gpumon.rapl import PackageEnergy

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
        from gpumon.history.recorder import start_history  # SQLite: only a daemon needs it
        from gpumon.process_history.part import ProcessPart

        directory = recorder.directory or ""
        ring = f"{directory}/{RING}"
        parts: list[HistoryPart] = [ActivityPart(holders=holders, earlier=partial(ticks_since, ring)), ProcessPart()]
        earlier = partial(frames_since, ring)
        recorder.followers.append(start_history(where, say, limits, directory, earlier, parts))
