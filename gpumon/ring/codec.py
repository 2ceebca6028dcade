"""A tick into the bytes of a slot, and the bytes of a slot into a frame."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model.device import by_number
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.process import Process
from gpumon.ring.directory import Known
from gpumon.ring.events import pack_boundary, read_boundary
from gpumon.ring.layout import (
    BOUNDARY,
    BOUNDARY_ROOM,
    CRC_FROM,
    KINDS,
    NO_SHARE,
    PROCESS,
    ROW,
    RUN,
    RUN_METRICS,
    SHARE,
    SLOT,
    Layout,
    believable,
    is_doubtful,
    is_doubtful_single,
    slot_head,
)

if TYPE_CHECKING:
    from gpumon.ring.directory import Directory


_FLOATS = range(32, 64, 8)
"""Offsets of the float64 values in the record of a process."""
_MOST = (NO_SHARE - 1) / SHARE


def pack_process(process: Process, directory: Directory) -> bytes:
    """Return the record of a process, whose texts are taken into the directory."""
    string = directory.string
    return PROCESS.pack(
        process.pid, directory.row_of(process.uuid), KINDS.index(process.kind), string(process.name),
        string(process.user), directory.run_id(process.run), string(process.container), string(process.pod),
        string(process.job), process.started, process.memory_used, process.cpu_utilization, process.host_memory,
        _share(process.sm_utilization), _share(process.memory_utilization), _share(process.encoder_utilization),
        _share(process.decoder_utilization),
    )  # fmt: skip


def read_processes(raw: bytes, known: Known) -> tuple[Process, ...]:
    """Return the processes in these whole records; those on devices that the directory does not know are left out."""
    doubtful = is_doubtful(raw, _FLOATS, PROCESS.size)
    strings, found = known.strings, []
    for pid, row, kind, name, user, run_id, container, pod, job, *rest in PROCESS.iter_unpack(raw):
        device, run = known.devices.get(row), known.runs.get(run_id)
        if device is None:
            continue
        started, used, cpu, host = believable(rest[:4]) if doubtful else rest[:4]
        sm, memory, encoder, decoder = map(_ratio, rest[4:])
        found.append(
            Process(
                pid=pid,
                uuid=device.uuid,
                kind=KINDS[kind] if kind < len(KINDS) else KINDS[0],
                name=strings.get(name, ""),
                user=strings.get(user, ""),
                started=started,
                memory_used=used,
                sm_utilization=sm,
                memory_utilization=memory,
                cpu_utilization=cpu,
                host_memory=host,
                run=run.key if run else "",
                encoder_utilization=encoder,
                decoder_utilization=decoder,
                container=strings.get(container, ""),
                pod=strings.get(pod, ""),
                job=strings.get(job, ""),
            )
        )
    return tuple(found)


def _share(ratio: float) -> int:
    """Return a ratio as whole steps, to a hundredth of a percent."""
    return round(ratio * SHARE) if 0 <= ratio <= _MOST else NO_SHARE


def _ratio(share: int) -> float:
    return share / SHARE if share != NO_SHARE else NAN


_AVAILABILITIES = frozenset(Availability)
_GPU_NAMES = tuple(metric.name for metric in GPU_METRICS)
_HOST_NAMES = tuple(metric.name for metric in HOST_METRICS)


def read_samples(
    rows: Sequence[tuple[int, ...]], grid: Sequence[float], names: tuple[str, ...], known: Known
) -> tuple[Sample, ...]:
    """The samples of devices that a frame has, by index.

    `rows` are records of `layout.ROW`; `grid` the values of each of the metrics `names`, row
    by row.
    """
    order = _order(names, _GPU_NAMES)
    count, found = len(rows), []
    for row, device in known.devices.items():
        if not 0 <= row < count:
            continue
        state, tenths, run_id, age, *stamps = rows[row]
        if state == Availability.ABSENT:
            continue
        values = grid[row::count] if order is None else _reorder(grid[row::count], order)
        run = known.runs.get(run_id)
        known_state = Availability(state) if state in _AVAILABILITIES else Availability.FAILED
        sample = Sample(device, known_state, values, run.key if run else "", age / 1000, *stamps)
        found.append(sample._replace(unanswered=(tenths - 1) / 10) if tenths else sample)
    found.sort(key=lambda sample: by_number(sample.device))
    return tuple(found)


def read_host(values: tuple[float, ...], names: tuple[str, ...]) -> tuple[float, ...]:
    """The values of the host's metrics, stored in the order of `names`."""
    order = _order(names, _HOST_NAMES)
    return values if order is None else _reorder(values, order)


@lru_cache(maxsize=8)
def _order(stored: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    """Where each metric of this version is in a slot of another order; None when nothing moved."""
    if stored == wanted:
        return None
    place = {name: i for i, name in enumerate(stored)}
    return tuple(place.get(name, -1) for name in wanted)


def _reorder(values: Sequence[float], order: tuple[int, ...]) -> tuple[float, ...]:
    return tuple([values[i] if i >= 0 else NAN for i in order])


class ValueForm(NamedTuple):
    """Where the values of a layout are in their slots."""

    gpu: tuple[str, ...]
    """Metrics of each row in the order of the slot: the narrow, then the wide ones."""
    host: tuple[str, ...]
    single: struct.Struct
    """All f4."""
    double: struct.Struct
    """All f8, behind them."""
    all: struct.Struct
    narrow: int
    """Narrow metrics of a row."""
    narrow_host: int
    order: tuple[int, ...]
    """Of each value its place among those of a full frame, the host's behind those of the GPUs."""


@lru_cache(maxsize=8)
def value_form(layout: Layout) -> ValueForm:
    """The form of a layout's slots of values."""
    rows, wide = layout.rows, set(layout.wide)
    gpu = sorted(range(len(layout.gpu)), key=lambda place: layout.gpu[place] in wide)
    host = sorted(range(len(layout.host)), key=lambda place: layout.host[place] in wide)
    narrow = sum(name not in wide for name in layout.gpu)
    narrow_host = sum(name not in wide for name in layout.host)
    first, order = len(gpu) * rows, []
    for metrics, others in ((gpu[:narrow], host[:narrow_host]), (gpu[narrow:], host[narrow_host:])):
        order += [place * rows + row for place in metrics for row in range(rows)]
        order += [first + place for place in others]
    singles = narrow * rows + narrow_host
    doubles = first + len(host) - singles
    return ValueForm(
        gpu=tuple(layout.gpu[place] for place in gpu),
        host=tuple(layout.host[place] for place in host),
        single=struct.Struct(f"<{singles}f"),
        double=struct.Struct(f"<{doubles}d"),
        all=struct.Struct(f"<{singles}f{doubles}d"),
        narrow=narrow,
        narrow_host=narrow_host,
        order=tuple(order),
    )


class ValueEncoder:
    """Packs the values of ticks into one private buffer that is used again and again."""

    def __init__(self, layout: Layout) -> None:
        self._form = value_form(layout)
        self._at = layout.metrics_at
        self._pick = itemgetter(*self._form.order)
        self.buffer = bytearray(layout.value_size)
        self.end = self._at + self._form.all.size
        """Bytes used in all."""

    def encode(self, states: bytes | bytearray, grid: Sequence[float], host: Sequence[float]) -> None:
        """Fill the buffer behind the slot's header: rows, metrics of all rows and of the host."""
        form = self._form
        self.buffer[SLOT.size : self._at] = states
        values = self._pick([*grid, *host])
        try:
            form.all.pack_into(self.buffer, self._at, *values)
        except OverflowError:  # no f4 holds it, and no metric comes near it
            form.all.pack_into(self.buffer, self._at, *believable(values))


def value_column(layout: Layout, metric: str) -> tuple[int, struct.Struct]:
    """Where in a slot of values a GPU metric stands, and what it is. Raises ValueError for an unknown one."""
    form = value_form(layout)
    place, rows = form.gpu.index(metric), layout.rows
    if place < form.narrow:
        return layout.metrics_at + 4 * rows * place, struct.Struct(f"<{rows}f")
    return layout.metrics_at + form.single.size + 8 * rows * (place - form.narrow), struct.Struct(f"<{rows}d")


class ValueParts:
    """The parts of one whole slot of values; `raw` has passed its CRC, but may be a stranger's all the same."""

    __slots__ = ("_boundaries", "_known", "_layout", "_raw", "_runs")

    def __init__(
        self, raw: bytes, layout: Layout, known: Known, runs: tuple[Run, ...], boundaries: tuple[Boundary, ...]
    ) -> None:
        self._raw = raw
        self._layout = layout
        self._known = known
        self._runs = runs
        self._boundaries = boundaries

    def samples(self) -> tuple[Sample, ...]:
        form, layout = value_form(self._layout), self._layout
        single, double = self._values(form)
        grid = single[: form.narrow * layout.rows] + double[: (len(form.gpu) - form.narrow) * layout.rows]
        rows = list(ROW.iter_unpack(self._raw[SLOT.size : layout.metrics_at]))
        return read_samples(rows, grid, form.gpu, self._known)

    def host(self) -> tuple[float, ...]:
        form, rows = value_form(self._layout), self._layout.rows
        single, double = self._values(form)
        values = single[form.narrow * rows :] + double[(len(form.gpu) - form.narrow) * rows :]
        return read_host(values, form.host)

    def processes(self) -> tuple[Process, ...]:
        return ()

    def runs(self) -> tuple[Run, ...]:
        return self._runs

    def boundaries(self) -> tuple[Boundary, ...]:
        return self._boundaries

    def _values(self, form: ValueForm) -> tuple[tuple[float, ...], tuple[float, ...]]:
        raw, at = self._raw, self._layout.metrics_at
        between = at + form.single.size
        single, double = form.single.unpack_from(raw, at), form.double.unpack_from(raw, between)
        return (
            believable(single) if is_doubtful_single(raw[at:between]) else single,
            believable(double) if is_doubtful(raw[between : between + form.double.size]) else double,
        )


def decode_values(
    raw: bytes, layout: Layout, known: Known, runs: tuple[Run, ...], boundaries: tuple[Boundary, ...]
) -> Frame:
    """The frame in a slot of values that `layout.frame_number` has accepted."""
    head = slot_head(raw)
    return Frame(
        number=head.number,
        monotonic_ns=head.monotonic_ns,
        time_ns=head.time_ns,
        interval=head.interval_us / 1e6,
        sample_duration=head.sample_duration_us / 1e6,
        skipped_ticks=head.skipped_ticks,
        dropped=0,
        parts=ValueParts(raw, layout, known, runs, boundaries),
        is_full=False,
    )


_NANS = (NAN,) * RUN_METRICS
_HELD = len(FrameworkMemory._fields)
_STAMPS = 1 << 63
_LONG = 6000
"""Seconds without an answer from which on their number is not kept."""
_RUN_STATES = frozenset(RunState)


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
        directory, rows = self._directory, self._layout.rows
        grid = [NAN] * (len(self._layout.gpu) * rows)
        pack, size = ROW.pack_into, ROW.size
        states = bytearray(size * rows)
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
        n_process = min(head.processes, max(0, end - at) // PROCESS.size)
        at += n_process * PROCESS.size
        n_run = min(head.runs, max(0, end - at) // RUN.size)
        at += n_run * RUN.size
        n_boundary = min(head.boundaries, max(0, end - at) // BOUNDARY.size)
        self._n = (n_process, n_run, n_boundary)

    def samples(self) -> tuple[Sample, ...]:
        layout, raw = self._layout, self._raw
        grid = _floats(raw, layout.metrics_at, len(layout.gpu) * layout.rows)
        rows = list(ROW.iter_unpack(raw[SLOT.size : layout.metrics_at]))
        return read_samples(rows, grid, layout.gpu, self._known)

    def host(self) -> tuple[float, ...]:
        values = _floats(self._raw, self._layout.host_at, len(self._layout.host))
        return read_host(values, self._layout.host)

    def processes(self) -> tuple[Process, ...]:
        at = self._layout.variable_at
        return read_processes(self._raw[at : at + self._n[0] * PROCESS.size], self._known)

    def runs(self) -> tuple[Run, ...]:
        at = self._layout.variable_at + self._n[0] * PROCESS.size
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
                    state=RunState(state) if state in _RUN_STATES else RunState.DIED,
                    epoch=epoch, step=step, phase=self._known.strings.get(phase, ""), epoch_started=epoch_started,
                    updated=updated, wait=wait, lost_events=lost,
                    # The names are of now, and may be more than the frame had.
                    metrics=dict(zip(run.metrics, values[3 + _HELD :][:logged], strict=False)), memory=memory,
                )
            )  # fmt: skip
        return tuple(found)

    def boundaries(self) -> tuple[Boundary, ...]:
        at = self._layout.variable_at + self._n[0] * PROCESS.size + self._n[1] * RUN.size
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
