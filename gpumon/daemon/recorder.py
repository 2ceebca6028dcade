"""Stores ticks in the ring and passes them to followers, as long as this daemon owns the directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
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
from gpumon.ring.sums import SumLocation, read_sums, write_sums
from gpumon.ring.takeover import SPARE_ROWS
from gpumon.ring.writer import FRAME_LADDER, NoRoom, RingWriter
from gpumon.sources.base import HasDriverCalls, Source
from gpumon.storage.follower import HISTORY, LEDGER, Followers
from gpumon.storage.usage.counters import UseMeter

_FIRST_WRITE, _WRITE_EVERY = 2 * SECOND, 30 * SECOND
"""Intervals between writes, in ns. The first write is made soon after the start, when users check the daemon. After
each write, the interval doubles until it is `_WRITE_EVERY`."""


class DriverCallFile:
    """Writes a file with the durations of driver calls into the daemon's directory."""

    def __init__(self, source: Source | HasDriverCalls, directory: str, log: Callable[[str], None]) -> None:
        self._source = source
        self._directory = directory
        self._log = log
        self._due = 0
        self._wait = _FIRST_WRITE
        self._slow: set[str] = set()
        self._is_failing = False

    def update(self, now: int) -> None:
        """Write the file if the next write is due.

        Never raises, because a failed write must not cause the loss of a sample.

        `now`: ns of the monotonic clock.
        """
        if now < self._due or not isinstance(self._source, HasDriverCalls):
            return
        self._due = now + self._wait
        self._wait = min(_WRITE_EVERY, 2 * self._wait)
        calls = self._source.driver_calls()
        for call in calls:
            if call.every and call.function not in self._slow:
                self._slow.add(call.function)
                self._log(slow_call_message(call))
        try:
            write_calls(self._directory, calls)
            self._is_failing = False
        except FileNotFoundError:
            self._is_failing = True  # the directory is gone; the recorder reports this and stops
        except OSError as error:
            if not self._is_failing:
                self._log(f"the durations of driver calls cannot be written: {error.strerror or error}")
            self._is_failing = True

    def close(self) -> None:
        """Remove the file, because it describes only calls of this daemon."""
        with suppress(OSError):  # the file was never written, or its directory is gone
            os.unlink(f"{self._directory}/{FILE}")


def slow_call_message(call: DriverCall) -> str:
    """Return the log line about a driver call that has become slow."""
    return (
        f"{call.function} takes {1000 * SHARE * call.every:.0f} ms or more per GPU: it is called only every "
        f"{call.every:.1f} s for these GPUs, not at each sample"
    )


_MAX_REFUSALS_LOGGED = 100


class DaemonLog:
    """Logs lost frames and rejected GPU claims of runs. Each run with a rejected claim is logged only once."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._lost_frames = 0
        self._logged_runs: set[str] = set()
        """Keys of runs whose rejected claim was logged."""

    def update(self, writer: RingWriter, refused: Mapping[str, str]) -> None:
        """Log what has changed since the last call. `refused`: see `Sampler.refused`."""
        if writer.is_failing and not self._lost_frames:
            self._log("frames cannot be stored, because the file system is full or failing; sampling continues")
        elif self._lost_frames and not writer.is_failing:
            self._log(f"frames are stored again; {self._lost_frames} frames were lost")
        self._lost_frames = writer.lost_writes if writer.is_failing else 0
        for key, reason in refused.items():
            # Any user can create boards, so claims must not fill the log.
            if key not in self._logged_runs and len(self._logged_runs) < _MAX_REFUSALS_LOGGED:
                self._logged_runs.add(key)
                self._log(clean(f"run {key} is not assigned a GPU that it claims: {reason}", 512))


def log_line(text: str) -> None:
    """Print a line of the daemon's log to stderr."""
    print(f"gpumon: {text}", file=sys.stderr, flush=True)


_CHECK_EVERY = SECOND
_RENEW_EVERY = 10 * SECOND
"""Minimum ns between two attempts to replace a lost ring. Each attempt reads an hour of frames."""
FINAL_WRITE_S = 1.0
"""If the driver hangs, followers may take at most this many seconds to write their last rows, so that the exit is not
delayed."""


class LostDirectory(GpumonError):
    """Raised if the directory was removed, or another daemon has taken it over."""


class Recorder:
    """Stores ticks in a ring that it owns.

    The ring is created with the first tick, which shows the number of devices. It is replaced if there are more devices
    than rows, or if its file was removed or damaged. The new ring has spare rows.
    """

    def __init__(
        self, sampler: Sampler, clock: Clock, directory: str | None = None, frames: int | None = None, *,
        for_command: bool = False,
    ) -> None:  # fmt: skip
        self.sampler = sampler
        self.writer: RingWriter | None = None
        self.generation = 0
        """Number of times the ring in memory has been replaced."""
        self.log: Callable[[str], None] = log_line
        self.followers = Followers(clock, self._log_now)
        """The followers receive each tick after it is stored in the ring. They are closed with this recorder."""
        self._clock = clock
        self.directory = directory
        self._frames = frames
        self._for_command = for_command
        self._lock = _acquire_lock(directory, for_command) if directory else None
        self._inode = inode_at(directory) if directory else NO_INODE
        self._check_at = self._renew_at = 0
        self._logged: set[str] = set()
        """Problems of the directory that were logged. Cleared when the problems are over, so that they can be logged
        again."""
        self._heartbeat_head = 0
        """Number of the newest frame at the last heartbeat."""
        self._daemon_log = DaemonLog(self._log_now)
        self._calls = DriverCallFile(sampler.source, directory, self._log_now) if directory else None
        self._publishes = True
        """True if there is a new ring file. It gets its final name when it has its first frame."""
        self._previous: RingWriter | None = None
        """The previous ring, while its file is removed or damaged and has not been replaced yet."""
        self._has_begun = False
        """True once the first ring has been created."""
        self.has_full_round = False
        """True after a whole round of ticks was stored. The first round of a simulation starts several minutes in the
        past."""
        self._closed_ring = -1
        """Descriptor of the ring in memory after the ring was closed, or -1. The ring has no file name, but readers may
        still open it."""
        self.driver_released = Event()
        """Event that is set when no further driver call will be made."""

    def store(self, tick: Tick) -> None:
        """Store a tick. If it does not fit into the current ring, create a new ring.

        Raises OSError or NoRoom if the first ring cannot be created. A later tick that cannot be stored is only counted
        as lost.
        """
        self.ensure_ring(tick)
        if self.writer is not None:
            try:
                self.writer.append(tick)
            except RowsExhausted:
                if self._renew(tick, SPARE_ROWS):
                    self.writer.append(tick)
                else:
                    self.writer.count_lost()
            if self._publishes:
                self._publish(self.writer)
        self.followers.add(tick)

    def ensure_ring(self, tick: Tick) -> None:
        """Create a ring for a tick if there is none. Its file gets its final name after the tick is stored."""
        if self.writer is None and not self._has_begun:
            self.writer = self._create_ring(tick)
            self._has_begun = True
        elif self.writer is None:
            self._renew(tick)

    def heartbeat(self) -> None:
        """Publish a heartbeat, and check once a second whether the directory is still ours.

        Raises LostDirectory if another daemon has taken the directory over, or if it was removed.
        """
        writer, now = self.writer, self._clock.monotonic()
        if not self._has_begun:
            return
        self.has_full_round = True
        if writer is not None:
            if writer.head == self._heartbeat_head:  # a new frame counts as a heartbeat
                writer.heartbeat()
            self._heartbeat_head = writer.head
            writer.set_storage_problems(self.followers.problem(LEDGER), self.followers.problem(HISTORY))
        if self._lock is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_EVERY
        if writer is not None:
            self._daemon_log.update(writer, self.sampler.refused)
        try:
            self._check_lock(self._lock)
            if writer is not None and not (writer.is_at_path() and writer.is_intact()):
                # The file was removed, replaced, truncated or overwritten. The next tick creates a new file with the
                # frames that can still be read.
                self._previous, self.writer = writer, None
        except OSError as error:  # the directory may be intact; a disk, the network or a permission may have failed
            self._log_once(f"{self.directory} cannot be checked ({error.strerror or error}): sampling continues")
        else:
            if self.writer is not None:
                self._logged.clear()
        if self._calls is not None:
            self._calls.update(now)

    def _check_lock(self, lock: WriterLock) -> None:
        """Acquire the lock again if only its file was removed. Raises LostDirectory if the directory is not ours."""
        if lock.is_mine():
            return
        assert self.directory is not None
        inode = inode_at(self.directory)
        # A removed directory may exist again. Writing a state file below it recreates it, with another inode.
        if inode == NO_INODE or (lock.is_removed() and inode != self._inode):
            raise self._directory_gone()
        if not lock.is_removed():
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops")
        try:
            self._lock = _acquire_lock(self.directory, self._for_command)  # only the lock was removed
        except AlreadyRunning as error:
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops") from error
        except GpumonError as error:
            self._log_once(f"the lock of {self.directory} cannot be created again ({error}): sampling continues")
            return
        lock.release()

    def _directory_gone(self) -> LostDirectory:
        return LostDirectory(
            f"{self.directory} is gone (removed, or its login session has ended): this daemon stops; "
            "start it again, or pass another --dir"
        )

    def run(self, stop: Sign) -> None:
        """Sample until `stop` is set, then record in the ring that sampling has stopped."""
        try:
            self.sampler.run(self.store, stop, self.heartbeat)
        finally:
            self.close()

    def _log_now(self, line: str) -> None:
        self.log(line)  # looked up at each call, because `log` is set after the constructor

    def _log_once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            self.log(line)

    def sample_once(self, ticks: Iterable[Tick] | None = None) -> None:
        """Sample once, without waiting. `ticks`: the ticks of a round that has already started; None to start a round.

        A simulation starts with several minutes of simulated past. Its ring is published only when all of them are
        stored. Otherwise, a reader would take them for live samples.
        """
        self._publishes = Capability.LIVE in self.sampler.source.capabilities
        for tick in self.sampler.ticks() if ticks is None else ticks:
            self.store(tick)
        self._publishes = True
        if self.writer is not None:
            self._publish(self.writer)

    def restart(self) -> None:
        """Close the ring in memory, so that the next tick starts another ring.

        This is needed after a jump in a recording, because later ticks do not continue the earlier ones.
        """
        if self.writer is not None and self.directory is None:
            self.writer.close()
            self.writer = None
            self.generation += 1

    def open_ring(self) -> int:
        """Return a new file descriptor of the ring in memory, even after `close`.

        Raises FileNotFoundError before the first tick.
        """
        ring = self.writer.fd if self.writer is not None else self._closed_ring
        if ring < 0:
            raise FileNotFoundError(2, "no sample has been taken yet")
        return os.dup(ring)

    def close(self) -> None:
        """Close the sampler and the ring, and release the lock. The file of the ring stays."""
        self.sampler.close()
        self.release()

    def release(self) -> None:
        """Close the ring and release the lock.

        The sampler stays open, because sampling may continue with a ring in another directory.
        """
        self.driver_released.set()
        if self._calls is not None:
            self._calls.close()
        self.followers.close()  # before the lock is released, because the next daemon continues their files
        if self.writer is not None:
            if self.directory is None:
                self._closed_ring = os.dup(self.writer.fd)
            self.writer.close()
            self.writer = None
        if self._previous is not None:
            os.close(self._previous.fd)
            self._previous = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def abandon(self) -> None:
        """Stop while the sampling thread hangs in a driver call. Called from another thread just before the exit.

        The ring is marked as stopped and the lock is released explicitly. Otherwise, the kernel might keep this
        process, and with it the lock, until the driver call ends.
        """
        if self._calls is not None:
            self._calls.close()
        self.followers.close_within(FINAL_WRITE_S)
        if self.writer is not None:
            self.writer.heartbeat(STOPPED)
        if self._lock is not None:
            self._lock.release()

    def _renew(self, tick: Tick, spare: int = 0) -> bool:
        """Replace a ring that is lost or too small. Return False if this is not possible at the moment.

        `spare`: number of spare device rows in the new ring.
        """
        now = self._clock.monotonic()
        if now < self._renew_at:
            return False
        try:
            self.writer = self._create_ring(tick, spare)
        except (OSError, NoRoom) as error:
            self._renew_at = now + _RENEW_EVERY
            reason = error.strerror if isinstance(error, OSError) else None
            self._log_once(f"{self.directory}/{RING} cannot be created again ({reason or error}): sampling continues")
            return False
        return True

    def _publish(self, writer: RingWriter) -> None:
        """Give a new ring file its final name. If this fails, the next check of the directory creates another ring."""
        try:
            writer.publish()
        except IsADirectoryError as error:
            raise LostDirectory(
                f"{self.directory}/{RING} is a directory: this daemon stops; move it away, and start it again"
            ) from error
        except OSError as error:
            if not self.has_full_round:
                raise  # the daemon has only just started, so report the error to the user
            self._log_once(
                f"{self.directory}/{RING} cannot be created again ({error.strerror or error}): sampling continues"
            )

    def _create_ring(self, tick: Tick, spare: int = 0) -> RingWriter:
        interval, origin = self.sampler.interval_ns, tick.origin
        uuids = {sample.device.uuid for sample in tick.samples}
        if self.directory is None:
            previous = self.writer
            writer = RingWriter.private(
                len(uuids), interval, self._frames or FRAME_LADDER[0],
                former=previous.fd if previous else None, uuids=uuids, spare=spare,
            )  # fmt: skip
            if previous is not None:
                previous.close()
            return writer
        previous = self.writer or self._previous
        # A recording or a simulation starts with an empty ring. Samples of hardware continue the samples in the earlier
        # ring.
        is_continued = Capability.LIVE in origin.capabilities or (previous and Capability.NOW in origin.capabilities)
        continues = origin.source if is_continued else None
        try:
            writer = RingWriter.create(
                f"{self.directory}/{RING}", len(uuids), interval, continues=continues,
                former=previous.fd if previous else None, uuids=uuids, spare=spare, publish=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise self._directory_gone() from error
        self._previous = None
        if previous is not None:
            os.close(previous.fd)
        return writer


def _acquire_lock(directory: str, for_command: bool) -> WriterLock:
    return WriterLock(f"{directory}/{LOCK}", lambda: _heartbeat_age(f"{directory}/{RING}"), for_command=for_command)


def _heartbeat_age(path: str) -> float:
    """Return the seconds since the last heartbeat in the ring, or 0 if there is no ring."""
    try:
        with closing(RingReader.open(path)) as reader:
            return reader.heartbeat().age
    except (OSError, RingError):
        return 0.0


class UsageCounters:
    """Adds up the usage of users and GPUs at each tick, in the part of the ring that survives a restart.

    `writer`: function that returns the current ring, or None. `holders`: determines who holds each GPU; may be shared
    with other followers.
    """

    name = "use"
    writes = "usage counters"

    def __init__(self, writer: Callable[[], RingWriter | None], holders: HolderWatch | None = None) -> None:
        self._writer = writer
        self._holders = holders or HolderWatch()
        self._meter: UseMeter | None = None
        self._problem = ""
        self._layout: Layout | None = None
        """Layout of the ring to which `_location` belongs."""
        self._location = SumLocation(0, 0)

    @property
    def problem(self) -> str:
        return self._problem

    def add(self, tick: Tick) -> None:
        writer = self._writer()
        if writer is None:
            return
        layout = writer.layout
        if layout is not self._layout:
            self._layout, self._location = layout, SumLocation.from_layout(layout)
        fd, location = writer.fd, self._location
        if not location.room:
            return
        if self._meter is None:
            self._meter = UseMeter(read_sums(fd, layout), tick.time_ns, location.room, self._holders)
        if not self._meter.add(tick):
            return
        number, names, times, rows = self._meter.record()
        try:
            write_sums(fd, location, number, names, times, rows)
            self._problem = ""
        except OSError as error:
            self._problem = f"usage counters cannot be stored: {error.strerror or error}"

    def close(self) -> None:
        """Do nothing. The sums stay in the ring, because the next daemon continues them."""
