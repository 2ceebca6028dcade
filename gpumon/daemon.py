"""The only place that knows both sides: a sampler's ticks go into a ring.

`Recorder` does it for a daemon, into a directory, and for a view without a daemon, into memory of
its own process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from gpumon.clock import LONGEST, SECOND, SHORTEST, Clock
from gpumon.errors import AlreadyRunning, GpumonError, RingError, UsageError
from gpumon.followers import LEDGER, Followers
from gpumon.frame import Frame, Tick
from gpumon.history.limits import USUAL_LIMITS, HistoryLimits
from gpumon.origin import Capability
from gpumon.paths import LOCK, RING, Places, history_path, ledger_path, make_live_dir, make_tag_dir
from gpumon.procfs import boot_id
from gpumon.ring.directory import RowsExhausted
from gpumon.ring.layout import STOPPED
from gpumon.ring.lock import WriterLock
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import FRAME_LADDER, NoRoom, RingWriter
from gpumon.sampler import Sampler
from gpumon.sources.base import Request
from gpumon.sources.host import HostSource
from gpumon.sources.registry import open_source
from gpumon.tags.reader import TagReader
from gpumon.text import clean

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback

_CHECK_EVERY = SECOND
_SMOOTH = 0.1
_MOST_REFUSALS = 100
_FRAMES_BEFORE = 256
"""Of an earlier daemon, which the ledger looks through for what was not written."""
LAST_WORDS = 1.0
"""Seconds for what the ledger has not yet written, where a driver that hangs must not delay the end."""


class LostDirectory(GpumonError):
    """The directory is another daemon's now, or gone."""


class _DaemonLog:
    """Lines for the daemon's log: frames that were lost, claims that were refused."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lost = 0
        self._claims: set[str] = set()
        """Keys of runs whose refusal was logged."""

    def round(self, writer: RingWriter, refused: Mapping[str, str]) -> None:
        """Log what is new after a round of sampling; `refused` as in `Sampler.refused`."""
        if writer.is_failing and not self._lost:
            self._say("frames cannot be stored, because the file system is full or failing; sampling continues")
        elif self._lost and not writer.is_failing:
            self._say(f"frames are stored again; {self._lost} were lost")
        self._lost = writer.lost_writes if writer.is_failing else 0
        for key, reason in refused.items():
            # Users make boards at will, and their claims are not to fill the log.
            if key not in self._claims and len(self._claims) < _MOST_REFUSALS:
                self._claims.add(key)
                self._say(clean(f"run {key} is not assigned a GPU that it claims: {reason}", 512))


class Recorder:
    """Stores ticks in a ring that it owns.

    The ring is made with the first tick, when the number of devices is known, and made anew when
    more devices come than it has rows, or when somebody cut or removed the file.
    """

    def __init__(self, sampler: Sampler, clock: Clock, directory: str | None = None, frames: int | None = None) -> None:
        self.sampler = sampler
        self.writer: RingWriter | None = None
        self.generation = 0
        """Counts the private rings that were given up for another."""
        self.say: Callable[[str], None] = _say
        self.followers = Followers(clock, self._tell)
        """Get every tick after the ring, and are closed with this recorder."""
        self._clock = clock
        self.directory = directory
        self._frames = frames
        self._lock = _lock(directory) if directory else None
        self._check_at = 0
        self._log = _DaemonLog(lambda text: self.say(text))
        self._former: RingWriter | None = None
        """A ring that has lost its place, for as long as it takes to make another."""
        self.has_let_go = Event()
        """Set once nothing is asked of the driver any more."""

    def store(self, tick: Tick) -> None:
        """Append a tick, in a new ring when it does not fit the old one."""
        if self.writer is None:
            self.writer = self._make(tick)
        try:
            self.writer.append(tick)
        except RowsExhausted:
            self.writer = self._make(tick)
            self.writer.append(tick)
        self.followers.add(tick)

    def heartbeat(self) -> None:
        """After each round: tell readers that we live, and see that the directory is still ours.

        Raises LostDirectory when another daemon took over, or the directory is gone.
        """
        writer, now = self.writer, self._clock.monotonic()
        if writer is None:
            return
        writer.heartbeat()
        writer.tell_ledger(self.followers.problem(LEDGER))
        if self._lock is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_EVERY
        self._log.round(writer, self.sampler.refused)
        self._see_lock(self._lock)
        if not (writer.is_at_path() and writer.intact()):
            # Removed, replaced, cut or overwritten by somebody: the next tick starts a new file, with what is left.
            self._former, self.writer = writer, None

    def _see_lock(self, lock: WriterLock) -> None:
        if lock.is_mine():
            return
        assert self.directory is not None
        if not os.path.isdir(self.directory):
            raise self._gone()
        if not lock.is_removed():
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops")
        try:
            self._lock = _lock(self.directory)  # only the lock was removed
        except AlreadyRunning as error:
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops") from error
        lock.release()

    def _gone(self) -> LostDirectory:
        return LostDirectory(
            f"{self.directory} is gone (removed, or its login session has ended): this daemon stops; "
            "start it again, or pass another --dir"
        )

    def run(self, stop: Event) -> None:
        """Sample until `stop` is set, then say so in the ring."""
        try:
            self.sampler.run(self.store, stop, self.heartbeat)
        finally:
            self.close()

    def _tell(self, line: str) -> None:
        self.say(line)  # which is set later

    def take_one(self) -> None:
        """One round, without waiting."""
        for tick in self.sampler.ticks():
            self.store(tick)

    def begin_anew(self) -> None:
        """Begin another private ring with the next tick: what comes does not follow what is there."""
        if self.writer is not None and self.directory is None:
            self.writer.close()
            self.writer = None
            self.generation += 1

    def open_ring(self) -> int:
        """A new descriptor of a private ring. Raises FileNotFoundError before the first tick."""
        if self.writer is None:
            raise FileNotFoundError(2, "no sample has been taken yet")
        return os.dup(self.writer.fd)

    def close(self) -> None:
        """Stop: let go of what is sampled, the ring and the lock. The ring's file stays."""
        self.sampler.close()
        self.has_let_go.set()
        self.followers.close()  # before the lock is let go: who comes next goes on from there
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def abandon(self) -> None:
        """Stop from another thread, while the sampling one hangs in a driver call; the process ends right after.

        The ring says that the writer stopped, and the lock is free: this process may not die before its driver call
        does, and then would hold it.
        """
        self.followers.close_within(LAST_WORDS)
        writer, lock = self.writer, self._lock
        with suppress(OSError):  # a ring that cannot be written says by its silence that nobody does
            if writer is not None:
                writer.heartbeat(STOPPED)
        if lock is not None:
            lock.release()

    def _make(self, tick: Tick) -> RingWriter:
        interval, origin = self.sampler.interval_ns, tick.origin
        uuids = {sample.device.uuid for sample in tick.samples}
        if self.directory is None:
            former, self.writer = self.writer, None
            writer = RingWriter.private(
                len(uuids), interval, self._frames or FRAME_LADDER[0], former=former.fd if former else None, uuids=uuids
            )
            if former is not None:
                former.close()
            return writer
        # A recording begins anew each time; what was sampled from hardware goes on.
        continues = origin.source if Capability.NOW in origin.capabilities else None
        former, self._former = self.writer or self._former, None
        self.writer = None
        try:
            return RingWriter.create(
                f"{self.directory}/{RING}", len(uuids), interval, continues=continues,
                former=former.fd if former else None, uuids=uuids,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise self._gone() from error
        except IsADirectoryError as error:
            raise LostDirectory(
                f"{self.directory}/{RING} is a directory: this daemon stops; remove it, and start it again"
            ) from error
        finally:
            if former is not None:
                os.close(former.fd)


def make_sampler(
    spec: str,
    where: Places,
    clock: Clock,
    interval: float,
    speed: float = 1.0,
    *,
    past: bool = True,
    playback: Playback | None = None,
) -> Sampler:
    """A sampler for `--source`. Host and tags belong to it when the source is this machine, now.

    `past`: also the runs that were over long before, once, for a ledger; `playback`: of a recording.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise UsageError(f"--interval is {SHORTEST:g} to {LONGEST:g} seconds, not {interval:g}")
    host = HostSource(clock)
    source = open_source(spec, Request("", clock, host.processes.describe, speed, playback))
    if Capability.LIVE not in source.capabilities:
        # Often enough that a fast recording moves smoothly; every tick of it is stored all the same.
        return Sampler(
            source, clock, min(interval, max(_SMOOTH, source.tick_period)) if source.tick_period else interval
        )
    return Sampler(source, clock, interval, host, TagReader(where, clock=clock, past=past))


class PrivateSampler:
    """A sampler in a thread of this process, for a view without a daemon."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.failure: Exception | None = None
        """Error that ended sampling early; None if there was none."""
        self._stop = Event()
        # A daemon thread: a driver call that hangs must not keep the view from ending.
        self._thread = Thread(target=self._run, name="gpumon-sampler", daemon=True)

    def start(self) -> PrivateSampler:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask it to end, and wait a moment."""
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self.recorder.run(self._stop)
        except Exception as error:
            self.failure = error  # shown by the view, which keeps what it has


def _say(text: str) -> None:
    print(f"gpumon: {text}", file=sys.stderr, flush=True)


def open_daemon(
    where: Places,
    spec: str,
    interval: float,
    speed: float,
    clock: Clock,
    say: Callable[[str], None] = _say,
    playback: Playback | None = None,
    limits: HistoryLimits = USUAL_LIMITS,
) -> Recorder:
    """A recorder that has its directory, its lock and its first frame. `say` is told, in a line, what goes wrong later.

    Raises AlreadyRunning, SourceError, UsageError or GpumonError, each with what to do.
    """
    sampler = make_sampler(spec, where, clock, interval, speed, playback=playback)
    directory = make_live_dir(where)
    try:
        return _start(sampler, where, clock, directory, say, limits=limits)
    except NoRoom:
        # The last rung of the ladder: the disk is slow, but better than nothing.
        if where.explicit or not where.state:
            raise
        fallback = make_live_dir(where._replace(explicit=f"{where.state}/live"))
        return _start(sampler, where, clock, fallback, say, limits=limits)
    except OSError as error:  # full, read-only, or something else has the name of one of our files
        what = f"{error.filename}: " if error.filename else ""
        raise GpumonError(
            f"cannot keep live data in {directory} ({what}{error.strerror or error}): pass another --dir"
        ) from error


def _start(
    sampler: Sampler, where: Places, clock: Clock, directory: str, say: Callable[[str], None], *, limits: HistoryLimits
) -> Recorder:
    make_tag_dir(directory, everyone=where.uid == 0 and directory == where.system)
    try:
        recorder = Recorder(sampler, clock, directory)
    except BaseException:
        sampler.close()  # who is refused may try again
        raise
    recorder.say = say
    try:
        _open_ledger(recorder, where, clock, say)
        _open_history(recorder, where, say, limits)
        recorder.take_one()
    except BaseException:
        recorder.close()
        raise
    return recorder


def _open_ledger(recorder: Recorder, where: Places, clock: Clock, say: Callable[[str], None]) -> None:
    """Let the ledger follow it, for the hardware of this machine, where there is something to keep, and a place."""
    path = ledger_path(where)
    if Capability.LIVE not in recorder.sampler.source.capabilities or not path:
        return
    from gpumon.ledger.recorder import LedgerRecorder  # SQLite: only a daemon needs it
    from gpumon.ledger.store import Store

    shared = where.uid == 0 and os.path.dirname(path) == where.system_state
    store = Store(path, where.uid, say, shared=shared).start()
    ledger = LedgerRecorder(store)
    ledger.remember(_frames_before(f"{recorder.directory}/{RING}", clock.monotonic()))
    recorder.followers.append(ledger)


def _open_history(recorder: Recorder, where: Places, say: Callable[[str], None], limits: HistoryLimits) -> None:
    """Let history follow it, for the hardware of this machine, where there is a place."""
    if Capability.LIVE in recorder.sampler.source.capabilities and history_path(where):
        from gpumon.history.recorder import start_history  # SQLite: only a daemon needs it

        recorder.followers.append(start_history(where, say, limits))


def _frames_before(path: str, now: int) -> list[Frame]:
    """Frames that a killed daemon left in its ring: the ledger still lacks the last seconds of them."""
    try:
        reader = RingReader.open(path)
    except (OSError, RingError):
        return []
    try:
        newest = reader.newest()
        if newest is None or reader.written_by.boot_id != boot_id():
            return []
        frames = reader.since(newest.number - _FRAMES_BEFORE, _FRAMES_BEFORE)
    except RingError:
        return []
    finally:
        reader.close()
    return [frame for frame in frames if frame.monotonic_ns <= now]


def _lock(directory: str) -> WriterLock:
    return WriterLock(f"{directory}/{LOCK}", lambda: _heartbeat_age(f"{directory}/{RING}"))


def _heartbeat_age(path: str) -> float:
    """Seconds since the ring's writer was heard; 0 when there is no ring to tell."""
    try:
        reader = RingReader.open(path)
    except (OSError, RingError):
        return 0.0
    try:
        return reader.heartbeat().age
    except RingError:
        return 0.0
    finally:
        reader.close()
