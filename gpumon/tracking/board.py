"""Creates the board of a training and publishes the state and events of the run in it. A board is a small file.

The file gets its final name only when it is complete and locked. The POSIX lock on it shows that the process is alive.
The kernel releases this lock when the process dies *or closes any descriptor of that file*. So a process must never
open its own board again.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

from gpumon.common.errors import BoardError
from gpumon.common.procfs import boot_id, start_time
from gpumon.common.text import clean
from gpumon.model.run import NO_METADATA, PAUSED, ROOM, Metadata, encode_metadata
from gpumon.tracking import lifetime, wire_format
from gpumon.tracking.description import MAX_PHASES, TRAIN, WORD_LENGTH, Description, encode
from gpumon.tracking.logged_values import RowEnd, metric_order, metric_rank
from gpumon.tracking.warn import warn_once

Inode = tuple[int, int]
"""Device and inode number of a file."""
_UNKNOWN = -2
"""Stands for a descriptor whose number could not be determined, because another thread took the expected number
first."""
_names: set[str] = set()
"""Names of all boards that this process created."""


class BoardFile(NamedTuple):
    """The open file of a board, mapped into memory."""

    fd: int
    """Descriptor of the file. It stays open, because closing it drops the lock."""
    mapped_fd: int
    """The mapping's own descriptor, which is closed with the mapping; -1 if the mapping has none, `_UNKNOWN` if its
    number could not be determined."""
    mapped: mmap.mmap
    path: str
    inode: Inode


def is_open(fd: int, inode: Inode) -> bool:
    """Return whether `fd` still refers to the file `inode`. Another library may have closed it."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == inode


def _is_at_path(path: str, inode: Inode) -> bool:
    """Whether `path` is still the name of the file `inode`. Also True if that cannot be determined."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return (status.st_dev, status.st_ino) == inode


def is_supported() -> bool:
    """Return whether this system supports boards. Raises ImportError if a needed module exists but cannot be loaded."""
    try:
        import fcntl  # noqa: F401
    except ModuleNotFoundError:
        return False
    return os.path.exists("/proc/self/stat")


def make_board(
    directory: str,
    description: Description,
    monotonic: Callable[[], int],
    now: Callable[[], int],
    replaced: tuple[str, mmap.mmap] | None = None,
) -> BoardFile:
    """Create a board of this process in `directory`.

    `monotonic`, `now`: functions that return the time of CLOCK_MONOTONIC and of the wall clock in ns. `replaced`: name
    and content of the board that the new one replaces, if any. Raises OSError, or BoardError if the description is too
    long.
    """
    import fcntl  # Windows has none

    from gpumon.tracking.stale_boards import sweep

    uid, pid = os.geteuid(), os.getpid()
    name = replaced[0] if replaced else f"tag.{uid}.{pid}.{os.urandom(4).hex()}"
    _names.add(name)  # added before the file exists, because another thread may be removing old boards
    sweep(directory, uid, _names, now())
    path, unfinished = f"{directory}/{name}", f"{directory}/.{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unfinished, flags, 0o600)
    try:
        # Allocate everything now: on a full disk, a store into a missing page would kill the process (SIGBUS).
        os.posix_fallocate(fd, 0, wire_format.SIZE)
        status = os.fstat(fd)
        inode = (status.st_dev, status.st_ino)
        mapped, mapped_fd = _map(fd, inode)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # last: closing a descriptor drops the lock
        if replaced:
            mapped[:] = replaced[1][:]
        else:
            mapped[: wire_format.HEADER.size] = wire_format.pack_header(_own_header(pid, monotonic(), now()))
            write_description(mapped, 1, description)
        os.fchmod(fd, 0o644)
        os.rename(unfinished, path)
    except BaseException:
        try:
            os.unlink(unfinished)
        finally:
            os.close(fd)
        raise
    return BoardFile(fd, mapped_fd, mapped, path, inode)


def _relock(file: BoardFile) -> BoardFile:
    """Lock the file again and return it. Raises OSError.

    The lock is lost if other code of this process closes any descriptor of the file.
    """
    import fcntl

    fd = file.fd
    if not is_open(fd, file.inode):
        fd = os.open(file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with suppress(BlockingIOError):  # another process holds the lock, which does no harm
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    is_kept = file.mapped_fd < 0 or is_open(file.mapped_fd, file.inode)
    return file._replace(fd=fd, mapped_fd=file.mapped_fd if is_kept else _UNKNOWN)


def _map(fd: int, inode: Inode) -> tuple[mmap.mmap, int]:
    """Map the board, and return the mapping and its own descriptor.

    A mapping opens a descriptor for itself, which gets the lowest free number.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, wire_format.SIZE, trackfd=False), -1
    lowest = os.dup(fd)
    os.close(lowest)
    mapped = mmap.mmap(fd, wire_format.SIZE)
    return mapped, lowest if is_open(lowest, inode) else _UNKNOWN


def write_description(mapped: mmap.mmap, version: int, description: Description) -> None:
    """Write a description into one of the two slots, chosen by `version`. Raises BoardError if it is too long."""
    text = encode(description)
    offset, header = wire_format.TEXTS[version & 1], wire_format.DESCRIPTIONS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire_format.TEXT_HEADER.size] = wire_format.pack_text_header(version, text)


def write_about(mapped: mmap.mmap, version: int, about: Metadata) -> Metadata:
    """Write the metadata of the run into one of the two slots, chosen by `version`.

    Return the part of the metadata that fits.
    """
    text, kept = encode_metadata(about)
    offset, header = wire_format.ABOUT_TEXTS[version & 1], wire_format.ABOUTS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire_format.TEXT_HEADER.size] = wire_format.pack_text_header(version, text)
    return kept


def _own_header(pid: int, monotonic_ns: int, now: int) -> wire_format.BoardHeader:
    started, boot = start_time(), boot_id()
    if not started or not any(boot):
        raise OSError("/proc does not report the start time of this process, or the boot id")
    return wire_format.BoardHeader(
        size=wire_format.SIZE,
        pid=pid,
        parent=os.getppid(),
        started=started,
        pid_namespace=os.stat("/proc/self/ns/pid").st_ino,
        time_namespace=os.stat("/proc/self/ns/time").st_ino if os.path.exists("/proc/self/ns/time") else 0,
        boot_id=boot,
        monotonic_ns=monotonic_ns,
        time_ns=now,
    )


_SLOTS = tuple(slice(offset, offset + wire_format.STATE_SIZE) for offset in wire_format.STATES)
NO_EPOCH = -1
"""Epoch number for values that are logged after the training."""
SETTLED_AFTER = 600_000_000_000
"""ns after the start of the run at which waiting metrics get slots even if no more informative metrics have appeared.
"""
_MAX_WAITING = 64
_FOR_HELD_OUT, _FOR_MEASURES = 3, 6
"""Number of slots reserved for metrics whose `metric_rank` is below 2, and number reserved for those whose rank is
below 3."""
_FOR_VALIDATION = 2
"""Number of slots reserved for validation metrics, whenever they first appear."""
EVENTS_AT_ONCE = 200
"""Number of events that may be published at once. After that, `EVENTS_A_SECOND` applies, and epochs beyond this rate
are folded into the previous epoch. A board holds `wire_format.EVENT_COUNT` events, so a reader that polls once a second
misses none."""
EVENTS_A_SECOND = 240
_CHECK_EVERY, _RETRY_AFTER = 1_000_000_000, 10_000_000_000
"""ns until the next check of a board's file: after a normal check, and after a failed repair."""
_never_closed: list[mmap.mmap] = []
_EVENT_HEAD = slice(wire_format.EVENT_HEAD, wire_format.EVENT_HEAD + 8)


class _Position(NamedTuple):
    """Position of a training at one time: its epoch, its steps and its wait for data so far."""

    epoch: int
    monotonic_ns: int
    time_ns: int
    steps: int
    wait_ns: int

    @property
    def times(self) -> tuple[int, int]:
        """Time of the position in ns, by the monotonic and by the wall clock."""
        return self.monotonic_ns, self.time_ns

    @property
    def row_end(self) -> RowEnd:
        return RowEnd(self.steps, self.monotonic_ns, self.wait_ns)


class Board:
    """The board of one run. Any method may be called at any time and from any thread, and the last call takes effect.

    `directory` returns the directory of the file and may raise OSError. A board is *off* if it could not be created,
    was closed, or was inherited by a forked child. The methods of a board that is off do nothing.
    """

    def __init__(
        self,
        directory: Callable[[], str] | None,
        description: Description,
        monotonic: Callable[[], int] = time.monotonic_ns,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.description = description
        self.about = NO_METADATA
        self.path = ""
        self.steps = 0
        """Number of steps since the run began. Like `wait_ns`, it is written with the next state or event."""
        self.wait_ns = 0
        """Time spent waiting for data since the run began, in ns; 0 if it was never measured."""
        self.peak = wire_format.NOT_KNOWN
        """The framework's peak of allocated bytes. It is written only with the next event."""
        self.must_end = False
        """Whether the run counts as failed if it is still open when it is dropped or when the process ends."""
        self.is_left = False
        """Whether the loop was left in the middle of an epoch, and no other epoch has begun since then."""
        self.raised: tuple[int, int] | None = None
        """Number of the event that ended an epoch whose loop an exception left, and the time (ns of CLOCK_MONOTONIC);
        None if no exception did."""
        self.worker_cpu_time: Callable[[], float] | None = None
        """Returns the part of the last result of `cpu_time` that child processes used."""
        self.cpu_time: Callable[[], float] | None = None
        """Function that returns the CPU seconds of the run so far. It is called when the run ends."""
        self._monotonic = monotonic
        self._now = now
        self._map: mmap.mmap | None = None
        self._file: BoardFile | None = None
        self._directory = directory
        self._check_at = 0
        self._number = 0
        self._events = 0
        self._version = 0
        self._about_version = 0
        self._epoch = -1
        self._epoch_begin = 0
        self._phase = 0
        self._flags = 0
        self._metrics = list(wire_format.NOTHING_LOGGED)
        self._logged = list(wire_format.NOTHING_LOGGED)
        """Values logged in the newest epoch, or since the last row of steps."""
        self._folded_logged = list(wire_format.NOTHING_LOGGED)
        """Values logged in the published epoch and those folded into it, while the start of the newest is held back."""
        self._in_epoch = False
        self._room = float(EVENTS_AT_ONCE)
        """Number of events that may still be published without delay; negative after too many events."""
        self._room_at = 0
        self._begin: _Position | None = None
        """Start of the newest epoch, while the end of a published epoch is held back; otherwise None."""
        self._end = _Position(-1, 0, 0, 0, 0)
        """End of the last epoch that has ended, while this event is held back."""
        self._has_folded = False
        """Whether the start of the epoch at `_begin` was not published."""
        self._folded = 0
        """Number of epochs that were folded into the previous epoch and therefore have no row of their own."""
        self._published = -1
        """Number of the newest epoch whose start was published."""
        self._last_sign = self._ended_at = (0, 0)
        """Time of the last published state, and time of the training's end if later events must be backdated to it, or
        else (0, 0). Each time is given in ns of the monotonic and of the wall clock.
        """
        self.trained = False
        """Whether the training is over, so that values logged later belong to no epoch."""
        self._paused = (0, 0)
        """Time at which the run was last paused, in ns of the monotonic and of the wall clock."""
        self._memory = 0
        self._tail = wire_format.pack_tail(self._metrics)
        self.chosen: tuple[str, ...] = ()
        """Names of the metrics to show, or patterns (`rewards/*`). If empty, the most informative ones are shown."""
        self._waiting: dict[str, float] = {}
        """Metrics that get a slot after the first epoch if slots remain, with their last values."""
        self._epochs_begun = 0
        self._settles_at = self._monotonic() + SETTLED_AFTER
        self._is_over = False
        """Whether no further metrics are expected, so that no slots need to be reserved."""
        # This lock is held for microseconds, and only for operations that happen a few times per epoch. A step never
        # takes it.
        self._lock = threading.RLock()
        if directory is None:
            return
        try:
            if not is_supported():
                warn_once("board", "gpumon shows trainings on Linux only: it requires /proc")
                return
            file = make_board(directory(), description, monotonic, now)
            self._file, self._map, self.path, self._version = file, file.mapped, file.path, 1
        except Exception as error:  # no directory, space or lock; the training continues without a board
            self._turn_off()
            warn_once("board", f"this training will not show in gpumon: {error}")
        else:
            lifetime.register(self)
            self._event(wire_format.RUN_BEGIN)
            self.publish()

    def repair_file(self) -> None:
        """Create the file again if it was removed, and lock it again if its descriptor was closed.

        The file is checked at most once a second. If the repair fails, it is tried again later.
        """
        file, now = self._file, self._monotonic()
        if file is None or now < self._check_at or self._directory is None:
            return
        self._check_at = now + _CHECK_EVERY
        try:
            if not _is_at_path(file.path, file.inode):
                with self._lock:
                    replaced = os.path.basename(file.path), file.mapped
                    new = make_board(self._directory(), self.description, self._monotonic, self._now, replaced)
                    self._file, self._map, self.path = new, new.mapped, new.path
                    _close_file(file)
                    self.publish()  # includes what another thread wrote during the repair
            else:
                self._file = _relock(file)
        except Exception:  # no directory, no space, no descriptor
            self._check_at = now + _RETRY_AFTER

    @property
    def on(self) -> bool:
        """Whether the board is being written. See the class for the reasons why it may be off."""
        return self._map is not None

    def publish(self, monotonic_ns: int = 0) -> None:
        """Write the current state. `monotonic_ns`: the current time if the caller has just read the clock, else 0."""
        mapped = self._map
        if mapped is None:
            return
        # There is no shared buffer, so concurrent threads write whole records, one after the other.
        self._number = number = self._number + 1
        try:
            self._last_sign = times = monotonic_ns or self._monotonic(), self._now()
            head = wire_format.pack_head(
                number, *times, _int64(self.steps),
                min(self.wait_ns, wire_format.NOT_KNOWN), self._epoch_begin, self._epoch, self._phase, self._flags,
            )  # fmt: skip
            mapped[_SLOTS[number & 1]] = wire_format.pack_state(head, self._tail)
        except Exception as error:  # publishing must never fail a training
            self._fail(error)

    def begin_steps(self) -> None:
        """Expect steps from now on. This is published with the next state."""
        self._flags &= ~wire_format.FLAG_BETWEEN

    def end_steps(self) -> None:
        """Publish that a loop over batches has ended, so that no step is expected until the next loop."""
        self._flags |= wire_format.FLAG_BETWEEN
        if not self.is_folding:
            self.publish()

    def begin_epoch(self, epoch: int) -> None:
        """Publish that epoch number `epoch` begins now, in the phase `train` unless another phase is open.

        If epochs are too short to publish each of them (`is_folding`), this epoch counts as part of the previous epoch.
        """
        with self._lock:
            if self._epochs_begun and self._waiting:
                if self._settles_at:
                    self._settle()
                self._waiting.clear()  # these values belong to the previous epoch
            self._epoch = epoch
            self._epoch_begin = now = self._monotonic()
            self._in_epoch = True
            self.trained = self.is_left = False
            if self._phase == 0 or self.description.phases[self._phase] == PAUSED:
                self._phase = 1
            if self.is_folding:
                self._folded += self._has_folded
                self._has_folded = True
                self._begin = self._position(now)
                newest = zip(self._logged, self._folded_logged, strict=True)
                self._folded_logged = [before if value is None else value for value, before in newest]
                self._logged = list(wire_format.NOTHING_LOGGED)
                return
            self._epochs_begun += 1
            self._logged = list(wire_format.NOTHING_LOGGED)
            self._published = self._epoch
            self._event(wire_format.EPOCH_BEGIN, now)
            self.publish()

    def end_epoch(self, *, aborted: bool = False) -> None:
        """Publish that the epoch ends now. If epochs are too short to publish each of them, this event is held back.

        `aborted`: the epoch was left early. If its end has already been published as complete, this corrects it.
        """
        with self._lock:
            if self._phase == 1:
                self._phase = 0
            if not aborted and self._map is not None and not self._has_room():
                if self._in_epoch:
                    self._begin = self._begin or self._position(self._epoch_begin)
                    self._end = self._position(self._monotonic())
                self._in_epoch = False
                return
            self._unfold()
            self._in_epoch = False
            self._event(wire_format.EPOCH_ABORTED if aborted else wire_format.EPOCH_END, epoch=self._published)
            self.publish()

    @property
    def is_folding(self) -> bool:
        """Whether epochs are so short that several of them are published as one."""
        return self._begin is not None

    def _has_room(self) -> bool:
        """Whether one more event can be published without overwriting an event that readers may not have read yet."""
        now = self._monotonic()
        self._room = min(EVENTS_AT_ONCE, self._room + (now - self._room_at) * EVENTS_A_SECOND / 1e9)
        self._room_at = now
        return self._room >= 1

    def _position(self, monotonic_ns: int) -> _Position:
        return _Position(
            self._epoch, monotonic_ns, monotonic_ns + self._now() - self._monotonic(), self.steps, self.wait_ns
        )

    def unfold(self) -> None:
        """Publish the start of the open epoch if it was held back and there is now room for it."""
        with self._lock:
            if self.is_folding and self._has_room():
                self._unfold()

    def _unfold(self) -> None:
        """Publish the events that were held back, so that the last of the folded epochs gets a row of its own."""
        begin, end = self._begin, self._end
        if begin is None:
            return
        self._begin, phase = None, self._phase
        if self._has_folded:
            self._has_folded = False
            self._phase = 0
            logged, self._folded_logged = self._folded_logged, list(wire_format.NOTHING_LOGGED)
            nothing = wire_format.NOTHING_LOGGED
            times, row_end = begin.times, begin.row_end
            self._event(wire_format.EPOCH_END, times=times, row_end=row_end, epoch=self._published, logged=logged)
            self._phase, self._published = 1, begin.epoch
            self._event(wire_format.EPOCH_BEGIN, times=times, row_end=row_end, epoch=begin.epoch, logged=nothing)
            if self._folded:
                self.describe(facts=self.description.facts._replace(folded=self._folded))
        if not self._in_epoch:
            self._phase = 0
            self._event(wire_format.EPOCH_END, times=end.times, row_end=end.row_end, epoch=self._published)
        self._phase = phase

    @property
    def is_training(self) -> bool:
        """Whether the run is in the training phase, or in no phase."""
        return self._phase <= 1

    def phase(self, name: str) -> str:
        """Publish that phase `name` begins now, and return the name of the previous phase."""
        if self._map is None:
            return ""
        with self._lock:
            previous = self.description.phases[self._phase]
            if self.is_folding and name != PAUSED and not self._has_room():
                return previous
            self._unfold()
            self._phase = self._phase_index(clean(name, WORD_LENGTH))
            self._event(wire_format.CHECKPOINT if name == "checkpoint" else wire_format.PHASE)
            self.publish()
        return previous

    def end_rows(self, ends: Sequence[RowEnd]) -> None:
        """Publish the ends of rows of steps. Values logged since the previous call belong to the last of these rows."""
        with self._lock:
            offset = self._now() - self._monotonic()
            for end in ends:
                logged = None if end is ends[-1] else wire_format.NOTHING_LOGGED
                times = end.monotonic_ns, end.monotonic_ns + offset
                self._event(wire_format.STEPS, times=times, row_end=end, logged=logged)
            self._logged = list(wire_format.NOTHING_LOGGED)

    def pause(self) -> None:
        """Publish that the run ends now. If a phase or an epoch of the run begins later, the run continues."""
        with self._lock:
            self.must_end = False
            self._publish_cpu_time()
            self._settle(is_over=True)
            self._paused = self._monotonic(), self._now()
            self.trained = True
            self.phase(PAUSED)

    def backdate_end(self) -> None:
        """Give all further events the time of the last activity.

        Used if the training ended without reporting its end.
        """
        self._ended_at = self._last_sign

    @property
    def events(self) -> int:
        """Number of the newest event."""
        return self._events

    @property
    def epoch(self) -> int:
        """Number of the open epoch, or of the last one if none is open; -1 before the first."""
        return self._epoch

    def memory(self, devices: Sequence[wire_format.Memory]) -> None:
        """Publish the framework's memory. `devices` has one record for each device."""
        mapped = self._map
        if mapped is None:
            return
        self._memory = number = self._memory + 1
        try:
            record = wire_format.pack_memory(number, self._monotonic(), devices)
            offset = wire_format.MEMORY[number & 1]
            mapped[offset : offset + len(record)] = record
        except Exception as error:  # publishing must never fail a training
            self._fail(error)

    def out_of_memory(self, asked: int, free: int, uuid: str = "") -> None:
        """Publish that an allocation of `asked` bytes failed on the device `uuid`, which had `free` bytes left."""
        self._event(wire_format.OUT_OF_MEMORY, aux=wire_format.device_mark(uuid), asked=asked, free=free)

    def log(self, metrics: Mapping[str, float], epoch: int | None = None, step: int = 0) -> None:
        """Publish logged values by name.

        There is room for eight names, and the most informative ones are used (`metric_rank`). `epoch`: number of the
        epoch to which the values belong, by default the open epoch or else the last one. `step`: a step in the row to
        which the values belong; 0 for the open row. Values of an earlier epoch or row are published as a separate
        event, so that they are stored with that epoch or row.
        """
        if self._map is None:
            return
        if epoch is None and self.trained:
            epoch = NO_EPOCH
        with self._lock:
            if any(name not in self.description.metrics for name in metrics):
                self._assign_slots(metrics)
            names = self.description.metrics
            is_of_row = 0 < step < 1 << 32  # an event has 32 bits for it
            is_late = is_of_row or (epoch is not None and epoch != self._epoch)
            if is_late and not is_of_row and self._has_folded and self._published <= (epoch or 0) < self._epoch:
                is_late, logged = False, self._folded_logged  # the epoch has no row of its own
            else:
                logged = list(wire_format.NOTHING_LOGGED) if is_late else self._logged
            for name, value in metrics.items():
                if name in names:
                    self._metrics[names.index(name)] = logged[names.index(name)] = value
            try:
                self._tail = wire_format.pack_tail(self._metrics)
            except Exception as error:  # a value is not a number
                self._fail(error)
            if is_late:
                self._event(wire_format.LOG, epoch=epoch, logged=logged, aux=step if is_of_row else 0)
            elif not self._in_epoch and self._epoch_begin and not self.is_folding:
                self._event(wire_format.LOG)
            if not self.is_folding or self._has_room():
                self.publish()

    def _assign_slots(self, metrics: Mapping[str, float]) -> None:
        """Assign slots to new `metrics`, as long as enough slots remain for more informative metrics."""
        names, omitted = list(self.description.metrics), []
        is_settled = self._epochs_begun > 1 or self.trained or self._monotonic() >= self._settles_at
        new = sorted((name for name in metrics if name not in names), key=metric_order)
        is_crowded = len(names) + len(new) > wire_format.MAX_METRICS
        for name in new:
            if self.chosen and not any(fnmatchcase(name, pattern) for pattern in self.chosen):
                continue
            if self.chosen or self._is_over:
                reserved = 0
            elif is_settled:
                reserved = _reserved_for_validation(metric_rank(name), names) if is_crowded else 0
            else:
                reserved = _reserved_for_better(metric_rank(name), names)
            free = wire_format.MAX_METRICS - len(names)
            if free > reserved:
                names.append(name)
                self._waiting.pop(name, None)
            elif self.chosen or (is_settled and (self._is_over or not free)):
                omitted.append(name)
            elif name in self._waiting or len(self._waiting) < _MAX_WAITING:
                self._waiting[name] = metrics[name]
        if omitted:
            listed = ", ".join(omitted[:4]) + (f" and {len(omitted) - 4} more" if len(omitted) > 4 else "")
            warn_once(
                "metrics",
                f"a run shows at most {wire_format.MAX_METRICS} metrics: choose with metrics=[…]. Left out: {listed}",
            )
        if len(names) > len(self.description.metrics):
            self.describe(metrics=tuple(names))

    def _settle(self, *, is_over: bool = False) -> None:
        """Assign slots to waiting metrics. `is_over`: no further metrics are expected, so no slots are reserved."""
        self._settles_at, self._is_over = 0, is_over
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self.log(waiting)

    def describe(self, **changes: object) -> None:
        """Change fields of the run's description, and publish it."""
        if self._map is None:
            return
        with self._lock:
            try:
                self._write_description(self.description._replace(**changes))  # type: ignore[arg-type]
            except BoardError as error:  # the new description is too long; the previous one stays
                warn_once("description", str(error))
            except Exception as error:
                self._fail(error)

    def update_about(self, change: Callable[[Metadata], Metadata]) -> None:
        """Replace the metadata of the run by the result of `change`, and publish it.

        Parameters and notes that do not fit are left out with a warning.
        """
        if self._map is None:
            return
        with self._lock:
            try:
                about, mapped = change(self.about), self._map
                if mapped is None or about == self.about:
                    return
                omitted = write_about(mapped, self._about_version + 1, about).omitted
                self.about, self._about_version = about, self._about_version + 1
            except Exception as error:  # the previous metadata stays
                warn_once("about", f"the parameters of this run are not recorded: {type(error).__name__}: {error}")
                return
        if omitted:
            warn_once(
                "omitted", f"a run has room for {ROOM} bytes of parameters and notes: {omitted} of them were left out"
            )

    def close(
        self, *, failed: bool = False, interrupted: bool = False, stopped: bool = False, withdrawn: bool = False
    ) -> None:
        """Publish the end of the run, and close the board. The file stays so that a daemon can read the end.

        The daemon removes the file after it has read it. Without a daemon, the user's next training removes it.
        `withdrawn`: the run is hidden as if it had never begun. `stopped`: the run was ended early on purpose. Ignored
        if `failed` is set.
        """
        with self._lock:
            if self._map is None:
                return
            if paused := self.description.phases[self._phase] == PAUSED:
                failed = interrupted = stopped = False  # the training had already ended successfully
            elif not withdrawn:
                self._publish_cpu_time()
            if not withdrawn:
                self._settle(is_over=True)
            self._unfold()
            self._flags, aux = wire_format.FLAG_ENDED, 0
            for is_set, flag, bit in (
                (failed or interrupted, wire_format.FLAG_FAILED, wire_format.RUN_FAILED),
                (interrupted, wire_format.FLAG_INTERRUPTED, wire_format.RUN_INTERRUPTED),
                (withdrawn, wire_format.FLAG_WITHDRAWN, wire_format.RUN_WITHDRAWN),
                (stopped and not failed, wire_format.FLAG_STOPPED, wire_format.RUN_STOPPED),
            ):
                self._flags, aux = self._flags | flag * is_set, aux | bit * is_set
            self._phase = 0
            self._event(wire_format.RUN_END, aux=aux, times=self._paused if paused else None)
            self.publish()
            self._turn_off()

    def _event(
        self,
        mark: int,
        monotonic_ns: int = 0,
        aux: int = 0,
        asked: int = wire_format.NOT_KNOWN,
        free: int = wire_format.NOT_KNOWN,
        epoch: int | None = None,
        logged: wire_format.Metrics | None = None,
        times: tuple[int, int] | None = None,
        row_end: RowEnd | None = None,
    ) -> None:
        mapped = self._map
        if mapped is None:
            return
        with self._lock:
            number = self._events + 1
            self._room -= 1
            peak, self.peak = self.peak, wire_format.NOT_KNOWN
            if times is None and self._ended_at[0]:
                times = self._ended_at
            try:
                event = wire_format.Event(
                    mark=mark,
                    phase=self._phase,
                    number=number,
                    monotonic_ns=times[0] if times else monotonic_ns or self._monotonic(),
                    time_ns=times[1] if times else self._now(),
                    step=_int64(row_end.step if row_end else self.steps),
                    wait_ns=min(row_end.wait_ns if row_end else self.wait_ns, wire_format.NOT_KNOWN),
                    epoch=self._epoch if epoch is None else epoch,
                    aux=aux,
                    asked=asked,
                    free=free,
                    logged=tuple(self._logged if logged is None else logged),
                    peak=peak,
                )
                record, supplement = wire_format.pack_event(event), wire_format.pack_supplement(event)
                offset = wire_format.supplement_offset(number)
                mapped[offset : offset + len(supplement)] = supplement
                offset = wire_format.event_offset(number)
                mapped[offset : offset + len(record)] = record
                mapped[_EVENT_HEAD] = number.to_bytes(8, "little")
            except Exception as error:
                self._fail(error)
            self._events = number

    def _publish_cpu_time(self) -> None:
        try:
            seconds = round(self.cpu_time(), 2) if self.cpu_time is not None else 0.0
            workers = round(self.worker_cpu_time(), 2) if self.worker_cpu_time is not None else 0.0
        except Exception as error:  # unexpected content of /proc
            warn_once("cpu", f"the CPU time of this training is unknown: {type(error).__name__}: {error}")
            return
        if seconds:
            self.describe(facts=self.description.facts._replace(cpu_seconds=seconds, worker_cpu_seconds=workers))

    def _write_description(self, description: Description) -> None:
        mapped = self._map
        if mapped is None:
            return
        version = self._version + 1
        write_description(mapped, version, description)
        self._version, self.description = version, description

    def _phase_index(self, name: str) -> int:
        names = self.description.phases
        if name in names:
            return names.index(name)
        if len(names) >= MAX_PHASES:
            warn_once("phases", f"a run can have at most {MAX_PHASES - 2} phase names: {name!r} is shown as {TRAIN!r}")
            return 1
        self.describe(phases=(*names, name))
        return len(names) if len(self.description.phases) > len(names) else 0

    def _fail(self, error: Exception) -> None:
        if self._file is not None:
            _never_closed.append(self._file.mapped)  # a daemon takes a program without the mapping for replaced
        self._turn_off()
        warn_once("board", f"this training no longer shows in gpumon: {type(error).__name__}: {error}")

    def _turn_off(self) -> None:
        # The mapping is closed only when its last reference is dropped, because a thread may be in the middle of a
        # write.
        self._map = None
        file, self._file = self._file, None
        if file is not None:
            _close_file(file)

    def abandon(self) -> None:
        """Turn the board off in a forked child without publishing anything, because it belongs to the parent."""
        self._lock = threading.RLock()  # another thread of the parent may have held the lock at the fork
        self._turn_off()

    def abort_raised_epoch(self) -> None:
        """Correct the end of an epoch whose loop an exception has just left, because the run ends with that epoch.

        If the exception was caught and the training continues, the epoch has ended.
        """
        raised, self.raised = self.raised, None
        if raised is not None and raised[0] == self._events and self._monotonic() - raised[1] < lifetime.UNWINDING:
            self.is_left = True
            self.end_epoch(aborted=True)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # In a reference cycle, the board may be collected before the callback that was to close it.
        if getattr(self, "_map", None) is not None and not is_finalizing():  # when finalizing, modules may be gone
            self.abort_raised_epoch()
            self.close(failed=self.must_end, stopped=self.is_left)


def _reserved_for_better(rank: int, names: Sequence[str]) -> int:
    """Return the number of slots that a metric of this rank must leave free for more informative metrics.

    `names`: metrics that already have slots.
    """
    slots, below = (0, 0) if rank < 2 else (_FOR_HELD_OUT, 2) if rank == 2 else (_FOR_MEASURES, 3)
    better = sum(metric_rank(name) < below for name in names)
    return max(slots - better, _reserved_for_validation(rank, names))


def _reserved_for_validation(rank: int, names: Sequence[str]) -> int:
    """Return the number of slots that a metric of this rank must leave free for validation metrics.

    `names`: metrics that already have slots.
    """
    return 0 if rank < 2 else max(0, _FOR_VALIDATION - sum(metric_rank(name) == 1 for name in names))


def _close_file(file: BoardFile) -> None:
    """Close those descriptors that still belong to the board.

    The numbers of the others may now belong to other files.
    """
    if is_open(file.fd, file.inode):
        os.close(file.fd)
    if file.mapped_fd != -1 and not is_open(file.mapped_fd, file.inode):
        _never_closed.append(file.mapped)  # closing it would close the other file that now has this descriptor


def _int64(number: int) -> int:
    return max(-(1 << 63), min((1 << 63) - 1, number))
