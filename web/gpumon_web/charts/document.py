"""Charts as data: panels of lines in base units, runs with their epochs, events; the scripts draw them.

A document is the same for a GPU, a run, and runs that are compared: `54-panels.js` says what its parts are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpumon.model.metrics import BY_NAME, Unit
from gpumon.reports.history import unit_of
from gpumon.storage.history.query import Series

PLAIN = "plain"
"""The unit of what a training logged."""
METRICS = "logged metrics"
"""Such metrics, where it is said how many are shown."""
_FROM_ZERO = (Unit.RATIO, Unit.BYTES, Unit.WATTS, Unit.JOULES, Unit.BYTES_PER_SECOND)
"""Units whose axis begins at zero, so that the area below a line is a share."""
Times = Sequence[float]
Cells = dict[str, Any]
"""As `page.Cells`."""


MARKS = 200
"""Marks on an axis, about: more would cover each other."""
_LEVELS = ("", "ok", "warn", "bad")
"""Levels of marks, the worst last."""


def line(times: Times, mean: Iterable[float], **more: Any) -> Cells:
    """A line of a panel; `more`: its envelope, step, role, label and look."""
    return {"x": times, "mean": numbers(mean), **{name: value for name, value in more.items() if value is not None}}


def moment(time: float) -> float:
    """A time as all of a chart has it, in whole milliseconds: ends are rounded as points are, so none lies behind."""
    return round(time, 3)


def line_of(series: Series, **more: Any) -> Cells:
    """The line of a series: where it has buckets, with its lowest and highest values."""
    times = [moment(time) for time in series.times]
    if not series.step:
        return line(times, series.mean, **more)
    return line(times, series.mean, low=numbers(series.low), high=numbers(series.high), step=series.step, **more)


def panel(key: str, title: str, unit: str, lines: Sequence[Cells], **more: Any) -> Cells:
    """A panel; `more`: `top`, `limits`, `zero`, `context`, `lists`."""
    return {"key": key, "title": title, "unit": unit, "lines": list(lines), "limits": [], "zero": False, **more}


def metric_panel(name: str, lines: Sequence[Cells], **more: Any) -> Cells:
    """The panel of a metric of the metric table."""
    metric = BY_NAME[name]
    known: dict[str, Any] = {"zero": metric.unit in _FROM_ZERO}
    if metric.unit is Unit.RATIO:
        known["top"] = 1.0
    return {**panel(name, metric.title, unit_of(name), lines), **known, **more}


def limit(at: float | None, words: str) -> list[Cells]:
    """A threshold with its words, as the limits of a panel; none where it is not known."""
    return [] if at is None or not math.isfinite(at) or at <= 0 else [{"at": at, "text": words}]


def chart(panels: Sequence[Cells], begin: float, end: float, **more: Any) -> Cells:
    """A document over a time; each list of times stands in it once, and lines name it by its place."""
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
    """The epochs of a run, and its phases that do not train, [begin, end, name].

    An epoch is [begin, end, number], with its level where it needs a look; several as one: [begin, end, first number,
    level, last number].
    """
    return {
        "id": run, "name": name, "user": user, "bands": [list(band) for band in bands],
        "phases": [list(phase) for phase in phases],
    }  # fmt: skip


def event(time: float, level: str, words: str) -> Cells:
    """A mark on the axis."""
    return {"time": moment(time), "level": level, "text": words}


def marks_on(events: Iterable[Cells], begin: float, end: float) -> list[Cells]:
    """Marks on the axis in order; of more than `MARKS`, those that would cover each other as one with a `count`."""
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
    """`cut`: what a chart leaves out, of (shown, in all, what); nothing where it has all."""
    words = [f"only {shown:,} of {total:,} {what}" for shown, total, what in parts if shown < total]
    return {"cut": ", ".join(words)} if words else {}


def numbers(values: Iterable[float]) -> list[float | None]:
    """Values as JSON has them, no longer than a screen can show; None where there is none."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
