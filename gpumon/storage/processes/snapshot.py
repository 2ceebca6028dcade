"""Takes snapshots of the process list, and recognizes the same process in consecutive snapshots.

A process is identified by GPU, pid and start time. If the start time is not available, it counts as the same process as
the one in the previous snapshot. After an absence or a gap, it counts as a new process, because the pid may have been
reused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.blocks import TEXTS, read_texts

MAX_START_DIFFERENCE = 1.5
"""Maximum seconds by which the start time of a process may differ after a daemon restart. It may differ because the
kernel reports its boot time in whole seconds, and the boot time changes when the clock is set."""
SNAPSHOT_INTERVAL = PROCESS_SHAPES[0].step * SECOND
"""Nanoseconds between two snapshots."""
_MIN_LENGTH = SECOND
"""Minimum length of a snapshot in ns. After this time, a change in the number of processes starts a new snapshot
early."""
_MAX_PENDING = 128
"""Maximum number of snapshots that are kept while the file cannot be written. They cover 20 minutes."""
_ANSWERS = (Availability.OK, Availability.ASLEEP)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The processes that were running in a span of time."""

    begin_ns: int
    """Start of the span, in ns since 1970."""
    ns: int
    """Length of the span in ns, without gaps."""
    processes: Sequence[Process]
    unanswered: Collection[str]
    """UUIDs of GPUs that did not answer, so that their processes could not be read."""
    follows: bool
    """Whether the snapshot starts at the end of the previous snapshot."""
    monotonic_ns: int
    """Start by CLOCK_MONOTONIC, in ns."""

    @property
    def end_ns(self) -> int:
        """End of the span, in ns since 1970."""
        return self.begin_ns + self.ns


class Snapshots:
    """Takes a snapshot from ticks or frames every `every` ns. If `every` is 0, it takes one at each tick."""

    def __init__(self, every: int = SNAPSHOT_INTERVAL) -> None:
        self.finished: deque[Snapshot] = deque(maxlen=_MAX_PENDING if every else None)
        """Finished snapshots, oldest first. The consumer removes them."""
        self._every = every
        self._open: Snapshot | None = None
        self._ns = self._due_ns = self._monotonic_ns = self._time_ns = 0

    def add(
        self, monotonic_ns: int, time_ns: int, interval: float, processes: Sequence[Process], samples: Sequence[Sample]
    ) -> None:
        """Add the next tick: its times (ns), planned interval (s), processes, and samples of the GPUs."""
        snapshot = self._open
        passed = monotonic_ns - self._monotonic_ns
        gap = snapshot is None or is_gap(passed / SECOND, (time_ns - self._time_ns) / SECOND, interval)
        self._monotonic_ns, self._time_ns = monotonic_ns, time_ns
        if snapshot is not None and not gap:
            self._ns += passed
            is_same = len(processes) == len(snapshot.processes) or self._ns < _MIN_LENGTH
            if is_same and time_ns < self._due_ns:
                return
        self.finish()
        unanswered = [sample.device.uuid for sample in samples if sample.state not in _ANSWERS]
        self._open = Snapshot(time_ns, 0, processes, unanswered, not gap, monotonic_ns)
        self._ns = 0
        self._due_ns = (time_ns // self._every + 1) * self._every if self._every else 0

    def finish(self) -> None:
        """Finish the open snapshot. Called when no more ticks will follow."""
        snapshot, self._open = self._open, None
        if snapshot is not None:
            self.finished.append(replace(snapshot, ns=self._ns))


_identity = itemgetter(*map(Process._fields.index, ("uuid", "pid", "started", *TEXTS)))
MAX_PROCESSES = 1024
"""Maximum number of processes stored per snapshot. Further processes are left out."""
NO_NUMBER = 0
"""Stands for the number of a process that is left out, for example because its GPU does not answer."""


class TrackedProcess:
    """A process that is currently running on a GPU."""

    __slots__ = ("device", "first_monotonic_ns", "first_ns", "kind", "last_ns", "number", "pid", "started", "texts")

    def __init__(self, process: Process, time_ns: int, monotonic_ns: int) -> None:
        self.device = process.uuid
        self.pid = process.pid
        self.started = process.started
        """Start of the process, in seconds since 1970; NaN if not available."""
        self.kind = process.kind
        self.texts: tuple[str, ...] = read_texts(process)
        """Texts in the order of `TEXTS`."""
        self.first_ns = self.last_ns = time_ns
        """Times at which the process was first and last seen, in ns since 1970."""
        self.first_monotonic_ns = monotonic_ns
        """Time when it was first seen, by CLOCK_MONOTONIC in ns."""
        self.number = NO_NUMBER

    def matches(self, process: Process) -> bool:
        """Return whether `process` of the next snapshot, which has the same GPU and pid, may be this process."""
        return self.started == process.started or not (is_known(self.started) and is_known(process.started))

    def update(self, process: Process) -> bool:
        """Update the strings and the start time, and return whether anything changed.

        A process that is ending no longer has a name, so its last name is kept. User and name may change, for example
        if a server starts as root and then drops its privileges.
        """
        previous = (self.texts, self.started)
        self.texts = tuple(new or old for new, old in zip(read_texts(process), self.texts, strict=True))
        if is_known(process.started):
            self.started = process.started
        return previous != (self.texts, self.started)


class ProcessNumbers:
    """Assigns a number to each process. `resolve` is called for a new process and returns its number."""

    def __init__(self, resolve: Callable[[TrackedProcess], int]) -> None:
        self.changed: list[TrackedProcess] = []
        """Processes that have ended, or whose strings or times have changed, since this list was last cleared."""
        self._resolve = resolve
        self._tracked: dict[tuple[str, int], TrackedProcess] = {}
        self._identities: list[tuple[object, ...]] = []
        self._unanswered: Sequence[str] = ()
        self._numbers: list[int] = []
        self._until_ns = 0

    def assign(self, snapshot: Snapshot) -> list[int]:
        """Return a number for each process in a snapshot, for at most `MAX_PROCESSES` processes.

        Processes that are left out get `NO_NUMBER`.
        """
        identities: list[tuple[object, ...]] = list(map(_identity, snapshot.processes))
        unanswered = list(snapshot.unanswered)
        if not (snapshot.follows and identities == self._identities and unanswered == self._unanswered):
            self._match(snapshot)
            self._identities, self._unanswered = identities, unanswered
        self._until_ns = snapshot.end_ns
        return self._numbers

    def current(self) -> list[TrackedProcess]:
        """Return the processes of the last snapshot. Their `last_ns` is set to the end of this snapshot."""
        for tracked in self._tracked.values():
            tracked.last_ns = self._until_ns
        return list(self._tracked.values())

    def reset(self) -> None:
        """Forget all processes. Called when their numbers may have changed."""
        self._tracked, self._identities, self.changed = {}, [], []

    def _match(self, snapshot: Snapshot) -> None:
        previous, self._tracked, self._numbers = self._tracked, {}, []
        for process in snapshot.processes[:MAX_PROCESSES]:
            key = (process.uuid, process.pid)
            if process.uuid in snapshot.unanswered or key in self._tracked:
                self._numbers.append(NO_NUMBER)  # count each process once
                continue
            tracked = previous.get(key)
            if (
                tracked is not None
                and tracked.matches(process)
                and (snapshot.follows or tracked.started == process.started)
            ):
                previous.pop(key, None)
                # If the clock had been ahead, the process was first seen earlier than it then seemed.
                first_ns = snapshot.begin_ns - (snapshot.monotonic_ns - tracked.first_monotonic_ns)
                had_been_ahead = first_ns < tracked.first_ns - SECOND
                if tracked.update(process) or had_been_ahead:
                    tracked.first_ns = first_ns if had_been_ahead else tracked.first_ns
                    tracked.last_ns = snapshot.begin_ns
                    self.changed.append(tracked)
            else:
                tracked = TrackedProcess(process, snapshot.begin_ns, snapshot.monotonic_ns)
                tracked.number = self._resolve(tracked)
            self._tracked[key] = tracked
            self._numbers.append(tracked.number)
        for tracked in previous.values():
            tracked.last_ns = self._until_ns
            self.changed.append(tracked)
