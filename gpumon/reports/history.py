"""The history as text, JSON and CSV: rows for `gpumon history export`, totals over a time window, and time series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.metrics import BY_NAME, Availability, Kind, Scope, Unit
from gpumon.model.units import MISSING, duration, energy_column, moment, number, share
from gpumon.reports.csv import csv_line, parquet_bytes, utc
from gpumon.reports.text_table import TextColumn, distinct, draw, sentence
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import ALWAYS, HOST, History, Query, Series
from gpumon.storage.history.window_totals import THROTTLED, TOTALS, Total, TotalKind, WindowTotals

CELL_FIELDS = ("begun_seconds", "begun_utc", "seconds", "device", "metric", "unit", "low", "mean", "high")
"""CSV columns: start of the interval (in seconds since 1970, and as a UTC date), its length in seconds, UUID of the GPU
(empty for the machine), metric, unit (per second for counters), and lowest, mean and highest value."""
_TEXTS = ("begun_utc", "device", "metric", "unit")
Row = tuple[float, str, float, str, str, str, float, float, float]


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the heading and the rows as lines of CSV."""
    yield csv_line(CELL_FIELDS)
    yield from map(csv_line, rows)


def parquet(rows: Iterator[Row]) -> bytes:
    """Return the rows as a Parquet file. Raises GpumonError if pyarrow is not installed."""
    columns = list(zip(*rows, strict=True)) or [()] * len(CELL_FIELDS)
    return parquet_bytes(
        {name: (str if name in _TEXTS else float, cells) for name, cells in zip(CELL_FIELDS, columns, strict=True)}
    )


def rows_of(history: History, subjects: Sequence[str], begin: float, end: float, step: float) -> Iterator[Row]:
    """Yield a row for each interval of `step` seconds in which a metric of the machine or of a subject has a value.

    `subjects`: UUIDs of GPUs. `begin`, `end`: seconds since 1970.
    """
    grid = Grid(int(begin // step), step, max(1, ceil(end / step) - int(begin // step)))
    for subject in (HOST, *subjects):
        scope = Scope.GPU if subject else Scope.HOST
        names = [name for name, metric in BY_NAME.items() if metric.scope is scope and history.has(subject, name)]
        for name, series in history.query(Query(subject, names, begin, end, grid=grid)).items():
            for index, mean in enumerate(series.mean):
                if is_known(mean):
                    start = grid.begin + index * step
                    low, high = series.low[index], series.high[index]
                    yield start, utc(start), step, subject, name, unit_of(name), low, mean, high


SCHEMA = 1
TOTAL_FIELDS = (
    "device", "total", "unit", "value", "seconds", "missing_seconds", "missing_share", "estimated_seconds", "complete",
)  # fmt: skip
"""CSV columns: UUID of the GPU; name, unit and value of the total; length of the window in seconds; missing seconds,
and their share of the window; estimated seconds; whether the total is complete."""
INCOMPLETE, ESTIMATED = "*", "~"
_REST = "MISSING"
"""Heading of the column with the time that was not sampled."""
_MIN_ESTIMATED = 0.005
"""A total is marked as estimated if at least this share of the window is estimated."""


def text(totals: WindowTotals, width: int = 0) -> Iterator[str]:
    """Yield the totals as a table with a line for each GPU, followed by lines that explain the marks in the table."""
    yield f"from {moment(totals.begin)} to {moment(totals.end)} ({duration(totals.end - totals.begin)})"
    devices = totals.gpus
    has_indexes = any(device.label for device in devices)
    columns = [TextColumn("GPU", 10), TextColumn("UUID", 2 if has_indexes else 10, right=False, min_width=13)]
    names = [clean(device.uuid, 100) for device in devices]
    if width and not has_indexes:
        names = distinct(names, max(13, width // 3))
    columns += [TextColumn(kind.heading, kind.keep) for kind in TOTALS]
    cells = [_column(kind, [totals.devices[device.uuid][kind.name] for device in devices]) for kind in TOTALS]
    missing = [_missing(totals.devices[device.uuid]) for device in devices]
    rows = [
        (device.label, names[index], *(column[index] for column in cells), missing[index])
        for index, device in enumerate(devices)
    ]
    heading, *drawn_rows = draw([*columns, TextColumn(_REST, 8)], rows, width)
    yield from (heading, *drawn_rows)
    drawn = "".join("".join(row[2:]) for row in rows)
    if INCOMPLETE in drawn:
        rest = f"; {_REST} is the rest" if _REST in heading else ""
        yield from sentence(f"{INCOMPLETE} incomplete: total of only the sampled time{rest}", width)
    if ESTIMATED in drawn:
        splits = "a border of the window divides a recorded interval, which counts in proportion"
        yield from sentence(f"{ESTIMATED} estimated: {splits}", width)


def document(totals: WindowTotals) -> dict[str, Any]:
    """Return the totals as a JSON object. Missing values are null."""
    return {
        "schema": SCHEMA,
        "begin": totals.begin,
        "end": totals.end,
        "seconds": totals.end - totals.begin,
        "problem": totals.problem or None,
        "devices": [
            {
                "uuid": device.uuid,
                "index": device.index if device.index >= 0 else None,
                "totals": {kind.name: _as_json(totals.devices[device.uuid][kind.name], kind) for kind in TOTALS},
            }
            for device in totals.gpus
        ],
    }


def table(totals: WindowTotals) -> Iterator[str]:
    """Yield a heading, and a line for each total of each GPU, as CSV."""
    yield csv_line(("begun_utc", "ended_utc", *TOTAL_FIELDS))
    for device in totals.gpus:
        for kind in TOTALS:
            cells = _as_json(totals.devices[device.uuid][kind.name], kind)
            whole = "true" if cells["complete"] else "false"
            row = {**cells, "device": device.uuid, "total": kind.name, "complete": whole}
            yield csv_line((utc(totals.begin), utc(totals.end), *(row[name] for name in TOTAL_FIELDS)))


def _as_json(total: Total, kind: TotalKind) -> dict[str, Any]:
    return {
        "value": total.value if is_known(total.value) else None,
        "unit": kind.unit.value,
        "seconds": total.seconds,
        "missing_seconds": total.missing_seconds,
        "missing_share": total.missing_share,
        "estimated_seconds": total.estimated_seconds,
        "complete": total.is_complete,
    }


def _column(kind: TotalKind, totals: Sequence[Total]) -> list[str]:
    """Return the cells of a column: one total of every GPU, as text. All cells are empty if no GPU has this total."""
    if not any(is_known(total.value) for total in totals):
        return [""] * len(totals)
    values = [total.value for total in totals]
    if kind.unit is Unit.JOULES:
        texts = energy_column(values)
    elif kind.metric in THROTTLED:  # even 0.1 % matters
        texts = [f"{value * 100:.1f} %" for value in values]
    else:
        texts = [number(value, kind.unit) for value in values]
    return [
        shown + _marks(total) if is_known(total.value) else MISSING for shown, total in zip(texts, totals, strict=True)
    ]


def _marks(total: Total) -> str:
    estimated = ESTIMATED if total.estimated_seconds > _MIN_ESTIMATED * total.seconds else ""
    return estimated + ("" if total.is_complete else INCOMPLETE)


def _missing(totals: Mapping[str, Total]) -> str:
    """Return text for the longest time that is missing from a total of a GPU; empty if no time is missing.

    Totals without a value are ignored, unless all are. For a GPU that was never sampled, the whole window is missing.
    """
    known = [total for total in totals.values() if is_known(total.value)] or list(totals.values())
    worst = max(known, key=lambda total: total.missing_seconds)
    if worst.is_complete:
        return ""
    return f"{duration(worst.missing_seconds)} ({share(worst.missing_share, 1, is_narrow=False)})"


NO_HISTORY = "no history is recorded for this source"
"""Reason why there is no history, for answers to programs."""
OF_HARDWARE = "To record users and events, run 'gpumon daemon' on a machine with GPUs."
"""Sentence that says how to record a history."""
NOT_YET = "No history yet: 'gpumon daemon' writes it within a minute of its start."
"""Message for users if the source is the hardware of this machine."""
NO_HARDWARE = f"N{NO_HISTORY[1:]}, which is a simulation or a recording. {OF_HARDWARE}"
"""Message for users if the source is a simulation or a recording."""

BEFORE, LATER, NOT_SAMPLED, NO_VALUE = "before_history", "not_yet", "not_sampled", "no_value"
REASONS: Mapping[str, str] = {
    BEFORE: "before the oldest recorded value",
    LATER: "after the newest sample",
    NOT_SAMPLED: "nothing was sampled on this machine: no daemon ran, or the machine slept",
    NO_VALUE: "the machine was sampled, but there is no value: the GPU did not answer, or does not report this metric",
}
"""Explanations for times without values, by the name of the reason."""


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """The metrics and the time window that a client requests."""

    metrics: Sequence[str]
    begin: float
    """Start of the time window. `begin` and `end` are in seconds since 1970."""
    end: float
    points: int
    """Maximum number of points of each series."""


class SubjectHistory(NamedTuple):
    """The history of one GPU, or of the machine if `device` is None."""

    device: Device | None
    history: History


class Gap(NamedTuple):
    """An interval without values, in seconds since 1970."""

    begin: float
    end: float
    reason: str


def series_json(
    request: SeriesRequest, subjects: Sequence[SubjectHistory], machine: History, problem: str = ""
) -> dict[str, Any]:
    """Return metrics over time as JSON.

    `subjects`: the GPUs, and possibly the machine, whose metrics are returned. `machine`: history of the machine. It
    shows when samples were taken. `problem`: why some data could not be read; empty if all could be.

    All series in the result have the same `times` (s since 1970). These are the middles of intervals of `step` seconds,
    or the times of the samples if `step` is 0. `coarse` lists the times for which only longer intervals are stored.
    """
    times, sampled = [], list[float]()
    lines, step, coarse = [], 0.0, list[dict[str, float]]()
    (base,) = machine.query(Query(HOST, [ALWAYS], request.begin, request.end, request.points)).values()
    for device, history in subjects:
        subject = device.uuid if device else HOST
        names = [name for name in request.metrics if name.startswith("gpu.") == (device is not None)]
        for name, series in history.query(Query(subject, names, request.begin, request.end, request.points)).items():
            times, step, coarse = list(series.times), series.step, [interval._asdict() for interval in series.coarse]
            sampled = list(base.mean) if list(base.times) == times else []
            gaps = gaps_of(series, sampled, request, machine)
            lines.append(_line(name, device, series, gaps))
    return {
        "schema": SCHEMA, "begin": request.begin, "end": request.end, "step": step, "coarse": coarse, "times": times,
        "series": lines, "problem": problem or None,
    }  # fmt: skip


def gaps_of(series: Series, sampled: Sequence[float], request: SeriesRequest, machine: History) -> list[Gap]:
    """Return the intervals in which a series has no values, with the reasons.

    `sampled`: for each time of the series, a number if the machine was sampled at this time, else NaN. `machine`:
    history of the machine. Nothing is recorded before its start and after its end.
    """
    oldest, newest = machine.begin, machine.end
    if not is_known(oldest):
        return [Gap(request.begin, request.end, NOT_SAMPLED)]
    before = [Gap(request.begin, min(oldest, request.end), BEFORE)] if request.begin < oldest else []
    later = [Gap(max(newest, request.begin), request.end, LATER)] if request.end > newest else []
    return [*before, *_inner(series, sampled, max(request.begin, oldest), min(request.end, newest)), *later]


def _inner(series: Series, sampled: Sequence[float], begin: float, end: float) -> Iterator[Gap]:
    """Yield the gaps between `begin` and `end`, which lie within the history of the machine."""
    if not begin <= end:
        return
    if not series.times:
        yield Gap(begin, end, NOT_SAMPLED)
        return
    half = series.step / 2
    times = [begin - half, *series.times, end + half]

    def gap_reason(index: int) -> str:
        if is_known(series.mean[index]):
            return ""
        return NO_VALUE if sampled and is_known(sampled[index]) else NOT_SAMPLED

    for reason, group in groupby(range(len(series.times)), key=gap_reason):
        indexes = list(group)
        if reason:
            # A gap between samples extends from the previous sample to the next one. A gap between intervals extends
            # from the end of one interval to the start of another.
            first = times[indexes[0]] if not half else series.times[indexes[0]] - half
            last = times[indexes[-1] + 2] if not half else series.times[indexes[-1]] + half
            yield Gap(max(first, begin), min(last, end), reason)


def _line(name: str, device: Device | None, series: Series, gaps: Sequence[Gap]) -> dict[str, Any]:
    metric = BY_NAME[name]
    why = device.missing.get(name) if device else None
    return {
        "metric": name, "unit": unit_of(name), "gpu": device.uuid if device else None,
        "label": device.label if device else None,
        "min": _values(series.low), "mean": _values(series.mean), "max": _values(series.high),
        "missing": why.name.lower() if why not in (None, Availability.OK) else None,
        "gaps": [gap._asdict() for gap in gaps if gap.begin < gap.end],
        "is_rate": metric.kind is Kind.COUNTER,
    }  # fmt: skip


def unit_of(name: str) -> str:
    """Return the unit of a series. For a counter, this is the unit of its rate."""
    metric = BY_NAME[name]
    return metric.unit.value + ("_per_second" if metric.kind is Kind.COUNTER else "")


def _values(line: Sequence[float]) -> list[float | None]:
    return [value if is_known(value - value) else None for value in line]
