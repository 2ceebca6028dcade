"""Process history in memory, for views without a history file. It keeps a snapshot every ten seconds for one hour."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.history.tiers import HOUR, PROCESS_SHAPES
from gpumon.storage.processes.blocks import MEASURES, add_values, empty_cell, read_values
from gpumon.storage.processes.reader import Piece
from gpumon.storage.processes.snapshot import MAX_START_DIFFERENCE

SNAPSHOT_INTERVAL = PROCESS_SHAPES[0].step
"""Seconds between two snapshots, the same as in the history file."""
MAX_AGE = float(HOUR)
"""Seconds for which snapshots are kept, the same as for frames."""
MAX_ROWS = 200_000
"""Maximum number of processes in all snapshots together, 16 bytes each. The oldest snapshots are dropped if there are
more."""
_WIDTH = len(MEASURES)
Identity = tuple[str, int, float]
"""UUID, pid and start time of a process."""


@dataclass(frozen=True, slots=True)
class _MemorySnapshot:
    """The processes in a snapshot, which is valid until the next one."""

    begin: float
    """Start of the snapshot, in seconds since 1970."""
    end: float
    follows: bool
    """Whether the snapshot starts at the end of the previous one."""
    identities: tuple[Identity, ...]
    values: array[float]
    """The measures of each process, one process after the other."""


class RecentSnapshots:
    """Takes a snapshot of the processes every ten seconds, from frames in order. Returns the usage of a process."""

    def __init__(self, max_age: float = MAX_AGE, max_rows: int = MAX_ROWS) -> None:
        self._max_age, self._max_rows = max_age, max_rows
        self._snapshots: deque[_MemorySnapshot] = deque()
        self._rows = 0
        self._time, self._monotonic_ns = NAN, 0

    @property
    def begin(self) -> float:
        """Start of the oldest snapshot (s since 1970); NaN if there is none."""
        return self._snapshots[0].begin if self._snapshots else NAN

    def add(self, frame: Frame) -> None:
        """Add the next frame. Most frames do not start a new snapshot."""
        if not frame.is_full:
            return
        passed = (frame.monotonic_ns - self._monotonic_ns) / SECOND
        follows = bool(self._snapshots) and not is_gap(passed, frame.time - self._time, frame.interval)
        self._time, self._monotonic_ns = frame.time, frame.monotonic_ns
        if follows:
            last = self._snapshots[-1] = replace(self._snapshots[-1], end=frame.time)
            if frame.time - last.begin < SNAPSHOT_INTERVAL:
                return
        self._add_snapshot(frame.time, frame.processes, follows=follows)

    def _add_snapshot(self, time: float, processes: tuple[Process, ...], *, follows: bool) -> None:
        identities = tuple((process.uuid, process.pid, process.started) for process in processes)
        if self._snapshots and self._snapshots[-1].identities == identities:
            identities = self._snapshots[-1].identities  # snapshots with the same processes share one tuple
        values = array("f", (value for process in processes for value in read_values(process)))
        self._snapshots.append(_MemorySnapshot(time, time, follows, identities, values))
        self._rows += len(identities)
        while time - self._snapshots[0].begin > self._max_age or (
            self._rows > self._max_rows and len(self._snapshots) > 1
        ):
            self._rows -= len(self._snapshots.popleft().identities)

    def pieces(self, device: str, pid: int, started: float) -> list[Piece]:
        """Return the usage of a process in each snapshot that contains it, oldest first.

        `device`: UUID of the GPU. `started`: start of the process (s since 1970). If it is NaN (unknown), only
        snapshots since the last gap or the last snapshot without the process are used, because before that, its pid may
        have belonged to another process.
        """
        pieces = [
            Piece(0, snapshot.begin, snapshot.end, self._cell(snapshot, index))
            for snapshot, index in self._matches(device, pid, started)
        ]
        return [piece for piece in reversed(pieces) if piece.end > piece.begin]

    def _matches(self, device: str, pid: int, started: float) -> Iterator[tuple[_MemorySnapshot, int]]:
        """Yield the snapshots that contain a process, with its index in them, newest first."""
        was_found = is_over = False
        for snapshot in reversed(self._snapshots):
            index = next(
                (
                    index
                    for index, identity in enumerate(snapshot.identities)
                    if identity[1] == pid and identity[0] == device and _is_same_start(identity[2], started)
                ),
                -1,
            )
            if not is_known(started) and was_found and (index < 0 or is_over):
                return
            if index >= 0:
                yield snapshot, index
            was_found, is_over = was_found or index >= 0, not snapshot.follows

    @staticmethod
    def _cell(snapshot: _MemorySnapshot, index: int) -> list[float]:
        cell = empty_cell()
        add_values(cell, snapshot.values[index * _WIDTH : (index + 1) * _WIDTH], snapshot.end - snapshot.begin)
        return cell


def _is_same_start(a: float, b: float) -> bool:
    """Return whether two start times may belong to the same process. An unknown time equals only an unknown time."""
    return abs(a - b) <= MAX_START_DIFFERENCE if is_known(a) and is_known(b) else is_known(a) == is_known(b)
