"""One board, watched by the daemon from its first sight to the end of its run.

Every byte of a board may be hostile. Only copies are parsed, each covered by its CRC; numbers are
brought into their range, texts are cleaned, and nothing is allocated by what a board says.
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
from gpumon.model.epoch import EpochFold
from gpumon.model.frame import Boundary, FrameworkMemory, Mark, Run, RunState
from gpumon.model.run import LARGEST, NO_METADATA, decode_about
from gpumon.tracking import wire
from gpumon.tracking.board_directory import is_running, lock_holder, name_uid, process_by_namespace, read_process
from gpumon.tracking.description import Description, decode
from gpumon.tracking.matching import Claim, InForce, attribute, in_force
from gpumon.tracking.wire import about_versions, text_versions, unpack_event, unpack_header, unpack_memory, unpack_state

KEPT_BOUNDARIES = 1024
"""Of each run, to attribute samples: far more than happen between a sample and its attribution."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LONGEST = (1 << 63) - 1
_WORDS = (
    (wire.FLAG_FAILED, wire.RUN_FAILED),
    (wire.FLAG_INTERRUPTED, wire.RUN_INTERRUPTED),
    (wire.FLAG_WITHDRAWN, wire.RUN_WITHDRAWN),
    (wire.FLAG_STOPPED, wire.RUN_STOPPED),
)
"""Ends of a run: its state, and its last event."""


class Times(NamedTuple):
    """Now, on both clocks, ns; and the time and pid namespaces of this process, 0 where they are unknown."""

    monotonic_ns: int
    time_ns: int
    namespace: int
    pid_namespace: int = 0


class Watched:
    """The board `name` in the directory `directory` (a descriptor).

    Raises BoardError when it is no board or not to be trusted, OSError when it cannot be read.
    """

    def __init__(self, directory: int, name: str, proc: str) -> None:
        self.name = name
        self.claim = Claim()
        self.ended = 0
        """When the run ended, ns since 1970: when that was seen, or its last sign of life if it was
        over before it was first seen. 0 while it runs."""
        self.withdrawn = False
        """Whether its process took it back: another run reports more of the same."""
        self._fold = EpochFold()
        self._moments: list[InForce] = []
        """Epochs and phases in force, in the order of time, for `at`."""
        self._newest = 0
        """When the newest boundary was: ns, CLOCK_MONOTONIC of this machine."""
        self.memory: tuple[wire.Memory, ...] = ()
        """Memory that the framework holds on each of its devices."""
        self._proc = proc
        self.uid = name_uid(name)
        """Its owner, and that of the process that holds it."""
        self._seen = 0
        self._word = RunState.RUNNING
        self._alive_once = False
        self._lost = 0
        self._version = 0
        self._about_version = 0
        self.text_bytes = 0
        """Bytes of descriptions and particulars that were read so far."""
        self.about = NO_METADATA
        self._description = Description(name="", id="")
        self._pid = 0
        self._asked_namespace = False
        self.fd = os.open(name, _OPEN, dir_fd=directory)
        try:
            _check(os.fstat(self.fd), self.uid)
            front = os.pread(self.fd, wire.FRONT, 0)
            self.header = unpack_header(front)
        except (BoardError, OSError):
            os.close(self.fd)
            raise
        self.backlog = min(_head(front), wire.EVENT_COUNT)
        """Events that the first poll finds."""
        self.inode = os.fstat(self.fd).st_ino
        # The kernel does not show a process its own locks; and closing this descriptor would drop them.
        self._own = self.header.pid == os.getpid() and self.header.started == start_time()

    @property
    def can_close(self) -> bool:
        """Whether closing the descriptor does no harm: not while this very process holds the lock."""
        return not self._own or self.ended > 0

    def poll(
        self, now: Callable[[], Times], most: int = wire.EVENT_COUNT, *, texts: bool = True, particulars: bool = True
    ) -> tuple[Run, list[Boundary]]:
        """The run as it stands, and the boundaries that are new. Raises BoardError when it is not to be trusted.

        Of more events than `most` the newest are read, and the others count as lost. Without `texts` a new description
        of a run that goes on is left for later, with the events, whose phases and metrics it names; without
        `particulars` so are those.
        """
        # First whether it lives, then what it says: of a dead board what is read is the last word.
        holder = os.getpid() if self._own else lock_holder(self.fd)
        front = os.pread(self.fd, wire.FRONT, 0)
        state = unpack_state(front)
        says_end = state is not None and bool(state.flags & wire.FLAG_ENDED)
        is_over = not self.ended and (says_end or (holder is None and not self._is_running()))
        texts = texts or is_over or not self._version or self._is_described(front)
        events, lost = self._new_events(front, most) if texts else ([], 0)
        times = now()  # after the reading: no honest event that was read is later than this
        if texts:
            self._read_description(front)
        if particulars or is_over:
            self._read_about(front)
        _, self.memory = unpack_memory(front)
        if holder is not None:
            self._identify(holder)
        fresh = [self._boundary(event, times) for event in events]
        self._lost = min(self._lost + lost, LARGEST)
        self._moments += in_force(self._fold, fresh)
        if len(self._moments) > KEPT_BOUNDARIES:
            del self._moments[: -KEPT_BOUNDARIES // 2]
        ended = self._end(state, lambda: holder is not None or self._is_running())
        if ended == RunState.RUNNING:
            self._alive_once = True
        elif not self.ended:
            silent = min(times.time_ns, max(state.time_ns if state else 0, self.header.time_ns))
            self.ended = times.time_ns if self._alive_once else silent
        return self._run(state, ended, times), fresh

    def at(self, run: Run, monotonic_ns: int) -> Run | None:
        """`run` as it was at `monotonic_ns`; None before it began."""
        return attribute(run, self._moments, monotonic_ns)

    def is_removed(self) -> bool:
        """Whether the file has no name any more."""
        return os.fstat(self.fd).st_nlink == 0

    def continue_in(self, other: Watched) -> None:
        """Read on in the board `other`, which replaces this one. Raises BoardError if it is of another process."""
        if other.header != self.header or other.uid != self.uid:
            raise BoardError("another board of the same name")
        self.fd, other.fd = other.fd, self.fd
        self.inode = other.inode

    def close(self) -> None:
        """Give the descriptor back, where that does no harm."""
        if self.fd >= 0 and self.can_close:
            os.close(self.fd)
            self.fd = -1

    def _new_events(self, front: bytes, most: int) -> tuple[list[wire.Event], int]:
        head = _head(front)
        if not self._seen < head < _LONGEST:
            return [], 0
        ring = os.pread(self.fd, wire.EVENT_COUNT * wire.EVENT_SIZE, wire.EVENTS)
        more = os.pread(self.fd, wire.EVENT_COUNT * wire.SUPPLEMENT_SIZE, wire.SUPPLEMENTS)
        first = max(self._seen + 1, head - min(most, wire.EVENT_COUNT) + 1)
        found = [event for n in range(first, head + 1) if (event := unpack_event(ring, n, more)) is not None]
        if not found:
            return [], 0  # a head that no event bears out: looked at again
        newest = found[-1].number
        missed = newest - self._seen - len(found)
        self._seen = newest
        return found, missed

    def _is_described(self, front: bytes) -> bool:
        """Whether the description that is known is the newest."""
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
            raise BoardError("no whole description")

    def _read_about(self, front: bytes) -> None:
        for version, length, crc, offset in about_versions(front):
            if version == self._about_version:
                return
            text = os.pread(self.fd, length, offset)
            self.text_bytes += length
            if len(text) == length and crc32(text) == crc:
                self.about, self._about_version = decode_about(text), version
                return

    def _identify(self, holder: int) -> None:
        if holder and holder != self._pid:
            process = read_process(self._proc, holder)
            if process is not None and process.uid != self.uid:
                raise BoardError(f"the board of uid {self.uid} is held by a process of uid {process.uid}")
            self._pid = holder if process is not None else 0
        elif not holder and not self._asked_namespace:
            self._asked_namespace = True
            self._pid = process_by_namespace(self._proc, self.header, self.uid)

    def _boundary(self, event: wire.Event, times: Times) -> Boundary:
        self._newest = max(self._newest, self._here(event.monotonic_ns, event.time_ns, times))
        try:
            mark = Mark(event.mark)
        except ValueError:
            mark = Mark.PHASE  # not known; what is in force from here on still is
        boundary = Boundary(
            run=self.name,
            number=event.number,
            mark=mark,
            epoch=event.epoch,
            step=max(0, event.step),
            phase=self._phase(event.phase),
            monotonic_ns=self._newest,
            time_ns=min(event.time_ns, _LONGEST),
            wait=_known(event.wait_ns) / SECOND,
            asked=_known(event.asked),
            free=_known(event.free),
            metrics=self._metrics(event.logged),
            peak=_known(event.peak),
            of_step=event.aux if mark is Mark.LOG else 0,
        )
        if mark == Mark.RUN_END:
            self._ended_by(event.aux)
        return boundary

    def _here(self, monotonic_ns: int, time_ns: int, times: Times) -> int:
        """A board's monotonic time on this machine's clock; never in the future."""
        own = times.time_ns - times.monotonic_ns
        if self.header.time_namespace != times.namespace and abs((time_ns - monotonic_ns) - own) > SECOND:
            monotonic_ns = time_ns - own
        return max(0, min(monotonic_ns, times.monotonic_ns))

    def _ended_by(self, aux: int) -> None:
        failed = RunState.INTERRUPTED if aux & wire.RUN_INTERRUPTED else RunState.FAILED
        well = RunState.STOPPED if aux & wire.RUN_STOPPED else RunState.FINISHED
        self._word = failed if aux & wire.RUN_FAILED else well
        self.withdrawn = bool(aux & wire.RUN_WITHDRAWN)

    def _is_running(self) -> bool:
        """Whether the process goes on though its lock is lost: something in it closed the descriptor."""
        return not self.ended and is_running(self._proc, self.header, self.uid, self._pid)

    def _end(self, state: wire.State | None, is_alive: Callable[[], bool]) -> RunState:
        if self._word == RunState.RUNNING and state is not None and state.flags & wire.FLAG_ENDED:
            self._ended_by(sum(word for flag, word in _WORDS if state.flags & flag))
        if self._word == RunState.RUNNING and not is_alive():
            return RunState.DIED
        return self._word

    def _phase(self, index: int) -> str:
        phases = self._description.phases
        return phases[index] if index < len(phases) else ""

    def _run(self, state: wire.State | None, ended: RunState, times: Times) -> Run:
        said = self._description
        self.claim = Claim(
            pid=self._pid,
            uid=self.uid,
            user="",
            devices=said.devices,
            visible=said.visible,
            order=said.order,
            world_size=said.world_size,
            is_numbered_here=self.header.pid_namespace in (0, times.pid_namespace) or not times.pid_namespace,
        )
        run = Run(
            key=self.name,
            id=said.id,
            name=said.name,
            pid=self._pid,
            user="",
            rank=said.rank,
            local_rank=said.local_rank,
            world_size=said.world_size,
            framework=said.framework,
            epochs=said.epochs,
            first_epoch=said.first_epoch,
            base=said.base,
            facts=said.facts.for_frames()._replace(begun=self.header.monotonic_ns / SECOND),
            gpus=said.devices,
            started=_seconds(self.header.time_ns),
            state=ended,
            lost_events=self._lost,
        )
        if state is None:
            return run
        began = state.epoch_monotonic_ns
        return run._replace(
            epoch=state.epoch,
            step=max(0, state.step),
            phase=self._phase(state.phase),
            epoch_started=_seconds(state.time_ns - (state.monotonic_ns - began)) if began else NAN,
            updated=_seconds(state.time_ns),
            wait=_known(state.wait_ns) / SECOND if state.wait_ns else NAN,
            metrics=self._metrics(state.metrics),
            memory=self._held(),
        )

    def _held(self) -> FrameworkMemory:
        """Framework memory over all devices of this process."""
        amounts = [device[2:] for device in self.memory]
        return FrameworkMemory(*map(_sum, zip(*amounts, strict=True))) if amounts else FrameworkMemory()

    def _metrics(self, logged: wire.Metrics) -> dict[str, float]:
        names = self._description.metrics
        return {name: value for name, value in zip(names, logged, strict=False) if name and value is not None}


def _head(front: bytes) -> int:
    """The number of the newest event, as the board says."""
    return int.from_bytes(front[wire.EVENT_HEAD : wire.EVENT_HEAD + 8], "little")


def _check(found: os.stat_result, uid: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BoardError("not a regular file")
    if found.st_uid != uid:
        raise BoardError(f"belongs to uid {found.st_uid}, not to {uid} as its name says")
    if found.st_nlink != 1:
        raise BoardError("has another name elsewhere")
    if found.st_size != wire.SIZE:
        raise BoardError(f"{found.st_size} bytes long")
    if found.st_mode & 0o022:
        raise BoardError("is writable by others")


def _seconds(time_ns: int) -> float:
    return max(0, min(time_ns, _LONGEST)) / SECOND


def _sum(counts: tuple[int, ...]) -> float:
    return NAN if wire.NOT_KNOWN in counts else float(sum(counts))


def _known(count: int) -> float:
    return NAN if count == wire.NOT_KNOWN else float(count)
