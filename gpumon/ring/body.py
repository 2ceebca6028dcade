"""A tick into the bytes of a slot, and the bytes of a slot into a frame."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Run, RunState, Sample, Tick
from gpumon.model.process import Process
from gpumon.ring.believable import believable, is_doubtful
from gpumon.ring.directory import Known
from gpumon.ring.events import pack_boundary, read_boundary
from gpumon.ring.layout import (
    BOUNDARY,
    BOUNDARY_ROOM,
    CRC_FROM,
    PROCESS,
    RUN,
    RUN_METRICS,
    SLOT,
    Layout,
    slot_head,
)
from gpumon.ring.processes import pack_process, read_processes
from gpumon.ring.rows import read_host, read_samples
from gpumon.ring.values import ValueEncoder

if TYPE_CHECKING:
    from gpumon.ring.directory_writer import Directory

_NANS = (NAN,) * RUN_METRICS
_HELD = len(FrameworkMemory._fields)
_STAMPS = 1 << 63
_LONG = 6000
"""Seconds without an answer from which on their number is not kept."""
_STATES = frozenset(RunState)


class Encoder:
    """Packs ticks into one private buffer that is used again and again."""

    def __init__(self, layout: Layout, directory: Directory) -> None:
        self._layout = layout
        self._directory = directory
        self._metrics = struct.Struct(f"<{len(layout.gpu) * layout.rows}d")
        self._host = struct.Struct(f"<{len(layout.host)}d")
        # A layout works its places out anew each time it is asked.
        self._metrics_at, self._host_at, self._variable_at = layout.metrics_at, layout.host_at, layout.variable_at
        self._processes: tuple[Sequence[Process], bytes, int, int] | None = None
        self._records: dict[int, tuple[Process, bytes]] = {}
        """The last processes with their records, by identity: a source keeps those that it has not read anew."""
        self.buffer = bytearray(layout.slot_size)
        self.values = ValueEncoder(layout)
        """Has the values alone of what was encoded last."""

    def encode(self, tick: Tick, boundaries: Sequence[Boundary]) -> tuple[int, int, tuple[int, ...], int]:
        """Fill the buffer behind the slot's header.

        Returns the bytes used in all, how many boundaries found room, and the counts for the
        header: rows, processes, runs, boundaries, dropped processes; and the dropped runs.
        """
        layout, directory, buffer = self._layout, self._directory, self.buffer
        # Boundaries come only once: what comes again with each frame leaves them room.
        kept = min(len(boundaries), BOUNDARY_ROOM) * BOUNDARY.size
        most_runs = (layout.slot_size - kept - self._variable_at) // RUN.size
        runs = sorted(tick.runs, key=lambda run: run.state)[: max(0, most_runs)]
        placed = [(run_id, run) for run in runs if (run_id := directory.run(run))]
        self._encode_rows(tick)
        self._host.pack_into(buffer, self._host_at, *tick.host)
        at = self._variable_at
        room = max(0, layout.slot_size - kept - at - len(placed) * RUN.size) // PROCESS.size
        packed, n_processes, dropped = self._encode_processes(tick.processes, room)
        dropped = min(dropped + tick.dropped, 0xFFFF)
        buffer[at : at + len(packed)] = packed
        at += len(packed)
        for run_id, run in placed:
            values = tuple(run.metrics.values())[:RUN_METRICS]
            RUN.pack_into(
                buffer, at, run_id, run.state, len(values), run.epoch, run.step, directory.string(run.phase),
                run.epoch_started, run.updated, run.wait, *run.memory,
                *values, *_NANS[len(values) :], run.lost_events,
            )  # fmt: skip
            at += RUN.size
        fit = min(len(boundaries), (layout.slot_size - at) // BOUNDARY.size)
        by_key = {run.key: run for _, run in placed} if fit else {}
        for event in boundaries[:fit]:
            buffer[at : at + BOUNDARY.size] = pack_boundary(event, directory, by_key.get(event.run))
            at += BOUNDARY.size
        dropped_runs = len(tick.runs) - len(placed) + tick.unread
        return at, fit, (layout.rows, n_processes, len(placed), fit, dropped), dropped_runs

    def _encode_rows(self, tick: Tick) -> None:
        directory, rows, record = self._directory, self._layout.rows, self._layout.row
        grid = [NAN] * (len(self._layout.gpu) * rows)
        states = bytearray(record.size * rows)
        pack, size = record.pack_into, record.size
        for row, (_, state, values, run, age, gauges_ns, counters_ns, unanswered) in zip(
            directory.rows(tick.samples), tick.samples, strict=True
        ):
            grid[row::rows] = values
            run_id = directory.run_id(run) if run else 0
            age_ms = min(round(age * 1000), 0xFFFFFFFF) if age else 0
            if not (-_STAMPS <= gauges_ns < _STAMPS and -_STAMPS <= counters_ns < _STAMPS):
                gauges_ns, counters_ns = _stamp(gauges_ns), _stamp(counters_ns)
            # NaN is in no range. After hours tenths are no matter, and the age tells as well.
            tenths = 1 + int(10 * unanswered) if 0 <= unanswered < _LONG else 0
            pack(states, row * size, state, tenths, run_id, age_ms, gauges_ns, counters_ns)
        self.buffer[SLOT.size : SLOT.size + len(states)] = states
        self._metrics.pack_into(self.buffer, self._metrics_at, *grid)
        if self._layout.n_values:
            self.values.encode(states, grid, tick.host)

    def _encode_processes(self, processes: Sequence[Process], room: int) -> tuple[bytes, int, int]:
        # The list is read every few seconds only; in between it is the same object.
        kept = self._processes
        if kept is not None and kept[0] is processes and kept[2] <= room:
            return kept[1], kept[2], kept[3]
        directory = self._directory
        chosen = sorted(processes, key=lambda process: -process.memory_used if process.memory_used > 0 else 0.0)
        chosen = [process for process in chosen if directory.row_of(process.uuid) >= 0][:room]
        known = self._records
        records = [known.get(id(process)) or (process, pack_process(process, directory)) for process in chosen]
        self._records = {id(record[0]): record for record in records}
        packed = b"".join([record for _, record in records])
        self._processes = (processes, packed, len(chosen), min(len(processes) - len(chosen), 0xFFFF))
        return packed, len(chosen), self._processes[3]


class SlotParts:
    """The parts of one whole slot; `raw` has passed its CRC, but may be a stranger's all the same."""

    __slots__ = ("_boundaries", "_known", "_layout", "_n", "_raw")

    def __init__(self, raw: bytes, layout: Layout, known: Known) -> None:
        self._raw = raw
        self._layout = layout
        self._known = known
        head = slot_head(raw)
        end = min(len(raw), head.length + CRC_FROM)
        at = layout.variable_at
        n_process = min(head.processes, max(0, end - at) // layout.process.size)
        at += n_process * layout.process.size
        n_run = min(head.runs, max(0, end - at) // RUN.size)
        at += n_run * RUN.size
        n_boundary = min(head.boundaries, max(0, end - at) // BOUNDARY.size)
        self._n = (n_process, n_run, n_boundary)

    def samples(self) -> tuple[Sample, ...]:
        layout, raw, record = self._layout, self._raw, self._layout.row
        grid = _floats(raw, layout.metrics_at, len(layout.gpu) * layout.rows)
        rows = list(record.iter_unpack(raw[SLOT.size : layout.metrics_at]))
        return read_samples(rows, grid, layout.gpu, self._known)

    def host(self) -> tuple[float, ...]:
        values = _floats(self._raw, self._layout.host_at, len(self._layout.host))
        return read_host(values, self._layout.host)

    def processes(self) -> tuple[Process, ...]:
        at = self._layout.variable_at
        return read_processes(self._raw[at : at + self._n[0] * self._layout.process.size], self._layout, self._known)

    def runs(self) -> tuple[Run, ...]:
        at = self._layout.variable_at + self._n[0] * self._layout.process.size
        found = []
        for i in range(self._n[1]):
            run_id, state, logged, epoch, step, phase, *values, lost = RUN.unpack_from(self._raw, at + i * RUN.size)
            run = self._known.runs.get(run_id)
            if run is None:
                continue
            epoch_started, updated, wait, *held = believable(values[: 3 + _HELD])
            memory = FrameworkMemory(*held)
            found.append(
                run._replace(
                    state=RunState(state) if state in _STATES else RunState.DIED,
                    epoch=epoch, step=step, phase=self._known.strings.get(phase, ""), epoch_started=epoch_started,
                    updated=updated, wait=wait, lost_events=lost,
                    metrics=self._logged(run, values[3 + _HELD :], logged), memory=memory,
                )
            )  # fmt: skip
        return tuple(found)

    def _logged(self, run: Run, values: Sequence[float], count: int) -> dict[str, float]:
        """The metrics of a frame: their names are of now, and may be more than it had."""
        if self._layout.major == 1:
            # NaN is not itself; in place, because a call would cost more than the rest of the loop.
            return {name: value for name, value in zip(run.metrics, values, strict=False) if value == value}
        return dict(zip(run.metrics, values[:count], strict=False))

    def boundaries(self) -> tuple[Boundary, ...]:
        at = self._layout.variable_at + self._n[0] * self._layout.process.size + self._n[1] * RUN.size
        places = range(at, at + self._n[2] * BOUNDARY.size, BOUNDARY.size)
        runs: dict[str, Mapping[str, float]] = {}

        def logged(key: str) -> Mapping[str, float]:
            if not runs:
                runs.update((run.key, run.metrics) for run in self.runs())
            return runs.get(key, {})

        found = (read_boundary(self._raw, place, self._known, logged) for place in places)
        return tuple(boundary for boundary in found if boundary is not None)


def decode(raw: bytes, layout: Layout, known: Known) -> Frame:
    """The frame in a slot that `layout.frame_number` has accepted."""
    head = slot_head(raw)
    return Frame(
        number=head.number,
        monotonic_ns=head.monotonic_ns,
        time_ns=head.time_ns,
        interval=head.interval_us / 1e6,
        sample_duration=head.sample_duration_us / 1e6,
        skipped_ticks=head.skipped_ticks,
        dropped=head.dropped_processes,
        parts=SlotParts(raw, layout, known),
        dropped_runs=head.dropped_runs,
    )


def _stamp(monotonic: int) -> int:
    """A time that has room; a driver's stamp may be anything, and 0 says that it is not known."""
    return monotonic if -_STAMPS <= monotonic < _STAMPS else 0


def _floats(raw: bytes, at: int, count: int) -> tuple[float, ...]:
    values = struct.unpack_from(f"<{count}d", raw, at)
    return believable(values) if is_doubtful(raw[at : at + 8 * count]) else values
