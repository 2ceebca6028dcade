"""Making the file of a board: whole and locked before it has its name.

The board is held by a POSIX lock, which the kernel drops when the process dies *or closes any
descriptor of that file*. So nothing in this process may open a board of its own again.
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
from gpumon.model.run import NO_METADATA, PAUSED, ROOM, About, encode_about
from gpumon.tracking import lifetime, wire
from gpumon.tracking.description import MAX_PHASES, TRAIN, WORD_LENGTH, Description, encode
from gpumon.tracking.values import RowEnd, metric_rank
from gpumon.tracking.warn import warn_once

Inode = tuple[int, int]
"""A file: its device, and its number there."""
_UNKNOWN = -2
"""A descriptor that another thread took meanwhile."""
_names: set[str] = set()
"""Every board that this process made."""


class BoardFile(NamedTuple):
    """A board that was just made, with its header and the first version of its description."""

    fd: int
    """Held open: closing it drops the lock."""
    mapped_fd: int
    """The descriptor that the mapping has for itself, and closes with itself; -1 where it has none."""
    mapped: mmap.mmap
    path: str
    place: Inode


def is_open(fd: int, place: Inode) -> bool:
    """Whether `fd` is still a descriptor of the file at `place`: another library may have closed it."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == place


def is_there(path: str, place: Inode) -> bool:
    """Whether `path` is still a name of the file at `place`; also where that cannot be found out."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return (found.st_dev, found.st_ino) == place


def supported() -> bool:
    """Whether boards can be made on this system. Raises what keeps Python from loading a module that is there."""
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
    before: tuple[str, mmap.mmap] | None = None,
) -> BoardFile:
    """Make a board of this process in `directory`; `before`: the name and content of the one that it replaces.

    Raises OSError, or BoardError for a description that is too long.
    """
    import fcntl  # Windows has none

    from gpumon.tracking.sweep import sweep

    uid, pid = os.geteuid(), os.getpid()
    name = before[0] if before else f"tag.{uid}.{pid}.{os.urandom(4).hex()}"
    _names.add(name)  # before the file exists: another thread may be sweeping
    sweep(directory, uid, _names, now())
    path, unfinished = f"{directory}/{name}", f"{directory}/.{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unfinished, flags, 0o600)
    try:
        # All of it now: a store into a page that no longer fits would kill the process (SIGBUS).
        os.posix_fallocate(fd, 0, wire.SIZE)
        found = os.fstat(fd)
        place = (found.st_dev, found.st_ino)
        mapped, mapped_fd = _map(fd, place)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # last: closing any descriptor of the file would drop it
        if before:
            mapped[:] = before[1][:]
        else:
            mapped[: wire.HEADER.size] = wire.pack_header(_own_header(pid, monotonic(), now()))
            write_description(mapped, 1, description)
        os.fchmod(fd, 0o644)
        os.rename(unfinished, path)
    except BaseException:
        try:
            os.unlink(unfinished)
        finally:
            os.close(fd)
        raise
    return BoardFile(fd, mapped_fd, mapped, path, place)


def lock_again(file: BoardFile) -> BoardFile:
    """The board with its lock, which is lost with any descriptor of it that something else closes. Raises OSError."""
    import fcntl

    fd = file.fd
    if not is_open(fd, file.place):
        fd = os.open(file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with suppress(BlockingIOError):  # another process has locked it: that is none of ours
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    is_kept = file.mapped_fd < 0 or is_open(file.mapped_fd, file.place)
    return file._replace(fd=fd, mapped_fd=file.mapped_fd if is_kept else _UNKNOWN)


def _map(fd: int, place: Inode) -> tuple[mmap.mmap, int]:
    """Map the board, and find out which descriptor the mapping duplicates for itself: the lowest that is free."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, wire.SIZE, trackfd=False), -1
    lowest = os.dup(fd)
    os.close(lowest)
    mapped = mmap.mmap(fd, wire.SIZE)
    return mapped, lowest if is_open(lowest, place) else _UNKNOWN


def write_description(mapped: mmap.mmap, version: int, description: Description) -> None:
    """Write `description` where its version lies. Raises BoardError when it is too long."""
    text = encode(description)
    offset, header = wire.TEXTS[version & 1], wire.DESCRIPTIONS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire.TEXT_HEADER.size] = wire.pack_text_header(version, text)


def write_about(mapped: mmap.mmap, version: int, about: About) -> About:
    """Write the particulars of the run where their version lies; gives as much of them as had room."""
    text, kept = encode_about(about)
    offset, header = wire.ABOUT_TEXTS[version & 1], wire.ABOUTS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire.TEXT_HEADER.size] = wire.pack_text_header(version, text)
    return kept


def _own_header(pid: int, monotonic_ns: int, now: int) -> wire.BoardHeader:
    started, boot = start_time(), boot_id()
    if not started or not any(boot):
        raise OSError("/proc does not give the start time of this process, or the boot id")
    return wire.BoardHeader(
        size=wire.SIZE,
        pid=pid,
        parent=os.getppid(),
        started=started,
        pid_namespace=os.stat("/proc/self/ns/pid").st_ino,
        time_namespace=os.stat("/proc/self/ns/time").st_ino if os.path.exists("/proc/self/ns/time") else 0,
        boot_id=boot,
        monotonic_ns=monotonic_ns,
        time_ns=now,
    )


_SLOTS = tuple(slice(offset, offset + wire.STATE_SIZE) for offset in wire.STATES)
OF_NO_EPOCH = -1
"""Number in place of an epoch's, of what is logged after the training."""
SETTLED_AFTER = 600_000_000_000
"""ns after which no metric waits any more for more telling ones."""
_MOST_WAITING = 64
_FOR_HELD_OUT, _FOR_MEASURES = 3, 5
"""Slots for metrics of a rank below 2, and for those below 3."""
_FOR_LATE = 2
"""Slots for measures of a held-out set that come after the first epoch, where not all metrics have room."""
EVENTS_AT_ONCE = 200
"""Events that may be published at once, and EVENTS_A_SECOND after them: the board holds `wire.EVENT_COUNT`, which a
reader that comes each second reads in time. Epochs for which there is no room are folded into the one before."""
EVENTS_A_SECOND = 240
_LOOK_EVERY, _LOOK_AGAIN = 1_000_000_000, 10_000_000_000
"""ns between two looks at the file of a board; and after one that failed."""
_never_closed: list[mmap.mmap] = []
_EVENT_HEAD = slice(wire.EVENT_HEAD, wire.EVENT_HEAD + 8)


class _Place(NamedTuple):
    """Where a training stood at a moment."""

    epoch: int
    monotonic_ns: int
    time_ns: int
    steps: int
    wait_ns: int

    @property
    def times(self) -> tuple[int, int]:
        """Of both clocks."""
        return self.monotonic_ns, self.time_ns

    @property
    def row(self) -> RowEnd:
        return RowEnd(self.steps, self.monotonic_ns, self.wait_ns)


class Board:
    """The board of one run. Every method may be called in any state, from any thread; the last writer wins.

    `directory` is asked for where the file goes; it may raise OSError. A board that could not be
    made, was closed, or was inherited by a forked child is *off*: its methods do nothing.
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
        """Steps since the run began; written with the next state or event, as `wait_ns` is."""
        self.wait_ns = 0
        """ns waited for data since the run began; 0 while it was never measured."""
        self.peak = wire.NOT_KNOWN
        """The framework's peak of allocated bytes, where it was read for the next event and for no other."""
        self.must_end = False
        """Whether it is a failure to be open still when it is dropped, or when the process ends."""
        self.is_left = False
        """Whether its loop was left within an epoch, and no other epoch has begun since."""
        self.cpu_time: Callable[[], float] | None = None
        """CPU seconds of the run until now; asked when it ends."""
        self._monotonic = monotonic
        self._now = now
        self._map: mmap.mmap | None = None
        self._file: BoardFile | None = None
        self._directory = directory
        self._look_at = 0
        self._number = 0
        self._events = 0
        self._version = 0
        self._about_version = 0
        self._epoch = -1
        self._epoch_begin = 0
        self._phase = 0
        self._flags = 0
        self._metrics = list(wire.NOTHING_LOGGED)
        self._logged = list(wire.NOTHING_LOGGED)
        self._in_epoch = False
        self._room = float(EVENTS_AT_ONCE)
        """Events that may be published now."""
        self._room_at = 0
        self._begun: _Place | None = None
        """Begin of the newest epoch, while the end of one that was published is held back; else None."""
        self._ended = _Place(-1, 0, 0, 0, 0)
        """End of the newest epoch that is over, while that is held back."""
        self._has_folded = False
        """Whether `_begun` is that of an epoch whose begin was not published."""
        self._folded = 0
        """Epochs without a row of their own."""
        self._published = -1
        """Number of the newest epoch whose begin was published."""
        self._sign = self._over = (0, 0)
        """The last sign of life of the training, and when it was over, if that is not now: ns, monotonic and wall."""
        self.trained = False
        """Whether the training is over: what is logged from now on belongs to no epoch."""
        self._paused = (0, 0)
        """When it was paused last, ns: monotonic and wall clock."""
        self._memory = 0
        self._tail = wire.pack_tail(self._metrics)
        self.chosen: tuple[str, ...] = ()
        """Names of metrics, or patterns of them (`rewards/*`), that alone are shown; empty: the most telling ones."""
        self._waiting: dict[str, float] = {}
        """Metrics that get a slot if more telling ones leave them one, which the first epoch shows."""
        self._epochs_begun = 0
        self._settles_at = self._monotonic() + SETTLED_AFTER
        self._is_over = False
        """Whether no more telling metric is expected."""
        # Held for microseconds, and only around what happens a few times an epoch; a step never takes it.
        self._lock = threading.RLock()
        if directory is None:
            return
        try:
            if not supported():
                warn_once("board", "gpumon shows trainings on Linux only: it requires /proc")
                return
            self._create(directory())
        except Exception as error:  # no directory, no room, no lock: a training continues without a board
            self._turn_off()
            warn_once("board", f"this training will not show in gpumon: {error}")
        else:
            lifetime.watch(self)
            self._event(wire.RUN_BEGIN)
            self.publish()

    def see_to_file(self) -> None:
        """Make the board anew where its directory was removed, and lock it again where its descriptor was closed.

        Looks every second at most. What cannot be done now is tried again later.
        """
        file, now = self._file, self._monotonic()
        if file is None or now < self._look_at or self._directory is None:
            return
        self._look_at = now + _LOOK_EVERY
        try:
            if not is_there(file.path, file.place):
                with self._lock:
                    before = os.path.basename(file.path), file.mapped
                    made = make_board(self._directory(), self.description, self._monotonic, self._now, before)
                    self._file, self._map, self.path = made, made.mapped, made.path
                    _let_go(file)
                    self.publish()  # what another thread wrote meanwhile
            else:
                self._file = lock_again(file)
        except Exception:  # no directory, no room, no descriptor
            self._look_at = now + _LOOK_AGAIN

    @property
    def on(self) -> bool:
        """Whether anything is written."""
        return self._map is not None

    def publish(self, monotonic_ns: int = 0) -> None:
        """Write the state as it is now; `monotonic_ns` is the time, when it was just taken."""
        mapped = self._map
        if mapped is None:
            return
        # No shared buffer: threads that meet here write whole records, one after the other.
        self._number = number = self._number + 1
        try:
            self._sign = sign = monotonic_ns or self._monotonic(), self._now()
            head = wire.pack_head(
                number, *sign, _int64(self.steps),
                min(self.wait_ns, wire.NOT_KNOWN), self._epoch_begin, self._epoch, self._phase, self._flags,
            )  # fmt: skip
            mapped[_SLOTS[number & 1]] = wire.pack_state(head, self._tail)
        except Exception as error:  # a tag is never worth a training
            self._failed(error)

    def begin_epoch(self, epoch: int) -> None:
        """Publish that `epoch` begins now. In no other phase it is the training's.

        While the end of the one before is held back, it is folded into that one.
        """
        with self._lock:
            if self._epochs_begun and self._waiting:
                if self._settles_at:
                    self._settle()
                self._waiting.clear()  # their numbers are of the epoch before
            self._epoch = _int32(epoch)
            self._epoch_begin = now = self._monotonic()
            self._in_epoch = True
            self.trained = self.is_left = False
            if self._phase == 0 or self.description.phases[self._phase] == PAUSED:
                self._phase = 1
            if self.is_folding:
                self._folded += self._has_folded
                self._has_folded = True
                self._begun = self._place(now)
                return
            self._epochs_begun += 1
            self._logged = list(wire.NOTHING_LOGGED)
            self._published = self._epoch
            self._event(wire.EPOCH_BEGIN, now)
            self.publish()

    def end_epoch(self, *, left: bool = False) -> None:
        """Publish that the epoch ends now; `left`: before its end, or that the one reported as over was left.

        Where epochs are so short that there is no room for all of them, the end is held back.
        """
        with self._lock:
            if self._phase == 1:
                self._phase = 0
            if not left and self._map is not None and not self._has_room():
                if self._in_epoch:
                    self._begun = self._begun or self._place(self._epoch_begin)
                    self._ended = self._place(self._monotonic())
                self._in_epoch = False
                return
            self._unfold()
            self._in_epoch = False
            self._event(wire.EPOCH_ABORTED if left else wire.EPOCH_END, epoch=self._published)
            self.publish()

    @property
    def is_folding(self) -> bool:
        """Whether epochs are so short that the end of one is held back, and those that follow are folded into it."""
        return self._begun is not None

    def _has_room(self) -> bool:
        """Whether an event more can be read in time."""
        now = self._monotonic()
        self._room = min(EVENTS_AT_ONCE, self._room + (now - self._room_at) * EVENTS_A_SECOND / 1e9)
        self._room_at = now
        return self._room >= 1

    def _place(self, monotonic_ns: int) -> _Place:
        return _Place(
            self._epoch, monotonic_ns, monotonic_ns + self._now() - self._monotonic(), self.steps, self.wait_ns
        )

    def unfold(self) -> None:
        """Publish where the open epoch began, if that is held back and it can be read in time."""
        with self._lock:
            if self.is_folding and self._has_room():
                self._unfold()

    def _unfold(self) -> None:
        """Publish what is held back: the last of the folded epochs has a row of its own."""
        begun, ended = self._begun, self._ended
        if begun is None:
            return
        self._begun, phase = None, self._phase
        if self._has_folded:
            self._has_folded = False
            self._phase = 0
            self._event(wire.EPOCH_END, at=begun.times, end=begun.row, epoch=self._published)
            self._phase, self._published = 1, begun.epoch
            self._event(wire.EPOCH_BEGIN, at=begun.times, end=begun.row, epoch=begun.epoch)
            if self._folded:
                self.describe(facts=self.description.facts._replace(folded=self._folded))
        if not self._in_epoch:
            self._phase = 0
            self._event(wire.EPOCH_END, at=ended.times, end=ended.row, epoch=self._published)
        self._phase = phase

    def phase(self, name: str) -> str:
        """Publish that the phase `name` begins now; gives the name of the one before."""
        if self._map is None:
            return ""
        with self._lock:
            before = self.description.phases[self._phase]
            if self.is_folding and name != PAUSED and not self._has_room():
                return before
            self._unfold()
            self._phase = self._phase_index(clean(name, WORD_LENGTH))
            self._event(wire.CHECKPOINT if name == "checkpoint" else wire.PHASE)
            self.publish()
        return before

    def end_rows(self, ends: Sequence[RowEnd]) -> None:
        """Publish that rows of steps ended there; the last has what was logged since the rows before."""
        with self._lock:
            apart = self._now() - self._monotonic()
            for end in ends:
                logged = None if end is ends[-1] else wire.NOTHING_LOGGED
                self._event(wire.STEPS, at=(end.monotonic_ns, end.monotonic_ns + apart), end=end, logged=logged)
            self._logged = list(wire.NOTHING_LOGGED)

    def pause(self) -> None:
        """Publish that the run ends here unless a phase or an epoch follows."""
        with self._lock:
            self.must_end = False
            self._tell_cpu_time()
            self._settle(is_over=True)
            self._paused = self._monotonic(), self._now()
            self.trained = True
            self.phase(PAUSED)

    def set_back(self) -> None:
        """What follows is of the last sign of life: the training was over then, and nobody noticed."""
        self._over = self._sign

    @property
    def events(self) -> int:
        """Number of the newest event."""
        return self._events

    @property
    def epoch(self) -> int:
        """The epoch that is open, or was the last; -1 before the first."""
        return self._epoch

    def memory(self, devices: Sequence[wire.Memory]) -> None:
        """Publish what the framework holds on each device."""
        mapped = self._map
        if mapped is None:
            return
        self._memory = number = self._memory + 1
        try:
            record = wire.pack_memory(number, self._monotonic(), devices)
            offset = wire.MEMORY[number & 1]
            mapped[offset : offset + len(record)] = record
        except Exception as error:  # a tag is never worth a training
            self._failed(error)

    def out_of_memory(self, asked: int, free: int, uuid: str = "") -> None:
        """Publish that an allocation of `asked` bytes failed on the device `uuid`, which had `free` bytes."""
        self._event(wire.OUT_OF_MEMORY, aux=wire.device_mark(uuid), asked=asked, free=free)

    def log(self, metrics: Mapping[str, float], epoch: int | None = None, step: int = 0) -> None:
        """Publish what was measured last, by name. Eight names have room: the most telling ones (`metric_rank`).

        `epoch`: the one it belongs to, where that is not the open or the last one. What comes for an
        epoch that is over is published as a moment of its own, so that it is kept with that epoch, and so is what
        comes for a row of steps that is over: that of `step`, unless 0.
        """
        if self._map is None:
            return
        if epoch is None and self.trained:
            epoch = OF_NO_EPOCH
        with self._lock:
            if any(name not in self.description.metrics for name in metrics):
                self._give_slots(metrics)
            names = self.description.metrics
            of_row = 0 < step < 1 << 32  # as many bits as an event has for it
            late = of_row or (epoch is not None and epoch != self._epoch)
            logged = list(wire.NOTHING_LOGGED) if late else self._logged
            for name, value in metrics.items():
                if name in names:
                    self._metrics[names.index(name)] = logged[names.index(name)] = value
            try:
                self._tail = wire.pack_tail(self._metrics)
            except Exception as error:  # a number that is none
                self._failed(error)
            if late:
                self._event(wire.LOG, epoch=epoch, logged=logged, aux=step if of_row else 0)
            elif not self._in_epoch and self._epoch_begin and not self.is_folding:
                self._event(wire.LOG)
            if not self.is_folding or self._has_room():
                self.publish()

    def _give_slots(self, metrics: Mapping[str, float]) -> None:
        """Give slots to those of `metrics` that have none: to each as long as enough are left for more telling ones."""
        names, omitted = list(self.description.metrics), []
        is_settled = self._epochs_begun > 1 or self.trained or self._monotonic() >= self._settles_at
        fresh = sorted((name for name in metrics if name not in names), key=metric_rank)
        are_many = len(names) + len(fresh) > wire.MAX_METRICS
        for name in fresh:
            if self.chosen and not any(fnmatchcase(name, wanted) for wanted in self.chosen):
                continue
            if self.chosen or self._is_over:
                least = 0
            elif is_settled:
                least = _kept_for_late(metric_rank(name), names) if are_many else 0
            else:
                least = _kept_back(metric_rank(name), names)
            free = wire.MAX_METRICS - len(names)
            if free > least:
                names.append(name)
                self._waiting.pop(name, None)
            elif self.chosen or (is_settled and (self._is_over or not free)):
                omitted.append(name)
            elif name in self._waiting or len(self._waiting) < _MOST_WAITING:
                self._waiting[name] = metrics[name]
        if omitted:
            said = ", ".join(omitted[:4]) + (f" and {len(omitted) - 4} more" if len(omitted) > 4 else "")
            warn_once(
                "metrics",
                f"a run shows at most {wire.MAX_METRICS} metrics, metrics=[…] chooses which; omitted: {said}",
            )
        if len(names) > len(self.description.metrics):
            self.describe(metrics=tuple(names))

    def _settle(self, *, is_over: bool = False) -> None:
        """Give slots to the metrics that wait for one; `is_over`: all that are left, as no other metric comes."""
        self._settles_at, self._is_over = 0, is_over
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self.log(waiting)

    def describe(self, **changes: object) -> None:
        """Change fields of the description and publish it."""
        if self._map is None:
            return
        with self._lock:
            try:
                self._write_description(self.description._replace(**changes))  # type: ignore[arg-type]
            except BoardError as error:  # too long: what was said before still holds
                warn_once("description", str(error))
            except Exception as error:
                self._failed(error)

    def tell(self, change: Callable[[About], About]) -> None:
        """Publish the particulars of the run, changed by `change`; what has no room is omitted, with a warning."""
        if self._map is None:
            return
        with self._lock:
            try:
                wanted, mapped = change(self.about), self._map
                if mapped is None or wanted == self.about:
                    return
                omitted = write_about(mapped, self._about_version + 1, wanted).omitted
                self.about, self._about_version = wanted, self._about_version + 1
            except Exception as error:  # what was published before still holds
                warn_once("about", f"the parameters of this run do not show: {type(error).__name__}: {error}")
                return
        if omitted:
            warn_once("omitted", f"a run keeps {ROOM} bytes of parameters and notes: {omitted} of them are omitted")

    def close(
        self, *, failed: bool = False, interrupted: bool = False, stopped: bool = False, withdrawn: bool = False
    ) -> None:
        """Publish the end of the run and let go. The file stays, so that a daemon can read the end.

        The daemon that has read it removes it; without a daemon, the next training of this user does. `withdrawn`: the
        run is to show nowhere, as if it had never begun. `stopped`: before its end; what failed is not also stopped.
        """
        with self._lock:
            if self._map is None:
                return
            if paused := self.description.phases[self._phase] == PAUSED:
                failed = interrupted = stopped = False  # whatever ends the process now: the training was over
            elif not withdrawn:
                self._tell_cpu_time()
            if not withdrawn:
                self._settle(is_over=True)
            self._unfold()
            self._flags, aux = wire.FLAG_ENDED, 0
            for said, flag, word in (
                (failed or interrupted, wire.FLAG_FAILED, wire.RUN_FAILED),
                (interrupted, wire.FLAG_INTERRUPTED, wire.RUN_INTERRUPTED),
                (withdrawn, wire.FLAG_WITHDRAWN, wire.RUN_WITHDRAWN),
                (stopped and not failed, wire.FLAG_STOPPED, wire.RUN_STOPPED),
            ):
                self._flags, aux = self._flags | flag * said, aux | word * said
            self._phase = 0
            self._event(wire.RUN_END, aux=aux, at=self._paused if paused else None)
            self.publish()
            self._turn_off()

    def _event(
        self,
        mark: int,
        monotonic_ns: int = 0,
        aux: int = 0,
        asked: int = wire.NOT_KNOWN,
        free: int = wire.NOT_KNOWN,
        epoch: int | None = None,
        logged: wire.Metrics | None = None,
        at: tuple[int, int] | None = None,
        end: RowEnd | None = None,
    ) -> None:
        mapped = self._map
        if mapped is None:
            return
        with self._lock:
            number = self._events + 1
            self._room -= 1
            peak, self.peak = self.peak, wire.NOT_KNOWN
            if at is None and self._over[0]:
                at = self._over
            try:
                event = wire.Event(
                    mark=mark,
                    phase=self._phase,
                    number=number,
                    monotonic_ns=at[0] if at else monotonic_ns or self._monotonic(),
                    time_ns=at[1] if at else self._now(),
                    step=_int64(end.step if end else self.steps),
                    wait_ns=min(end.wait_ns if end else self.wait_ns, wire.NOT_KNOWN),
                    epoch=self._epoch if epoch is None else _int32(epoch),
                    aux=aux,
                    asked=asked,
                    free=free,
                    logged=tuple(self._logged if logged is None else logged),
                    peak=peak,
                )
                record, supplement = wire.pack_event(event), wire.pack_supplement(event)
                offset = wire.supplement_offset(number)
                mapped[offset : offset + len(supplement)] = supplement
                offset = wire.event_offset(number)
                mapped[offset : offset + len(record)] = record
                mapped[_EVENT_HEAD] = number.to_bytes(8, "little")
            except Exception as error:
                self._failed(error)
            self._events = number

    def _tell_cpu_time(self) -> None:
        try:
            seconds = round(self.cpu_time(), 2) if self.cpu_time is not None else 0.0
        except Exception as error:  # a /proc of which nothing is expected
            warn_once("cpu", f"the CPU time of this training is unknown: {type(error).__name__}: {error}")
            return
        if seconds:
            self.describe(facts=self.description.facts._replace(cpu_seconds=seconds))

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
            warn_once("phases", f"a run has at most {MAX_PHASES - 2} phase names: {name!r} is shown as {TRAIN!r}")
            return 1
        self.describe(phases=(*names, name))
        return len(names) if len(self.description.phases) > len(names) else 0

    def _create(self, directory: str) -> None:
        made = make_board(directory, self.description, self._monotonic, self._now)
        self._file, self._map, self.path, self._version = made, made.mapped, made.path, 1

    def _failed(self, error: Exception) -> None:
        self._turn_off()
        warn_once("board", f"this training no longer shows in gpumon: {type(error).__name__}: {error}")

    def _turn_off(self) -> None:
        # The mapping is left to the last reference: a thread may be in the middle of a write.
        self._map = None
        file, self._file = self._file, None
        if file is not None:
            _let_go(file)

    def leave(self) -> None:
        """In a forked child: let go of what is the parent's, silently."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._turn_off()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # In a cycle the garbage collector may come to a board before the callback that would have closed it.
        if getattr(self, "_map", None) is not None and not is_finalizing():  # then this module may be gone
            self.close(failed=self.must_end, stopped=self.is_left)


def _kept_back(rank: int, names: Sequence[str]) -> int:
    """Slots that a metric of this rank leaves to more telling ones that may come."""
    least, of = (0, 0) if rank < 2 else (_FOR_HELD_OUT, 2) if rank == 2 else (_FOR_MEASURES, 3)
    return max(0, least - sum(metric_rank(name) < of for name in names))


def _kept_for_late(rank: int, names: Sequence[str]) -> int:
    """Slots that a metric of this rank leaves to a validation that is made after some epochs."""
    return 0 if rank < 2 else max(0, _FOR_LATE - sum(metric_rank(name) == 1 for name in names))


def _let_go(file: BoardFile) -> None:
    """Close the descriptors of a board that are still its own; those of others stay as they are."""
    if is_open(file.fd, file.place):
        os.close(file.fd)
    if file.mapped_fd != -1 and not is_open(file.mapped_fd, file.place):
        _never_closed.append(file.mapped)  # it would close whatever has its number now


def _int32(number: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, number))


def _int64(number: int) -> int:
    return max(-(1 << 63), min((1 << 63) - 1, number))
