"""Chart documents, from which figures are drawn: panels of lines in base units, runs with their epochs, and events.

The format is the same for a GPU, a run and a comparison of runs. The scripts of the browser view draw a document as a
live chart (`types.d.ts` documents its parts). `plotly_figure` converts it to a figure for Explore, Compare and the
HTML report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpumon.model.metrics import BY_NAME, Unit
from gpumon.reports.history import unit_of
from gpumon.storage.history.query import Series

PLAIN = "plain"
"""Unit of logged metrics."""
METRICS = "logged metrics"
"""Name of logged metrics in the text about omitted parts of a chart."""
_FROM_ZERO = (Unit.RATIO, Unit.BYTES, Unit.WATTS, Unit.JOULES, Unit.BYTES_PER_SECOND)
"""Units whose axis begins at zero, so that the area below a line has a meaning."""
Times = Sequence[float]
Cells = dict[str, Any]
"""A document or one of its parts."""

MARKS = 200
"""Approximate maximum number of marks on an axis. More marks would overlap."""
_LEVELS = ("", "ok", "warn", "bad")
"""Levels of marks, worst last."""


def line(times: Times, mean: Iterable[float], **fields: Any) -> Cells:
    """Create a line of a panel. `fields`: its envelope, step, role, label and look."""
    return {"x": times, "mean": numbers(mean), **{name: value for name, value in fields.items() if value is not None}}


def moment(time: float) -> float:
    """Round a time to milliseconds.

    All times of a chart are rounded in this way, so that no point is after the chart's end.
    """
    return round(time, 3)


def line_of(series: Series, **fields: Any) -> Cells:
    """Create the line of a series. It has an envelope if the series has buckets."""
    times = [moment(time) for time in series.times]
    if not series.step:
        return line(times, series.mean, **fields)
    return line(times, series.mean, low=numbers(series.low), high=numbers(series.high), step=series.step, **fields)


def panel(key: str, title: str, unit: str, lines: Sequence[Cells], **fields: Any) -> Cells:
    """Create a panel. `fields`: its `top`, `limits`, `zero`, `context` and `lists`."""
    return {"key": key, "title": title, "unit": unit, "lines": list(lines), "limits": [], "zero": False, **fields}


def metric_panel(name: str, lines: Sequence[Cells], **fields: Any) -> Cells:
    """Create the panel of a metric in `model.metrics`."""
    metric = BY_NAME[name]
    defaults: dict[str, Any] = {"zero": metric.unit in _FROM_ZERO}
    if metric.unit is Unit.RATIO:
        defaults["top"] = 1.0
    return {**panel(name, metric.title, unit_of(name), lines), **defaults, **fields}


def limit(value: float | None, text: str) -> list[Cells]:
    """Return a list with a labeled threshold, for `limits` of a panel. Empty if `value` is None."""
    return [] if value is None or not math.isfinite(value) or value <= 0 else [{"at": value, "text": text}]


def chart(panels: Sequence[Cells], begin: float, end: float, **fields: Any) -> Cells:
    """Create a chart document. Equal lists of times are stored only once, and lines refer to them by index."""
    lists: list[Times] = []
    indices: dict[int, int] = {}
    chart_panels = []
    for entry in panels:
        lines = []
        for curve in entry["lines"]:
            index = indices.get(id(curve["x"]))
            if index is None:
                equal = next((position for position, times in enumerate(lists) if times == curve["x"]), None)
                index = len(lists) if equal is None else equal
                if equal is None:
                    lists.append(curve["x"])
                indices[id(curve["x"])] = index
            lines.append({**curve, "x": index})
        chart_panels.append({**entry, "lines": lines})
    defaults: Mapping[str, Any] = {"axis": "time", "interval": 0.0, "runs": [], "events": [], "held": []}
    return {**defaults, "begin": moment(begin), "end": moment(end), "times": lists, "panels": chart_panels, **fields}


def ribbon(run: str, name: str, user: str, bands: Iterable[Sequence[Any]], phases: Iterable[Sequence[Any]]) -> Cells:
    """Create the ribbon of a run: its epochs, and its phases other than training as [begin, end, name].

    An epoch is [begin, end, number], followed by a level if it needs attention. A group of epochs is [begin, end, first
    number, level, last number].
    """
    return {
        "id": run, "name": name, "user": user, "bands": [list(band) for band in bands],
        "phases": [list(phase) for phase in phases],
    }  # fmt: skip


def event(time: float, level: str, text: str) -> Cells:
    """Create a mark on the axis."""
    return {"time": moment(time), "level": level, "text": text}


def marks_on(events: Iterable[Cells], begin: float, end: float) -> list[Cells]:
    """Return the marks in chronological order.

    If there are more than `MARKS`, overlapping marks are merged into one with a `count`.
    """
    marks = sorted(events, key=lambda mark: float(mark["time"]))
    if len(marks) <= MARKS:
        return marks
    cells: dict[int, list[Cells]] = {}
    for mark in marks:
        cells.setdefault(int((mark["time"] - begin) / ((end - begin) or 1.0) * MARKS), []).append(mark)
    return [_one_mark(group) for group in cells.values()]


def _one_mark(events: Sequence[Cells]) -> Cells:
    if len(events) == 1:
        return events[0]
    count = sum(mark.get("count", 1) for mark in events)
    texts = {mark["text"] for mark in events}
    text = f"{count:,} × {texts.pop()}" if len(texts) == 1 else f"{count:,} events"
    level = max((mark["level"] for mark in events), key=_LEVELS.index)
    return {**events[0], "level": level, "text": text, "count": count}


def left_out(parts: Iterable[tuple[int, int, str]]) -> dict[str, str]:
    """Return text about omitted parts of a chart, under the key `cut`.

    Empty if nothing is omitted. `parts`: tuples (shown, total, name).
    """
    texts = [f"only {shown:,} of {total:,} {name}" for shown, total, name in parts if shown < total]
    return {"cut": ", ".join(texts)} if texts else {}


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return values for JSON with six significant digits; None if not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
