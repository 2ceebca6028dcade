"""Reads one board for the daemon until its run ends.

No byte of a board is trusted. Only bytes covered by a CRC are parsed, numbers are clamped to their range, and strings
are cleaned. No size in a board determines how much memory is allocated.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from gpumon.common.clock import SECOND
from gpumon.common.errors import BoardError
from gpumon.common.numbers import NAN
from gpumon.common.procfs import start_time
from gpumon.model.epoch_boundaries import EpochFold
from gpumon.model.frame import TRAINING, Boundary, FrameworkMemory, Mark, Run, RunState
from gpumon.model.run import LARGEST, NO_METADATA, decode_metadata
from gpumon.tracking import wire_format
from gpumon.tracking.board_directory import is_running, name_uid, process_by_namespace, read_process
from gpumon.tracking.description import Description, decode
from gpumon.tracking.matching import Claim, RunPosition, attribute, positions_after
from gpumon.tracking.stale_boards import lock_holder
from gpumon.tracking.stalls import LIMITS, Progress, StallDetector, StallLimits
from gpumon.tracking.wire_format import (
    about_versions,
    text_versions,
    unpack_event,
    unpack_header,
    unpack_memory,
    unpack_state,
)

KEPT_BOUNDARIES = 1024
"""Maximum number of boundaries of each run that are held in memory to attribute samples to epochs. Far fewer boundaries
occur between a sample and its attribution."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MAX_INT64 = (1 << 63) - 1
_END_BITS = (
    (wire_format.FLAG_FAILED, wire_format.RUN_FAILED),
    (wire_format.FLAG_INTERRUPTED, wire_format.RUN_INTERRUPTED),
    (wire_format.FLAG_WITHDRAWN, wire_format.RUN_WITHDRAWN),
    (wire_format.FLAG_STOPPED, wire_format.RUN_STOPPED),
)
"""For each way in which a run can end: the flag in its state, and the bit in its last event."""


class ClockReading(NamedTuple):
    """The current time by both clocks in ns, and the time and pid namespaces of this process (0 if not available)."""

    monotonic_ns: int
    time_ns: int
    namespace: int
    pid_namespace: int = 0


class BoardReader:
    """Reads the board `name` in a directory. `directory` is a file descriptor.

    Raises BoardError if the file is not a board or cannot be trusted, OSError if it cannot be read.
    """

    def __init__(self, directory: int, name: str, proc: str, limits: StallLimits = LIMITS) -> None:
        self.name = name
        self.claim = Claim()
        self.ended = 0
        """Time at which this reader found that the run had ended, in ns since 1970; 0 while the run continues. If the
        run had ended before this reader first saw it, this is the time at which the training last wrote its state."""
        self.withdrawn = False
        """Whether the training withdrew the run, because another run describes the same work in more detail."""
        self._fold = EpochFold()
        self._positions: list[RunPosition] = []
        """Positions of the run in chronological order. `at` uses them."""
        self._newest = 0
        """Time of the newest boundary, in ns of this machine's CLOCK_MONOTONIC."""
        self.memory: tuple[wire_format.Memory, ...] = ()
        """Framework memory on each device of the run."""
        self._proc = proc
        self.uid = name_uid(name)
        """Owner of the file and of the process that locks it."""
        self._last_event = 0
        self._state = RunState.RUNNING
        self._was_alive = False
        self._lost = 0
        self._version = 0
        self._about_version = 0
        self.text_bytes = 0
        """Bytes of descriptions and metadata read so far."""
        self.about = NO_METADATA
        self._description = Description(name="", id="")
        self._pid = 0
        self._has_searched_namespace = False
        self._stalls = StallDetector(limits)
        self.fd = os.open(name, _OPEN, dir_fd=directory)
        try:
            _check(os.fstat(self.fd), self.uid)
            front = os.pread(self.fd, wire_format.FRONT, 0)
            self.header = unpack_header(front)
        except (BoardError, OSError):
            os.close(self.fd)
            raise
        self.backlog = min(_head(front), wire_format.EVENT_COUNT)
        """Number of events that the first poll must read."""
        self.inode = os.fstat(self.fd).st_ino
        # The kernel does not report the locks of the calling process, and closing this descriptor would drop them.
        self._is_own = self.header.pid == os.getpid() and self.header.started == start_time()

    @property
    def can_close(self) -> bool:
        """Whether the descriptor may be closed. False while this process holds the lock on the board."""
        return not self._is_own or self.ended > 0

    def poll(
        self,
        now: Callable[[], ClockReading],
        max_events: int = wire_format.EVENT_COUNT,
        *,
        texts: bool = True,
        metadata: bool = True,
    ) -> tuple[Run, list[Boundary]]:
        """Return the current run and its new boundaries. Raises BoardError if the board is not trustworthy.

        `now`: function that returns the current time. `max_events`: if there are more new events than this, only the
        newest are read, and the others count as lost. `texts`: if false, a new description of a running run is left for
        a later poll, together with the events that need it. `metadata`: if false, new metadata is left for a later
        poll.
        """
        # Check first whether the process is alive, and then read the board. The board of a dead process no longer
        # changes.
        holder = os.getpid() if self._is_own else lock_holder(self.fd)
        front = os.pread(self.fd, wire_format.FRONT, 0)
        state = unpack_state(front)
        has_end = state is not None and bool(state.flags & wire_format.FLAG_ENDED)
        is_over = not self.ended and (has_end or (holder is None and not self._is_running()))
        texts = texts or is_over or not self._version or self._is_described(front)
        events, lost = self._new_events(front, max_events) if texts else ([], 0)
        clock = now()  # read after the events, so that no valid event is later than this time
        if texts:
            self._read_description(front)
        if metadata or is_over:
            self._read_about(front)
        _, self.memory = unpack_memory(front)
        if holder is not None:
            self._identify(holder)
        boundaries = [self._boundary(event, clock) for event in events]
        self._lost = min(self._lost + lost, LARGEST)
        self._positions += positions_after(self._fold, boundaries)
        if len(self._positions) > KEPT_BOUNDARIES:
            del self._positions[: -KEPT_BOUNDARIES // 2]
        run_state = self._run_state(state, lambda: holder is not None or self._is_running())
        if run_state == RunState.RUNNING:
            self._was_alive = True
        elif not self.ended:
            last_sign = min(clock.time_ns, max(state.time_ns if state else 0, self.header.time_ns))
            self.ended = clock.time_ns if self._was_alive else last_sign
        return self._run(state, run_state, clock), boundaries

    def at(self, run: Run, monotonic_ns: int) -> Run | None:
        """Return `run` as it was at `monotonic_ns`; None if the run had not begun."""
        return attribute(run, self._positions, monotonic_ns)

    def is_removed(self) -> bool:
        """Whether the file no longer has a name."""
        return os.fstat(self.fd).st_nlink == 0

    def continue_in(self, other: BoardReader) -> None:
        """Continue with the board `other`, which replaces this board.

        Raises BoardError if `other` is from another process.
        """
        if other.header != self.header or other.uid != self.uid:
            raise BoardError("another board of the same name")
        self.fd, other.fd = other.fd, self.fd
        self.inode = other.inode

    def close(self) -> None:
        """Close the descriptor, unless that would release a lock of this process."""
        if self.fd >= 0 and self.can_close:
            os.close(self.fd)
            self.fd = -1

    def _new_events(self, front: bytes, max_events: int) -> tuple[list[wire_format.Event], int]:
        """Return the new events and the number of lost ones."""
        head = _head(front)
        if not self._last_event < head < _MAX_INT64:
            return [], 0
        ring = os.pread(self.fd, wire_format.EVENT_COUNT * wire_format.EVENT_SIZE, wire_format.EVENTS)
        supplements = os.pread(self.fd, wire_format.EVENT_COUNT * wire_format.SUPPLEMENT_SIZE, wire_format.SUPPLEMENTS)
        first = max(self._last_event + 1, head - min(max_events, wire_format.EVENT_COUNT) + 1)
        events = [event for n in range(first, head + 1) if (event := unpack_event(ring, n, supplements)) is not None]
        if not events:
            return [], 0  # there is no valid event up to this head; the next poll tries again
        newest = events[-1].number
        lost = newest - self._last_event - len(events)
        self._last_event = newest
        return events, lost

    def _is_described(self, front: bytes) -> bool:
        """Whether the newest description has been read."""
        return all(version <= self._version for version, *_ in text_versions(front))

    def _read_description(self, front: bytes) -> None:
        for version, length, crc, offset in text_versions(front):
            if version == self._version:
                return
            text = os.pread(self.fd, length, offset)
            self.text_bytes += length
            if len(text) == length and crc32(text) == crc:
                self._description, self._version = decode(text), version
                return
        if not self._version:
            raise BoardError("no complete description")

    def _read_about(self, front: bytes) -> None:
        for version, length, crc, offset in about_versions(front):
            if version == self._about_version:
                return
            text = os.pread(self.fd, length, offset)
            self.text_bytes += length
            if len(text) == length and crc32(text) == crc:
                self.about, self._about_version = decode_metadata(text), version
                return

    def _identify(self, holder: int) -> None:
        if holder and holder != self._pid:
            process = read_process(self._proc, holder)
            if process is not None and process.uid != self.uid:
                raise BoardError(f"the board of uid {self.uid} is held by a process of uid {process.uid}")
            self._pid = holder if process is not None else 0
        elif not holder and not self._has_searched_namespace:
            self._has_searched_namespace = True
            self._pid = process_by_namespace(self._proc, self.header, self.uid)

    def _boundary(self, event: wire_format.Event, clock: ClockReading) -> Boundary:
        self._newest = max(self._newest, self._local_time(event.monotonic_ns, event.time_ns, clock))
        try:
            mark = Mark(event.mark)
        except ValueError:
            mark = Mark.PHASE  # the mark is unknown, but the epoch and phase of the event are valid
        boundary = Boundary(
            run=self.name,
            number=event.number,
            mark=mark,
            epoch=event.epoch,
            step=max(0, event.step),
            phase=self._phase(event.phase),
            monotonic_ns=self._newest,
            time_ns=min(event.time_ns, _MAX_INT64),
            wait=_known(event.wait_ns) / SECOND,
            asked=_known(event.asked),
            free=_known(event.free),
            metrics=self._metrics(event.logged),
            peak=_known(event.peak),
            of_step=event.aux if mark is Mark.LOG else 0,
        )
        if mark == Mark.RUN_END:
            self._set_end(event.aux)
        return boundary

    def _local_time(self, monotonic_ns: int, time_ns: int, clock: ClockReading) -> int:
        """Convert a monotonic time in a board to this machine's monotonic clock.

        A time in the future becomes the current time.
        """
        offset = clock.time_ns - clock.monotonic_ns
        if self.header.time_namespace != clock.namespace and abs((time_ns - monotonic_ns) - offset) > SECOND:
            monotonic_ns = time_ns - offset
        return max(0, min(monotonic_ns, clock.monotonic_ns))

    def _set_end(self, aux: int) -> None:
        """Set how the run ended. `aux`: this field of the last event."""
        failed = RunState.INTERRUPTED if aux & wire_format.RUN_INTERRUPTED else RunState.FAILED
        succeeded = RunState.STOPPED if aux & wire_format.RUN_STOPPED else RunState.FINISHED
        self._state = failed if aux & wire_format.RUN_FAILED else succeeded
        self.withdrawn = bool(aux & wire_format.RUN_WITHDRAWN)

    def _is_running(self) -> bool:
        """Whether the process is still running without its lock.

        A process loses the lock if other code in it closes a descriptor of the board.
        """
        inode = 0 if self.is_removed() else self.inode
        return not self.ended and is_running(self._proc, self.header, self.uid, self._pid, inode)

    def _run_state(self, state: wire_format.State | None, is_alive: Callable[[], bool]) -> RunState:
        if self._state == RunState.RUNNING and state is not None and state.flags & wire_format.FLAG_ENDED:
            self._set_end(sum(bit for flag, bit in _END_BITS if state.flags & flag))
        if self._state == RunState.RUNNING and not is_alive():
            return RunState.DIED
        return self._state

    def _phase(self, index: int) -> str:
        phases = self._description.phases
        return phases[index] if index < len(phases) else ""

    def _run(self, state: wire_format.State | None, run_state: RunState, clock: ClockReading) -> Run:
        description = self._description
        self.claim = Claim(
            pid=self._pid,
            uid=self.uid,
            user="",
            devices=description.devices,
            visible=description.visible,
            order=description.order,
            world_size=description.world_size,
            is_numbered_here=self.header.pid_namespace in (0, clock.pid_namespace) or not clock.pid_namespace,
        )
        run = Run(
            key=self.name,
            id=description.id,
            name=description.name,
            pid=self._pid,
            user="",
            rank=description.rank,
            local_rank=description.local_rank,
            world_size=description.world_size,
            framework=description.framework,
            epochs=description.epochs,
            first_epoch=description.first_epoch,
            base=description.base,
            facts=description.facts.for_frames()._replace(begun=self.header.monotonic_ns / SECOND),
            gpus=description.devices,
            started=_seconds(self.header.time_ns),
            state=run_state,
            lost_events=self._lost,
        )
        if state is None:
            return run
        epoch_begin = state.epoch_monotonic_ns
        stalled_since = self._stalled_since(state, clock) if run_state is RunState.RUNNING else 0.0
        return run._replace(
            facts=run.facts._replace(stalled_since=stalled_since) if stalled_since else run.facts,
            epoch=state.epoch,
            step=max(0, state.step),
            phase=self._phase(state.phase),
            epoch_started=_seconds(state.time_ns - (state.monotonic_ns - epoch_begin)) if epoch_begin else NAN,
            updated=_seconds(state.time_ns),
            wait=_known(state.wait_ns) / SECOND if state.wait_ns else NAN,
            metrics=self._metrics(state.metrics),
            memory=self._total_memory(),
        )

    def _stalled_since(self, state: wire_format.State, clock: ClockReading) -> float:
        """Return the time since which the process has been stalled, in seconds since 1970; 0 if it is not stalled."""
        is_without_epochs = state.epoch < 0 and state.step > 0  # has no phase while it trains
        progress = Progress(
            self._local_time(state.monotonic_ns, state.time_ns, clock),
            max(0, state.step),
            self._phase(state.phase) or (TRAINING if is_without_epochs else ""),
            bool(state.flags & wire_format.FLAG_BETWEEN),
        )
        since_ns = self._stalls.update(progress, clock.monotonic_ns)
        # Rounded, so that the fact stays the same while the two clocks differ by varying microseconds.
        return float(round((clock.time_ns - (clock.monotonic_ns - since_ns)) / SECOND)) if since_ns else 0.0

    def _total_memory(self) -> FrameworkMemory:
        """Return the framework memory of the training process, summed over all devices."""
        amounts = [device[2:] for device in self.memory]
        return FrameworkMemory(*map(_sum, zip(*amounts, strict=True))) if amounts else FrameworkMemory()

    def _metrics(self, logged: wire_format.Metrics) -> dict[str, float]:
        names = self._description.metrics
        return {name: value for name, value in zip(names, logged, strict=False) if name and value is not None}


def _head(front: bytes) -> int:
    """Return the number of the newest event according to the board."""
    return int.from_bytes(front[wire_format.EVENT_HEAD : wire_format.EVENT_HEAD + 8], "little")


def _check(status: os.stat_result, uid: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BoardError("not a regular file")
    if status.st_uid != uid:
        raise BoardError(f"belongs to uid {status.st_uid}, not to {uid} as its name says")
    if status.st_nlink != 1:
        raise BoardError("has a second hard link")
    if status.st_size != wire_format.SIZE:
        raise BoardError(f"{status.st_size} bytes long")
    if status.st_mode & 0o022:
        raise BoardError("is writable by others")


def _seconds(time_ns: int) -> float:
    return max(0, min(time_ns, _MAX_INT64)) / SECOND


def _sum(counts: tuple[int, ...]) -> float:
    return NAN if wire_format.NOT_KNOWN in counts else float(sum(counts))


def _known(count: int) -> float:
    return NAN if count == wire_format.NOT_KNOWN else float(count)
