"""Events of frames that are stored only with their values: boundaries, and runs that began or ended.

An event is a slot of 96 bytes with its own CRC. It consists of the header `EVENT` and a record whose form depends on
the kind of event. Events are numbered from 1, and each refers to the frame with which it arrived. It is written before
readers can see that frame.
"""

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from gpumon.common.numbers import is_known
from gpumon.model.frame import Boundary, Mark, Run, RunState, Tick
from gpumon.ring.directory import StoredDirectory
from gpumon.ring.layout import BOUNDARY, EVENT_SIZE, RUN_METRICS, Layout, believable

if TYPE_CHECKING:
    from gpumon.ring.directory import Directory

EVENT = struct.Struct("<IBxxxQQ")
"""Struct format of an event: CRC32 of the rest, kind, number, frame."""
RUN_CHANGE = struct.Struct("<IBxxxiIqIddd")
"""run id, state, epoch, phase, step, lost, epoch_started, updated, wait: as in `Run`"""
_CRC_FROM = 4
_BOUNDARY, _RUN = 1, 2
_LAST = 1 << 64
_REMEMBERED = 256
"""Number of former runs whose state is remembered in addition to the states of the current runs."""
_STATES = frozenset(RunState)
MetricsOf = Callable[[str], Mapping[str, float]]
"""Function that returns the metrics of the run with a given key; empty if the run is not in the same slot."""


class Events(NamedTuple):
    """The boundaries and changed runs that arrived with one frame."""

    runs: tuple[Run, ...] = ()
    """Runs that were new or had a new state."""
    boundaries: tuple[Boundary, ...] = ()


class EventWriter:
    """Writes events to a ring file."""

    def __init__(self, fd: int, layout: Layout, directory: "Directory") -> None:
        self._fd = fd
        self._area = layout.events
        self._directory = directory
        self._head = 0
        self._states: dict[str, RunState] = {}

    def write(self, tick: Tick, boundaries: Sequence[Boundary], frame: int) -> None:
        """Store the events of frame number `frame`. If this raises OSError, no event is stored."""
        directory = self._directory.run_id
        changed = [run for run in tick.runs if self._states.get(run.key) is not run.state and directory(run.key)]
        if not changed and not boundaries:
            return
        bodies = chain(
            ((_RUN, self._run(run)) for run in changed),
            ((_BOUNDARY, pack_boundary(boundary, self._directory)) for boundary in boundaries),
        )
        head = self._head
        for kind, body in bodies:
            head += 1
            raw = EVENT.pack(0, kind, head, frame) + body.ljust(BOUNDARY.size, b"\0")
            os.pwrite(self._fd, crc32(raw[_CRC_FROM:]).to_bytes(4, "little") + raw[_CRC_FROM:], self._area.at(head))
        self._head = head
        self.set_states(changed)
        if len(self._states) > len(tick.runs) + _REMEMBERED:
            self._states = {run.key: run.state for run in tick.runs}

    def copy(self, number: int, raw: bytes) -> None:
        """Copy an event of the previous ring file. `raw`: its bytes."""
        os.pwrite(self._fd, raw, self._area.at(number))
        self._head = max(self._head, number)

    def set_states(self, runs: Sequence[Run]) -> None:
        """Remember the states of these runs, for which no event is written."""
        self._states.update((run.key, run.state) for run in runs)

    def _run(self, run: Run) -> bytes:
        return RUN_CHANGE.pack(
            self._directory.run_id(run.key), run.state, run.epoch, self._directory.string(run.phase), run.step,
            run.lost_events, run.epoch_started, run.updated, run.wait,
        )  # fmt: skip


def read_raw_events(fd: int, layout: Layout, first: int = 0, last: int = _LAST) -> list[tuple[int, bytes]]:
    """Return number and bytes of each complete event that belongs to the frames `first` to `last`, in order."""
    area, events = layout.events, []
    stored = os.pread(fd, area.end - area.begin, area.begin)
    used = stored.rstrip(b"\0")  # slots at the end that were never written
    for slot, at in enumerate(range(0, min(len(used), len(stored) - EVENT_SIZE + 1), EVENT_SIZE)):
        raw = stored[at : at + EVENT_SIZE]
        crc, _, number, frame = EVENT.unpack_from(raw)
        is_wanted = number and first <= frame <= last and number % area.slots == slot
        if is_wanted and crc32(raw[_CRC_FROM:]) == crc:
            events.append((number, raw))
    newest = max(events, default=(0, b""))[0]
    return sorted(event for event in events if event[0] > newest - area.slots)


def read_events(
    fd: int, layout: Layout, directory: StoredDirectory, first: int = 0, last: int = _LAST
) -> dict[int, Events]:
    """Return the events of the frames `first` to `last`. The keys are the numbers of the frames."""
    runs: dict[int, list[Run]] = {}
    boundaries: dict[int, list[Boundary]] = {}
    for _, raw in read_raw_events(fd, layout, first, last):
        _, kind, _, frame = EVENT.unpack_from(raw)
        if kind == _BOUNDARY and (boundary := read_boundary(raw, EVENT.size, directory)) is not None:
            boundaries.setdefault(frame, []).append(boundary)
        elif kind == _RUN and (run := _read_run(raw, directory)) is not None:
            runs.setdefault(frame, []).append(run)
    return {
        frame: Events(tuple(runs.get(frame, ())), tuple(boundaries.get(frame, ())))
        for frame in runs.keys() | boundaries.keys()
    }


def pack_boundary(event: Boundary, directory: "Directory", run: Run | None = None) -> bytes:
    """Encode a boundary for a slot.

    `run`: the run of the boundary, if it is in the same slot. If a metric has the same value in the boundary and in the
    run, it is then stored only with the run.
    """
    return BOUNDARY.pack(
        directory.run_id(event.run), event.number, event.mark, _metric_bits(event, run) if run and event.metrics else 0,
        directory.string(event.phase), event.epoch, event.step, event.monotonic_ns, event.time_ns, event.wait,
        event.asked, event.free,
    )  # fmt: skip


def _metric_bits(event: Boundary, run: Run) -> int:
    """Return a number with one bit for each metric of a run.

    The bit is set if the metric still has the value that was logged at the boundary. Two NaN count as equal.
    """
    logged, bits = event.metrics, 0
    for i, (name, value) in enumerate(islice(run.metrics.items(), RUN_METRICS)):
        if name in logged and (logged[name] == value or not (is_known(logged[name]) or is_known(value))):
            bits |= 1 << i
    return bits


def read_boundary(
    raw: bytes, at: int, directory: StoredDirectory, metrics_of: MetricsOf | None = None
) -> Boundary | None:
    """Decode the boundary at offset `at` of a slot; None if its run or its mark is unknown."""
    run_id, number, mark, bits, phase, epoch, step, monotonic, time, *amounts = BOUNDARY.unpack_from(raw, at)
    run = directory.runs.get(run_id)
    if run is None or not Mark.EPOCH_BEGIN <= mark <= Mark.STEPS:
        return None
    wait, asked, free = believable(amounts)
    return Boundary(
        run=run.key,
        number=number,
        mark=Mark(mark),
        epoch=epoch,
        step=step,
        phase=directory.strings.get(phase, ""),
        monotonic_ns=monotonic,
        time_ns=time,
        wait=wait,
        asked=asked,
        free=free,
        metrics={name: value for i, (name, value) in enumerate(metrics_of(run.key).items()) if bits >> i & 1}
        if bits and metrics_of is not None
        else {},
    )


def _read_run(raw: bytes, directory: StoredDirectory) -> Run | None:
    run_id, state, epoch, phase, step, lost, *times = RUN_CHANGE.unpack_from(raw, EVENT.size)
    run = directory.runs.get(run_id)
    if run is None:
        return None
    epoch_started, updated, wait = believable(times)
    return run._replace(
        state=RunState(state) if state in _STATES else RunState.DIED,
        epoch=epoch,
        step=step,
        phase=directory.strings.get(phase, ""),
        epoch_started=epoch_started,
        updated=updated,
        wait=wait,
        lost_events=lost,
        metrics={},
    )
