"""Converts ticks to the bytes of a slot, and slots to frames.

Some slots contain a complete frame, others only its values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model.device import by_number
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Parts, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.process import Process
from gpumon.ring.directory import StoredDirectory
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
    """Return the record of a process, and add its strings to the directory."""
    string = directory.string
    return PROCESS.pack(
        process.pid, directory.row_of(process.uuid), KINDS.index(process.kind), string(process.name),
        string(process.user), directory.run_id(process.run), string(process.container), string(process.pod),
        string(process.job), process.started, process.memory_used, process.cpu_utilization, process.host_memory,
        _share(process.sm_utilization), _share(process.memory_utilization), _share(process.encoder_utilization),
        _share(process.decoder_utilization),
    )  # fmt: skip


def read_processes(raw: bytes, directory: StoredDirectory) -> tuple[Process, ...]:
    """Return the processes in these records. Processes on devices that are not in the directory are left out."""
    is_suspect = is_doubtful(raw, _FLOATS, PROCESS.size)
    strings, processes = directory.strings, []
    for pid, row, kind, name, user, run_id, container, pod, job, *rest in PROCESS.iter_unpack(raw):
        device, run = directory.devices.get(row), directory.runs.get(run_id)
        if device is None:
            continue
        started, used, cpu, host = believable(rest[:4]) if is_suspect else rest[:4]
        sm, memory, encoder, decoder = map(_ratio, rest[4:])
        processes.append(
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
    return tuple(processes)


def _share(ratio: float) -> int:
    """Return a ratio as an integer in hundredths of a percent; `NO_SHARE` if it is NaN or too large."""
    return round(ratio * SHARE) if 0 <= ratio <= _MOST else NO_SHARE


def _ratio(share: int) -> float:
    return share / SHARE if share != NO_SHARE else NAN


_AVAILABILITIES = frozenset(Availability)
_GPU_NAMES = tuple(metric.name for metric in GPU_METRICS)
_HOST_NAMES = tuple(metric.name for metric in HOST_METRICS)


def read_samples(
    rows: Sequence[tuple[int, ...]], grid: Sequence[float], names: tuple[str, ...], directory: StoredDirectory
) -> tuple[Sample, ...]:
    """Return the samples of a frame, sorted by `by_number`.

    `rows`: one record for each row, in the format `layout.ROW`. `grid`: for each metric, the values of all rows.
    `names`: names of the metrics.
    """
    order = _order(names, _GPU_NAMES)
    count, samples = len(rows), []
    for row, device in directory.devices.items():
        if not 0 <= row < count:
            continue
        state, tenths, run_id, age, *stamps = rows[row]
        if state == Availability.ABSENT:
            continue
        values = grid[row::count] if order is None else _reorder(grid[row::count], order)
        run = directory.runs.get(run_id)
        availability = Availability(state) if state in _AVAILABILITIES else Availability.FAILED
        sample = Sample(device, availability, values, run.key if run else "", age / 1000, *stamps)
        samples.append(sample._replace(unanswered=(tenths - 1) / 10) if tenths else sample)
    samples.sort(key=lambda sample: by_number(sample.device))
    return tuple(samples)


def read_host(values: tuple[float, ...], names: tuple[str, ...]) -> tuple[float, ...]:
    """Return the values of the machine's metrics. `names`: names of the metrics in the order of `values`."""
    order = _order(names, _HOST_NAMES)
    return values if order is None else _reorder(values, order)


@lru_cache(maxsize=8)
def _order(stored: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return for each metric in `wanted` its index in `stored`, or -1 if it is not stored; None if both are equal.

    A slot that another version of gpumon wrote may have other metrics than this version.
    """
    if stored == wanted:
        return None
    index = {name: i for i, name in enumerate(stored)}
    return tuple(index.get(name, -1) for name in wanted)


def _reorder(values: Sequence[float], order: tuple[int, ...]) -> tuple[float, ...]:
    return tuple([values[i] if i >= 0 else NAN for i in order])


class ValueForm(NamedTuple):
    """The positions of the values in a slot that contains only values."""

    gpu: tuple[str, ...]
    """Metrics of each row in the order of the slot: first the narrow ones (f4), then the wide ones (f8)."""
    host: tuple[str, ...]
    single: struct.Struct
    """Struct format of all f4 values."""
    double: struct.Struct
    """Struct format of all f8 values, which follow the f4 values."""
    all: struct.Struct
    narrow: int
    """Number of narrow metrics per row."""
    narrow_host: int
    order: tuple[int, ...]
    """Index of each value in a complete frame, where host values follow GPU values."""


@lru_cache(maxsize=8)
def value_form(layout: Layout) -> ValueForm:
    """Return the positions of the values for this layout, in a slot that contains only values."""
    rows, wide = layout.rows, set(layout.wide)
    gpu = sorted(range(len(layout.gpu)), key=lambda index: layout.gpu[index] in wide)
    host = sorted(range(len(layout.host)), key=lambda index: layout.host[index] in wide)
    narrow = sum(name not in wide for name in layout.gpu)
    narrow_host = sum(name not in wide for name in layout.host)
    first, order = len(gpu) * rows, []
    for metrics, others in ((gpu[:narrow], host[:narrow_host]), (gpu[narrow:], host[narrow_host:])):
        order += [index * rows + row for index in metrics for row in range(rows)]
        order += [first + index for index in others]
    singles = narrow * rows + narrow_host
    doubles = first + len(host) - singles
    return ValueForm(
        gpu=tuple(layout.gpu[index] for index in gpu),
        host=tuple(layout.host[index] for index in host),
        single=struct.Struct(f"<{singles}f"),
        double=struct.Struct(f"<{doubles}d"),
        all=struct.Struct(f"<{singles}f{doubles}d"),
        narrow=narrow,
        narrow_host=narrow_host,
        order=tuple(order),
    )


class ValueEncoder:
    """Encodes the values of ticks into a buffer, which is reused for each tick."""

    def __init__(self, layout: Layout) -> None:
        self._form = value_form(layout)
        self._at = layout.metrics_at
        self._pick = itemgetter(*self._form.order)
        self.buffer = bytearray(layout.value_size)
        self.end = self._at + self._form.all.size
        """Number of bytes of the buffer that are in use."""

    def encode(self, states: bytes | bytearray, grid: Sequence[float], host: Sequence[float]) -> None:
        """Write the states of the devices and all metrics into the buffer, after the slot's header.

        `states`: records in the format `ROW`. `grid`: for each GPU metric, the values of all rows. `host`: metrics of
        the machine.
        """
        form = self._form
        self.buffer[SLOT.size : self._at] = states
        values = self._pick([*grid, *host])
        try:
            form.all.pack_into(self.buffer, self._at, *values)
        except OverflowError:  # a value is beyond the range of f4, which is implausible for any metric
            form.all.pack_into(self.buffer, self._at, *believable(values))


def value_column(layout: Layout, metric: str) -> tuple[int, struct.Struct]:
    """Return offset and format of a GPU metric in a slot with only values. Raises ValueError for an unknown metric."""
    form = value_form(layout)
    index, rows = form.gpu.index(metric), layout.rows
    if index < form.narrow:
        return layout.metrics_at + 4 * rows * index, struct.Struct(f"<{rows}f")
    return layout.metrics_at + form.single.size + 8 * rows * (index - form.narrow), struct.Struct(f"<{rows}d")


class ValueParts:
    """The parts of a slot that contains only values. The CRC of `raw` is correct, but its content is untrusted."""

    __slots__ = ("_boundaries", "_directory", "_layout", "_raw", "_runs")

    def __init__(
        self,
        raw: bytes,
        layout: Layout,
        directory: StoredDirectory,
        runs: tuple[Run, ...],
        boundaries: tuple[Boundary, ...],
    ) -> None:
        self._raw = raw
        self._layout = layout
        self._directory = directory
        self._runs = runs
        self._boundaries = boundaries

    def samples(self) -> tuple[Sample, ...]:
        form, layout = value_form(self._layout), self._layout
        single, double = self._values(form)
        grid = single[: form.narrow * layout.rows] + double[: (len(form.gpu) - form.narrow) * layout.rows]
        rows = list(ROW.iter_unpack(self._raw[SLOT.size : layout.metrics_at]))
        return read_samples(rows, grid, form.gpu, self._directory)

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
    raw: bytes, layout: Layout, directory: StoredDirectory, runs: tuple[Run, ...], boundaries: tuple[Boundary, ...]
) -> Frame:
    """Return the frame in a slot that contains only values.

    The caller must first check the slot with `layout.frame_number`.
    """
    return _frame(raw, ValueParts(raw, layout, directory, runs, boundaries), is_full=False)


def _frame(raw: bytes, parts: Parts, *, is_full: bool) -> Frame:
    head = slot_head(raw)
    return Frame(
        number=head.number,
        monotonic_ns=head.monotonic_ns,
        time_ns=head.time_ns,
        interval=head.interval_us / 1e6,
        sample_duration=head.sample_duration_us / 1e6,
        skipped_ticks=head.skipped_ticks,
        dropped=head.dropped_processes,
        parts=parts,
        dropped_runs=head.dropped_runs,
        is_full=is_full,
    )


_NANS = (NAN,) * RUN_METRICS
_MEMORY_FIELDS = len(FrameworkMemory._fields)
_STAMPS = 1 << 63
_LONGEST_UNANSWERED = 6000
"""Upper limit of the seconds without an answer that can be stored."""
_RUN_STATES = frozenset(RunState)


class Encoder:
    """Encodes ticks into a buffer, which is reused for each tick."""

    def __init__(self, layout: Layout, directory: Directory) -> None:
        self._layout = layout
        self._directory = directory
        self._metrics = struct.Struct(f"<{len(layout.gpu) * layout.rows}d")
        self._host = struct.Struct(f"<{len(layout.host)}d")
        # Stored here, because a layout recomputes its offsets at each access.
        self._metrics_at, self._host_at, self._variable_at = layout.metrics_at, layout.host_at, layout.variable_at
        self._processes: tuple[Sequence[Process], bytes, int, int] | None = None
        self.buffer = bytearray(layout.slot_size)
        self.values = ValueEncoder(layout)
        """Encoder for the slot that contains only the values of the same tick."""

    def encode(self, tick: Tick, boundaries: Sequence[Boundary]) -> tuple[int, int, tuple[int, ...], int]:
        """Write a tick into the buffer, after the slot's header.

        Returns the number of bytes used in total, the number of boundaries that fit, the counts for the header (rows,
        processes, runs, boundaries, dropped processes), and the number of dropped runs.
        """
        layout, directory, buffer = self._layout, self._directory, self.buffer
        # Space is reserved for boundaries, because each boundary is written only once. Processes and runs are in every
        # frame.
        reserved = min(len(boundaries), BOUNDARY_ROOM) * BOUNDARY.size
        most_runs = (layout.slot_size - reserved - self._variable_at) // RUN.size
        runs = sorted(tick.runs, key=lambda run: run.state)[: max(0, most_runs)]
        stored = [(run_id, run) for run in runs if (run_id := directory.run(run))]
        self._encode_rows(tick)
        self._host.pack_into(buffer, self._host_at, *tick.host)
        at = self._variable_at
        room = max(0, layout.slot_size - reserved - at - len(stored) * RUN.size) // PROCESS.size
        packed, n_processes, dropped = self._encode_processes(tick.processes, room)
        dropped = min(dropped + tick.dropped, 0xFFFF)
        buffer[at : at + len(packed)] = packed
        at += len(packed)
        for run_id, run in stored:
            values = tuple(run.metrics.values())[:RUN_METRICS]
            RUN.pack_into(
                buffer, at, run_id, run.state, len(values), run.epoch, run.step, directory.string(run.phase),
                run.epoch_started, run.updated, run.wait, *run.memory,
                *values, *_NANS[len(values) :], run.lost_events,
            )  # fmt: skip
            at += RUN.size
        fit = min(len(boundaries), (layout.slot_size - at) // BOUNDARY.size)
        by_key = {run.key: run for _, run in stored} if fit else {}
        for event in boundaries[:fit]:
            buffer[at : at + BOUNDARY.size] = pack_boundary(event, directory, by_key.get(event.run))
            at += BOUNDARY.size
        dropped_runs = len(tick.runs) - len(stored) + tick.unread
        return at, fit, (layout.rows, n_processes, len(stored), fit, dropped), dropped_runs

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
            # NaN is in no range. After hours, tenths of a second no longer matter, and the age is sufficiently precise.
            tenths = 1 + int(10 * unanswered) if 0 <= unanswered < _LONGEST_UNANSWERED else 0
            pack(states, row * size, state, tenths, run_id, age_ms, gauges_ns, counters_ns)
        self.buffer[SLOT.size : SLOT.size + len(states)] = states
        self._metrics.pack_into(self.buffer, self._metrics_at, *grid)
        if self._layout.n_values:
            self.values.encode(states, grid, tick.host)

    def _encode_processes(self, processes: Sequence[Process], room: int) -> tuple[bytes, int, int]:
        # The list of processes is read only every few seconds. Between two reads, it is the same object.
        last = self._processes
        if last is not None and last[0] is processes and last[2] <= room:
            return last[1], last[2], last[3]
        directory = self._directory
        largest = sorted(processes, key=lambda process: -process.memory_used if process.memory_used > 0 else 0.0)
        largest = [process for process in largest if directory.row_of(process.uuid) >= 0][:room]
        packed = b"".join([pack_process(process, directory) for process in largest])
        self._processes = (processes, packed, len(largest), min(len(processes) - len(largest), 0xFFFF))
        return packed, len(largest), self._processes[3]


class SlotParts:
    """The parts of a slot with a complete frame. The CRC of `raw` is correct, but its content is untrusted."""

    __slots__ = ("_boundaries", "_directory", "_layout", "_n", "_raw")

    def __init__(self, raw: bytes, layout: Layout, directory: StoredDirectory) -> None:
        self._raw = raw
        self._layout = layout
        self._directory = directory
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
        return read_samples(rows, grid, layout.gpu, self._directory)

    def host(self) -> tuple[float, ...]:
        values = _floats(self._raw, self._layout.host_at, len(self._layout.host))
        return read_host(values, self._layout.host)

    def processes(self) -> tuple[Process, ...]:
        at = self._layout.variable_at
        return read_processes(self._raw[at : at + self._n[0] * PROCESS.size], self._directory)

    def runs(self) -> tuple[Run, ...]:
        at = self._layout.variable_at + self._n[0] * PROCESS.size
        runs = []
        for i in range(self._n[1]):
            run_id, state, logged, epoch, step, phase, *values, lost = RUN.unpack_from(self._raw, at + i * RUN.size)
            run = self._directory.runs.get(run_id)
            if run is None:
                continue
            epoch_started, updated, wait, *memory = believable(values[: 3 + _MEMORY_FIELDS])
            runs.append(
                run._replace(
                    state=RunState(state) if state in _RUN_STATES else RunState.DIED,
                    epoch=epoch, step=step, phase=self._directory.strings.get(phase, ""), epoch_started=epoch_started,
                    updated=updated, wait=wait, lost_events=lost, memory=FrameworkMemory(*memory),
                    # The directory has the current names. There may be more of them than when the frame was written.
                    metrics=dict(zip(run.metrics, values[3 + _MEMORY_FIELDS :][:logged], strict=False)),
                )
            )  # fmt: skip
        return tuple(runs)

    def boundaries(self) -> tuple[Boundary, ...]:
        at = self._layout.variable_at + self._n[0] * PROCESS.size + self._n[1] * RUN.size
        offsets = range(at, at + self._n[2] * BOUNDARY.size, BOUNDARY.size)
        runs: dict[str, Mapping[str, float]] = {}

        def metrics_of(key: str) -> Mapping[str, float]:
            if not runs:
                runs.update((run.key, run.metrics) for run in self.runs())
            return runs.get(key, {})

        boundaries = (read_boundary(self._raw, offset, self._directory, metrics_of) for offset in offsets)
        return tuple(boundary for boundary in boundaries if boundary is not None)


def decode(raw: bytes, layout: Layout, directory: StoredDirectory) -> Frame:
    """Return the frame in a slot that contains a complete frame.

    The caller must first check the slot with `layout.frame_number`.
    """
    return _frame(raw, SlotParts(raw, layout, directory), is_full=True)


def _stamp(monotonic: int) -> int:
    """Return a time in ns if it fits into 8 bytes; else 0, which stands for an unknown time.

    A driver's timestamp may be any number.
    """
    return monotonic if -_STAMPS <= monotonic < _STAMPS else 0


def _floats(raw: bytes, at: int, count: int) -> tuple[float, ...]:
    values = struct.unpack_from(f"<{count}d", raw, at)
    return believable(values) if is_doubtful(raw[at : at + 8 * count]) else values
