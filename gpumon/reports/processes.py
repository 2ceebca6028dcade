"""The processes in a time window as text, JSON and CSV, for `gpumon history processes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.model.process import pod_parts
from gpumon.reports.csv import Cell, csv_line, utc
from gpumon.reports.text_table import draw, fitting, text_column
from gpumon.storage.processes.blocks import MEASURES, NAMES, TEXTS
from gpumon.storage.processes.query import MeasureUse, ProcessUse, ProcessWindow

SCHEMA = 1
FIELDS = (
    "first_seconds", "first_utc", "last_seconds", "last_utc", "device", "pid", "started_seconds", "kind", *TEXTS,
    "held_seconds",
    *(
        name
        for measure in MEASURES
        for name in (
            *(replace(measure, key=f"{measure.key}_{part}").file_name for part in ("mean", "peak")),
            f"{measure.key}_known_seconds",
        )
    ),
    "pod_name",
)  # fmt: skip
"""CSV columns. The cell of a missing value is empty."""
_POD = ("pod", "pod_name")
NOTHING = "no process was recorded in this window; processes without a running daemon are not recorded"
_WIDTHS = {"user": (16, 6), "name": (24, 8), "job": (16, 0), "pod": (32, 12)}
"""Maximum and minimum width of columns that contain text."""
_SHOWN = ("gpu", "pid", "user", "name", "first", "last", "held", "memory_peak", *NAMES, "job", "pod")
COLUMNS = tuple(text_column(PROCESS_BY_KEY[key], *_WIDTHS.get(key, (0, 0))) for key in _SHOWN)
_MEASURE_INDEXES = range(_SHOWN.index("memory_peak"), _SHOWN.index("job"))
_INCOMPLETE = "*"
_COMPLETE = 0.99
"""A measure counts as complete if it was measured for at least this fraction of the time."""


def lines(window: ProcessWindow, width: int = 0, left_out: int = 0) -> Iterator[str]:
    """Yield the processes as a table, in the order in which they were first seen.

    `left_out`: maximum number of processes that were left out of the recording at any time.
    """
    begin, end = window.span
    yield f"from {units.moment(begin)} to {units.moment(end)} ({units.duration(end - begin)})"
    if not window.processes:
        yield NOTHING
        return
    numbers = {device.uuid: device.label for device in window.gpus if device.label}
    rows = [_row(use, numbers) for use in window.processes]
    yield from draw(COLUMNS, rows, width)
    kept, _ = fitting(COLUMNS, rows, width)
    # Only measures are checked, because the name of a process or a user may end with the same character.
    if any(row[index].endswith(_INCOMPLETE) for row in rows for index in kept if index in _MEASURE_INDEXES):
        yield f"{_INCOMPLETE} measured for only part of the time"
    if left_out:
        yield f"and up to {units.counted(left_out, 'more process')} at a time, which were not recorded"


def as_json(window: ProcessWindow, left_out: int = 0) -> dict[str, Any]:
    """Return the processes as JSON.

    Times are in seconds since 1970, and all other values are in base units. Missing values are null. `left_out`: see
    `lines`.
    """
    indexes = {device.uuid: device.index for device in window.gpus if device.index >= 0}
    return {
        "schema": SCHEMA, "begin": window.span.begin, "end": window.span.end, "problem": window.problem or None,
        "left_out": left_out,
        "processes": [
            {
                "uuid": use.process.device, "index": indexes.get(use.process.device),
                "pid": use.process.pid, "started": _known(use.process.started), "kind": use.process.kind,
                **{text: getattr(use.process, text) or None for text in TEXTS},
                **{name: part or None for name, part in zip(_POD, pod_parts(use.process.pod), strict=True)},
                "first": use.process.first, "last": use.process.last, "held": use.held,
                **{
                    name: {"mean": _known(measure.mean), "peak": _known(measure.peak), "seconds": measure.seconds}
                    for name, measure in use.measures.items()
                },
            }
            for use in window.processes
        ],
    }  # fmt: skip


def csv(window: ProcessWindow) -> Iterator[str]:
    """Yield a heading and the processes as lines of CSV."""
    yield csv_line(FIELDS)
    for use in window.processes:
        process, (pod, name) = use.process, pod_parts(use.process.pod)
        measures = (cell for measure in MEASURES for cell in _csv_cells(use.measures[measure.key]))
        yield csv_line(
            (
                round(process.first, 3), utc(process.first), round(process.last, 3), utc(process.last), process.device,
                process.pid, _known(process.started), process.kind,
                *(getattr(process._replace(pod=pod), text) for text in TEXTS), round(use.held, 3), *measures, name,
            )
        )  # fmt: skip


def _row(use: ProcessUse, numbers: Mapping[str, str]) -> Sequence[str]:
    process, memory = use.process, use.measures["memory_used"]
    uid, name = pod_parts(process.pod)
    shown = [
        _marked(measure.write(value), use, use.measures[measure.key])
        for measure, value in ((measure, use.measures[measure.key].mean) for measure in MEASURES)
    ]
    peak = _marked(_write("memory_peak", memory.peak), use, memory)
    device = numbers.get(process.device) or clean(process.device, 13)
    return (
        device, _write("pid", process.pid), clean(process.user) or units.MISSING, clean(process.name) or units.MISSING,
        _write("first", process.first), _write("last", process.last), _write("held", use.held), peak, *shown,
        clean(process.job), clean(name or process.container or uid),
    )  # fmt: skip


def _write(key: str, value: float) -> str:
    return PROCESS_BY_KEY[key].write(value)


def _marked(text: str, use: ProcessUse, measure: MeasureUse) -> str:
    return f"{text}{_INCOMPLETE}" if is_known(measure.mean) and measure.seconds < _COMPLETE * use.held else text


def _csv_cells(measure: MeasureUse) -> tuple[Cell, ...]:
    return _known(measure.mean), _known(measure.peak), round(measure.seconds, 3)


def _known(value: float) -> float | None:
    return value if is_known(value) and abs(value) < float("inf") else None
