"""Chart documents: panels of lines in base units, runs with their epochs, and events, which the scripts draw.

The format is the same for a GPU, a run and a comparison of runs; `54-panels.js` documents its parts.
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
"""Their name in the text on what a chart leaves out."""
_FROM_ZERO = (Unit.RATIO, Unit.BYTES, Unit.WATTS, Unit.JOULES, Unit.BYTES_PER_SECOND)
"""Units whose axis begins at zero, so that the area below a line is meaningful."""
Times = Sequence[float]
Cells = dict[str, Any]
"""Same as `page.Cells`."""


MARKS = 200
"""Approximate number of marks on an axis; more would overlap."""
_LEVELS = ("", "ok", "warn", "bad")
"""Levels of marks, the worst last."""


def line(times: Times, mean: Iterable[float], **more: Any) -> Cells:
    """Create a line of a panel; `more`: envelope, step, role, label and look."""
    return {"x": times, "mean": numbers(mean), **{name: value for name, value in more.items() if value is not None}}


def moment(time: float) -> float:
    """Round a time to milliseconds. All times of a chart are rounded alike, so that no point is after its end."""
    return round(time, 3)


def line_of(series: Series, **more: Any) -> Cells:
    """Create the line of a series; with an envelope if the series has buckets."""
    times = [moment(time) for time in series.times]
    if not series.step:
        return line(times, series.mean, **more)
    return line(times, series.mean, low=numbers(series.low), high=numbers(series.high), step=series.step, **more)


def panel(key: str, title: str, unit: str, lines: Sequence[Cells], **more: Any) -> Cells:
    """Create a panel; `more`: `top`, `limits`, `zero`, `context`, `lists`."""
    return {"key": key, "title": title, "unit": unit, "lines": list(lines), "limits": [], "zero": False, **more}


def metric_panel(name: str, lines: Sequence[Cells], **more: Any) -> Cells:
    """Create the panel of a metric in `model.metrics`."""
    metric = BY_NAME[name]
    known: dict[str, Any] = {"zero": metric.unit in _FROM_ZERO}
    if metric.unit is Unit.RATIO:
        known["top"] = 1.0
    return {**panel(name, metric.title, unit_of(name), lines), **known, **more}


def limit(at: float | None, words: str) -> list[Cells]:
    """Return a labeled threshold as the limits of a panel; empty if it is unknown."""
    return [] if at is None or not math.isfinite(at) or at <= 0 else [{"at": at, "text": words}]


def chart(panels: Sequence[Cells], begin: float, end: float, **more: Any) -> Cells:
    """Create a chart document; equal lists of times are stored once, and lines have the index of theirs."""
    lists: list[Times] = []
    places: dict[int, int] = {}
    found = []
    for one in panels:
        lines = []
        for drawn in one["lines"]:
            place = places.get(id(drawn["x"]))
            if place is None:
                equal = next((at for at, times in enumerate(lists) if times == drawn["x"]), None)
                place = len(lists) if equal is None else equal
                if equal is None:
                    lists.append(drawn["x"])
                places[id(drawn["x"])] = place
            lines.append({**drawn, "x": place})
        found.append({**one, "lines": lines})
    known: Mapping[str, Any] = {"axis": "time", "interval": 0.0, "runs": [], "events": [], "held": []}
    return {**known, "begin": moment(begin), "end": moment(end), "times": lists, "panels": found, **more}


def ribbon(run: str, name: str, user: str, bands: Iterable[Sequence[Any]], phases: Iterable[Sequence[Any]]) -> Cells:
    """Create the ribbon of a run: its epochs, and its phases other than training as [begin, end, name].

    An epoch is [begin, end, number], plus a level if it needs attention; several epochs together are [begin, end, first
    number, level, last number].
    """
    return {
        "id": run, "name": name, "user": user, "bands": [list(band) for band in bands],
        "phases": [list(phase) for phase in phases],
    }  # fmt: skip


def event(time: float, level: str, words: str) -> Cells:
    """Create a mark on the axis."""
    return {"time": moment(time), "level": level, "text": words}


def marks_on(events: Iterable[Cells], begin: float, end: float) -> list[Cells]:
    """Return the marks in order; above `MARKS` marks, overlapping ones are merged into one with a `count`."""
    found = sorted(events, key=lambda one: float(one["time"]))
    if len(found) <= MARKS:
        return found
    cells: dict[int, list[Cells]] = {}
    for one in found:
        cells.setdefault(int((one["time"] - begin) / ((end - begin) or 1.0) * MARKS), []).append(one)
    return [_one_mark(together) for together in cells.values()]


def _one_mark(events: Sequence[Cells]) -> Cells:
    if len(events) == 1:
        return events[0]
    count = sum(one.get("count", 1) for one in events)
    texts = {one["text"] for one in events}
    words = f"{count:,} × {texts.pop()}" if len(texts) == 1 else f"{count:,} events"
    level = max((one["level"] for one in events), key=_LEVELS.index)
    return {**events[0], "level": level, "text": words, "count": count}


def left_out(parts: Iterable[tuple[int, int, str]]) -> dict[str, str]:
    """Return as `cut` a text on what a chart leaves out, from (shown, total, what); empty if nothing."""
    words = [f"only {shown:,} of {total:,} {what}" for shown, total, what in parts if shown < total]
    return {"cut": ", ".join(words)} if words else {}


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return values for JSON with six significant digits; None if not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
