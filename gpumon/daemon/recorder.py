"""Storing ticks in a ring, for as long as its directory is ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Event

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND, Clock, Sign
from gpumon.common.driver_calls import FILE, SHARE, DriverCall, write_calls
from gpumon.common.errors import AlreadyRunning, GpumonError, RingError
from gpumon.common.paths import LOCK, RING
from gpumon.common.text import clean
from gpumon.daemon.sampler import Sampler
from gpumon.model.frame import Tick
from gpumon.model.origin import Capability
from gpumon.ring.directory import RowsExhausted
from gpumon.ring.layout import STOPPED, Layout
from gpumon.ring.lock import NO_INODE, WriterLock, inode_at
from gpumon.ring.reader import RingReader
from gpumon.ring.sums import SumPlace, read_sums, write_sums
from gpumon.ring.takeover import SPARE_ROWS
from gpumon.ring.writer import FRAME_LADDER, NoRoom, RingWriter
from gpumon.sources.base import AsksDriver, Source
from gpumon.storage.follower import HISTORY, LEDGER, Followers
from gpumon.storage.usage.counters import UseMeter

_FIRST, _EVERY = 2 * SECOND, 30 * SECOND
"""ns: soon after the start, for who looks whether all is well, and then seldom."""


class CallsFile:
    """Keeps the file of a daemon's directory."""

    def __init__(self, source: Source | AsksDriver, directory: str, say: Callable[[str], None]) -> None:
        self._source = source
        self._directory = directory
        self._say = say
        self._due = 0
        self._wait = _FIRST
        self._slow: set[str] = set()
        self._is_failing = False

    def round(self, now: int) -> None:
        """Write it where it is time; `now` in ns. Never raises: it costs no sample."""
        if now < self._due or not isinstance(self._source, AsksDriver):
            return
        self._due = now + self._wait
        self._wait = min(_EVERY, 2 * self._wait)
        calls = self._source.driver_calls()
        for call in calls:
            if call.every and call.function not in self._slow:
                self._slow.add(call.function)
                self._say(slow(call))
        try:
            write_calls(self._directory, calls)
            self._is_failing = False
        except FileNotFoundError:
            self._is_failing = True  # the directory is gone: the recorder says so, and stops
        except OSError as error:
            if not self._is_failing:
                self._say(f"the costs of driver calls cannot be kept: {error.strerror or error}")
            self._is_failing = True

    def close(self) -> None:
        """Remove the file: what a daemon's calls cost is of that daemon."""
        with suppress(OSError):  # it was never written, or its directory is gone
            os.unlink(f"{self._directory}/{FILE}")


def slow(call: DriverCall) -> str:
    """Return a line on a call that has turned slow."""
    return (
        f"{call.function} takes {1000 * SHARE * call.every:.0f} ms and more for a GPU: it is made every "
        f"{call.every:.1f} s there instead of at each sample"
    )


_MOST_REFUSALS = 100


class DaemonLog:
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


def say(text: str) -> None:
    """Print a line of the daemon's log."""
    print(f"gpumon: {text}", file=sys.stderr, flush=True)


_CHECK_EVERY = SECOND
_RENEW_EVERY = 10 * SECOND
"""ns between two tries to make a ring anew: each reads an hour of frames."""
LAST_WORDS = 1.0
"""Seconds for what the ledger has not yet written, where a driver that hangs must not delay the end."""


class LostDirectory(GpumonError):
    """The directory is another daemon's now, or gone."""


class Recorder:
    """Stores ticks in a ring that it owns.

    The ring is made with the first tick, when the number of devices is known, and made anew when
    more devices come than it has rows, then with some to spare, or when somebody cut or removed the file.
    """

    def __init__(
        self, sampler: Sampler, clock: Clock, directory: str | None = None, frames: int | None = None, *,
        for_command: bool = False,
    ) -> None:  # fmt: skip
        self.sampler = sampler
        self.writer: RingWriter | None = None
        self.generation = 0
        """Counts the private rings that were given up for another."""
        self.say: Callable[[str], None] = say
        self.followers = Followers(clock, self._tell)
        """Get every tick after the ring, and are closed with this recorder."""
        self._clock = clock
        self.directory = directory
        self._frames = frames
        self._for_command = for_command
        self._lock = _lock(directory, for_command) if directory else None
        self._inode = inode_at(directory) if directory else NO_INODE
        self._check_at = self._renew_at = 0
        self._told: set[str] = set()
        """What is wrong with the directory, as the log has it; empty once all is well again."""
        self._heard = 0
        """Number of the newest frame at the last heartbeat."""
        self._log = DaemonLog(lambda text: self.say(text))
        self._calls = CallsFile(sampler.source, directory, self._tell) if directory else None
        self._publishes = True
        """Whether a new ring has its name with its first frame."""
        self._former: RingWriter | None = None
        """A ring that has lost its place, for as long as it takes to make another."""
        self._has_begun = False
        """Whether there was a first ring."""
        self.has_caught_up = False
        """Whether a whole round of ticks is stored: the first one of a simulation begins minutes before now."""
        self._ended = -1
        """A descriptor of a private ring that is closed: it has no name, and its readers may ask for it again."""
        self.has_let_go = Event()
        """Set once nothing is asked of the driver any more."""

    def store(self, tick: Tick) -> None:
        """Append a tick, in a new ring when it does not fit the old one.

        Raises what keeps the first ring from being made; later, a frame that cannot be stored is lost.
        """
        self.open_ring_for(tick)
        if self.writer is not None:
            try:
                self.writer.append(tick)
            except RowsExhausted:
                if self._renew(tick, SPARE_ROWS):
                    self.writer.append(tick)
                else:
                    self.writer.lost()
            if self._publishes:
                self._publish(self.writer)
        self.followers.add(tick)

    def open_ring_for(self, tick: Tick) -> None:
        """Make the ring for a tick where there is none; it has its name once the tick is stored."""
        if self.writer is None and not self._has_begun:
            self.writer = self._make(tick)
            self._has_begun = True
        elif self.writer is None:
            self._renew(tick)

    def heartbeat(self) -> None:
        """After each round: tell readers that we live, and see that the directory is still ours.

        Raises LostDirectory when another daemon took over, or the directory is gone.
        """
        writer, now = self.writer, self._clock.monotonic()
        if not self._has_begun:
            return
        self.has_caught_up = True
        if writer is not None:
            if writer.head == self._heard:  # else a new frame has said that we live
                writer.heartbeat()
            self._heard = writer.head
            writer.tell_kept(self.followers.problem(LEDGER), self.followers.problem(HISTORY))
        if self._lock is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_EVERY
        if writer is not None:
            self._log.round(writer, self.sampler.refused)
        try:
            self._see_lock(self._lock)
            if writer is not None and not (writer.is_at_path() and writer.intact()):
                # Removed, replaced, cut or overwritten by somebody: the next tick starts a new file, with what is left.
                self._former, self.writer = writer, None
        except OSError as error:  # no permission, a disk or a network that fails: it says nothing of what is there
            self._tell_once(f"{self.directory} cannot be checked ({error.strerror or error}): sampling continues")
        else:
            if self.writer is not None:
                self._told.clear()
        if self._calls is not None:
            self._calls.round(now)

    def _see_lock(self, lock: WriterLock) -> None:
        if lock.is_mine():
            return
        assert self.directory is not None
        found = inode_at(self.directory)
        # Where the state directory lies in it, what we keep there made a directory of its name anew.
        if found == NO_INODE or (lock.is_removed() and found != self._inode):
            raise self._gone()
        if not lock.is_removed():
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops")
        try:
            self._lock = _lock(self.directory, self._for_command)  # only the lock was removed
        except AlreadyRunning as error:
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops") from error
        except GpumonError as error:
            self._tell_once(f"the lock of {self.directory} cannot be made anew ({error}): sampling continues")
            return
        lock.release()

    def _gone(self) -> LostDirectory:
        return LostDirectory(
            f"{self.directory} is gone (removed, or its login session has ended): this daemon stops; "
            "start it again, or pass another --dir"
        )

    def run(self, stop: Sign) -> None:
        """Sample until `stop` is set, then say so in the ring."""
        try:
            self.sampler.run(self.store, stop, self.heartbeat)
        finally:
            self.close()

    def _tell(self, line: str) -> None:
        self.say(line)  # which is set later

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self.say(line)

    def take_one(self, ticks: Iterable[Tick] | None = None) -> None:
        """One round, without waiting; a new ring of what is no hardware is published once all of it is there.

        `ticks`: those of a round that has begun. A simulation begins with minutes that it makes up: who saw these come
        would take them for now.
        """
        self._publishes = Capability.LIVE in self.sampler.source.capabilities
        for tick in self.sampler.ticks() if ticks is None else ticks:
            self.store(tick)
        self._publishes = True
        if self.writer is not None:
            self._publish(self.writer)

    def begin_anew(self) -> None:
        """Begin another private ring with the next tick: what comes does not follow what is there."""
        if self.writer is not None and self.directory is None:
            self.writer.close()
            self.writer = None
            self.generation += 1

    def open_ring(self) -> int:
        """A new descriptor of a private ring, closed or not. Raises FileNotFoundError before the first tick."""
        ring = self.writer.fd if self.writer is not None else self._ended
        if ring < 0:
            raise FileNotFoundError(2, "no sample has been taken yet")
        return os.dup(ring)

    def close(self) -> None:
        """Stop: let go of what is sampled, the ring and the lock. The ring's file stays."""
        self.sampler.close()
        self.leave()

    def leave(self) -> None:
        """Let go of the ring and the lock alone: sampling goes on elsewhere."""
        self.has_let_go.set()
        if self._calls is not None:
            self._calls.close()
        self.followers.close()  # before the lock is let go: who comes next goes on from there
        if self.writer is not None:
            if self.directory is None:
                self._ended = os.dup(self.writer.fd)
            self.writer.close()
            self.writer = None
        if self._former is not None:
            os.close(self._former.fd)
            self._former = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def abandon(self) -> None:
        """Stop from another thread, while the sampling one hangs in a driver call; the process ends right after.

        The ring says that the writer stopped, and the lock is free: this process may not die before its driver call
        does, and then would hold it.
        """
        if self._calls is not None:
            self._calls.close()
        self.followers.close_within(LAST_WORDS)
        if self.writer is not None:
            self.writer.heartbeat(STOPPED)
        if self._lock is not None:
            self._lock.release()

    def _renew(self, tick: Tick, spare: int = 0) -> bool:
        """Put a new ring in the place of one that is lost or too small; false while that cannot be done."""
        now = self._clock.monotonic()
        if now < self._renew_at:
            return False
        try:
            self.writer = self._make(tick, spare)
        except (OSError, NoRoom) as error:
            self._renew_at = now + _RENEW_EVERY
            why = error.strerror if isinstance(error, OSError) else None
            self._tell_once(f"{self.directory}/{RING} cannot be made anew ({why or error}): sampling continues")
            return False
        return True

    def _publish(self, writer: RingWriter) -> None:
        """Give a new ring its name; where that is not possible any more, the next check makes another."""
        try:
            writer.publish()
        except IsADirectoryError as error:
            raise LostDirectory(
                f"{self.directory}/{RING} is a directory: this daemon stops; move it away, and start it again"
            ) from error
        except OSError as error:
            if not self.has_caught_up:
                raise  # it has just begun
            self._tell_once(
                f"{self.directory}/{RING} cannot be made anew ({error.strerror or error}): sampling continues"
            )

    def _make(self, tick: Tick, spare: int = 0) -> RingWriter:
        interval, origin = self.sampler.interval_ns, tick.origin
        uuids = {sample.device.uuid for sample in tick.samples}
        if self.directory is None:
            former = self.writer
            writer = RingWriter.private(
                len(uuids), interval, self._frames or FRAME_LADDER[0],
                former=former.fd if former else None, uuids=uuids, spare=spare,
            )  # fmt: skip
            if former is not None:
                former.close()
            return writer
        former = self.writer or self._former
        # A recording begins anew each time, and a simulation with its runs; what was sampled from hardware goes on.
        goes_on = Capability.LIVE in origin.capabilities or (former and Capability.NOW in origin.capabilities)
        continues = origin.source if goes_on else None
        try:
            writer = RingWriter.create(
                f"{self.directory}/{RING}", len(uuids), interval, continues=continues,
                former=former.fd if former else None, uuids=uuids, spare=spare, publish=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise self._gone() from error
        self._former = None
        if former is not None:
            os.close(former.fd)
        return writer


def _lock(directory: str, for_command: bool) -> WriterLock:
    return WriterLock(f"{directory}/{LOCK}", lambda: _heartbeat_age(f"{directory}/{RING}"), for_command=for_command)


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


class UseCounter:
    """Follows every tick. `writer` gives the ring that is written now, with the sums of the one before it.

    `holders` judges the ticks, maybe for others too.
    """

    name = "use"
    writes = "counters of use"

    def __init__(self, writer: Callable[[], RingWriter | None], holders: HolderWatch | None = None) -> None:
        self._writer = writer
        self._holders = holders or HolderWatch()
        self._meter: UseMeter | None = None
        self._problem = ""
        self._layout: Layout | None = None
        """Of the ring that `_place` is in."""
        self._place = SumPlace(0, 0)

    @property
    def problem(self) -> str:
        return self._problem

    def add(self, tick: Tick) -> None:
        writer = self._writer()
        if writer is None:
            return
        layout = writer.layout
        if layout is not self._layout:
            self._layout, self._place = layout, SumPlace.of(layout)
        fd, place = writer.fd, self._place
        if not place.room:
            return
        if self._meter is None:
            self._meter = UseMeter(read_sums(fd, layout), tick.time_ns, place.room, self._holders)
        if not self._meter.add(tick):
            return
        number, names, times, rows = self._meter.record()
        try:
            write_sums(fd, place, number, names, times, rows)
            self._problem = ""
        except OSError as error:
            self._problem = f"counters of use cannot be stored: {error.strerror or error}"

    def close(self) -> None:
        """Leave the ring as it is: the daemon that comes next goes on from its sums."""
