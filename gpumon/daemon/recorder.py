"""Storing ticks in a ring, for as long as its directory is ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from gpumon.clock import SECOND, Clock, Sign
from gpumon.daemon.calls import CallsFile
from gpumon.daemon.log import DaemonLog, say
from gpumon.errors import AlreadyRunning, GpumonError, RingError
from gpumon.followers import HISTORY, LEDGER, Followers
from gpumon.frame import Tick
from gpumon.origin import Capability
from gpumon.paths import LOCK, RING
from gpumon.ring.directory_writer import RowsExhausted
from gpumon.ring.layout import STOPPED
from gpumon.ring.lock import WriterLock
from gpumon.ring.reader import RingReader
from gpumon.ring.sizes import SPARE_ROWS
from gpumon.ring.writer import FRAME_LADDER, RingWriter
from gpumon.sampler import Sampler

_CHECK_EVERY = SECOND
_NONE = -1
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
        self._inode = _inode(directory) if directory else _NONE
        self._check_at = 0
        self._heard = 0
        """Number of the newest frame at the last heartbeat."""
        self._log = DaemonLog(lambda text: self.say(text))
        self._calls = CallsFile(sampler.source, directory, self._tell) if directory else None
        self._publishes = True
        """Whether a new ring has its name at once."""
        self._former: RingWriter | None = None
        """A ring that has lost its place, for as long as it takes to make another."""
        self.has_caught_up = False
        """Whether a whole round of ticks is stored: the first one of a simulation begins minutes before now."""
        self._ended = -1
        """A descriptor of a private ring that is closed: it has no name, and its readers may ask for it again."""
        self.has_let_go = Event()
        """Set once nothing is asked of the driver any more."""

    def store(self, tick: Tick) -> None:
        """Append a tick, in a new ring when it does not fit the old one."""
        if self.writer is None:
            self.writer = self._make(tick)
        try:
            self.writer.append(tick)
        except RowsExhausted:
            self.writer = self._make(tick, SPARE_ROWS)
            self.writer.append(tick)
        self.followers.add(tick)

    def heartbeat(self) -> None:
        """After each round: tell readers that we live, and see that the directory is still ours.

        Raises LostDirectory when another daemon took over, or the directory is gone.
        """
        writer, now = self.writer, self._clock.monotonic()
        if writer is None:
            return
        self.has_caught_up = True
        if writer.head == self._heard:  # else a new frame has said that we live
            writer.heartbeat()
        self._heard = writer.head
        writer.tell_kept(self.followers.problem(LEDGER), self.followers.problem(HISTORY))
        if self._lock is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_EVERY
        self._log.round(writer, self.sampler.refused)
        self._see_lock(self._lock)
        if not (writer.is_at_path() and writer.intact()):
            # Removed, replaced, cut or overwritten by somebody: the next tick starts a new file, with what is left.
            self._former, self.writer = writer, None
        if self._calls is not None:
            self._calls.round(now)

    def _see_lock(self, lock: WriterLock) -> None:
        if lock.is_mine():
            return
        assert self.directory is not None
        found = _inode(self.directory)
        # Where the state directory lies in it, what we keep there made a directory of its name anew.
        if found == _NONE or (lock.is_removed() and found != self._inode):
            raise self._gone()
        if not lock.is_removed():
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops")
        try:
            self._lock = _lock(self.directory, self._for_command)  # only the lock was removed
        except AlreadyRunning as error:
            raise LostDirectory(f"another daemon took over {self.directory}: this one stops") from error
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

    def take_one(self) -> None:
        """One round, without waiting; a new ring of what is no hardware is published once all of it is there.

        A simulation begins with minutes that it makes up: who saw these come would take them for now.
        """
        self._publishes = Capability.LIVE in self.sampler.source.capabilities
        for tick in self.sampler.ticks():
            self.store(tick)
        self._publishes = True
        if self.writer is not None:
            self.writer.publish()

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
        self.has_let_go.set()
        if self._calls is not None:
            self._calls.close()
        self.followers.close()  # before the lock is let go: who comes next goes on from there
        if self.writer is not None:
            if self.directory is None:
                self._ended = os.dup(self.writer.fd)
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
        if self._calls is not None:
            self._calls.close()
        self.followers.close_within(LAST_WORDS)
        writer, lock = self.writer, self._lock
        with suppress(OSError):  # a ring that cannot be written says by its silence that nobody does
            if writer is not None:
                writer.heartbeat(STOPPED)
        if lock is not None:
            lock.release()

    def _make(self, tick: Tick, spare: int = 0) -> RingWriter:
        interval, origin = self.sampler.interval_ns, tick.origin
        uuids = {sample.device.uuid for sample in tick.samples}
        if self.directory is None:
            former, self.writer = self.writer, None
            writer = RingWriter.private(
                len(uuids), interval, self._frames or FRAME_LADDER[0],
                former=former.fd if former else None, uuids=uuids, spare=spare,
            )  # fmt: skip
            if former is not None:
                former.close()
            return writer
        former, self._former = self.writer or self._former, None
        # A recording begins anew each time, and a simulation with its runs; what was sampled from hardware goes on.
        goes_on = Capability.LIVE in origin.capabilities or (former and Capability.NOW in origin.capabilities)
        continues = origin.source if goes_on else None
        self.writer = None
        try:
            return RingWriter.create(
                f"{self.directory}/{RING}", len(uuids), interval, continues=continues,
                former=former.fd if former else None, uuids=uuids, spare=spare, publish=self._publishes,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise self._gone() from error
        except IsADirectoryError as error:
            raise LostDirectory(
                f"{self.directory}/{RING} is a directory: this daemon stops; move it away, and start it again"
            ) from error
        finally:
            if former is not None:
                os.close(former.fd)


def _lock(directory: str, for_command: bool) -> WriterLock:
    return WriterLock(f"{directory}/{LOCK}", lambda: _heartbeat_age(f"{directory}/{RING}"), for_command=for_command)


def _inode(directory: str) -> int:
    try:
        return os.stat(directory).st_ino
    except OSError:
        return _NONE


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
