"""Logged metrics of a training, as lines of a report's figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.numbers import NAN, is_known
from gpumon.figures.axes import instant, numbers_of
from gpumon.figures.escape import literal
from gpumon.figures.logged_kind import LoggedPoint
from gpumon.figures.logged_points import broken_off, logged_course
from gpumon.figures.run_series import RunSeries
from gpumon.storage.history.query import MOST
from gpumon.storage.ledger.summary import EpochSummary

Line = dict[str, Any]
Diverged = Mapping[str, Sequence[tuple[float, float]]]
"""By metric that was logged: times in s since 1970, and values that are NaN or infinite."""
NAME_CELLS = 40
"""Cells that a name takes at most."""
BANDS = 120
"""Epochs from which on only the line is drawn."""


def logged_lines(
    logged: RunSeries, epochs: Sequence[EpochSummary], unsampled: Sequence[tuple[float, float]], diverged: Diverged,
    over: float = NAN,
) -> list[tuple[str, list[Line]]]:  # fmt: skip
    """Logged metrics: each one's line where it is kept, its value at the end of each epoch as a dot, NaN as a cross.

    `over`: when the run ended; NaN while it goes on.
    """
    ended = [epoch for epoch in epochs if is_known(epoch.ended)]
    names = dict.fromkeys([*logged.columns, *(name for epoch in ended for name in epoch.metrics), *diverged])
    found = []
    for name in names:
        at_end = [(epoch.ended, epoch.metrics[name]) for epoch in ended if name in epoch.metrics]
        dots = [(time, value) for time, value in at_end if math.isfinite(value)]
        odd = sorted({*((time, value) for time, value in at_end if not math.isfinite(value)), *diverged.get(name, ())})
        mean = logged.columns[name].mean if name in logged.columns else []
        known = [value for value in mean if math.isfinite(value)]
        lines: list[Line] = []
        if known:
            breaks = sorted([*unsampled, *((time, time) for time, _ in odd)])
            lines.append({
                "mode": "lines", "name": literal(name, NAME_CELLS), "hovertemplate": "%{y}",
                **_joined(logged_course(over, logged, name, epochs).points, breaks),
            })  # fmt: skip
        if dots and not (known and len(dots) > BANDS):
            points = _thinned(dots if known else sorted([*at_end, *((time, NAN) for time in broken_off(epochs, over))]))
            lines.append({
                "mode": "markers" if known else "lines+markers", "marker": {"size": 5},
                "x": [instant(time) for time, _ in points], "y": numbers_of([value for _, value in points], 1, None),
                "name": f"{literal(name, NAME_CELLS)}, end of epoch", "hovertemplate": "%{y}",
            })  # fmt: skip
        if odd:
            lines.append(_crosses(name, _thinned(odd), min([*known, *(value for _, value in dots)], default=0.0)))
        found.append((name, lines))
    return found


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most `MOST` marks: single values at the ends of epochs, which have no mean over time."""
    return points[:: max(1, -(-len(points) // MOST))]


def _joined(points: Sequence[LoggedPoint], breaks: Sequence[tuple[float, float]]) -> Line:
    """A line from each value to the next one, as not every moment has one; broken at `breaks`, and where it is NaN."""
    x: list[int] = []
    y: list[float | None] = []
    gaps = [*breaks, (math.inf, math.inf)]
    place = 0
    for time, value, *_ in points:
        if time >= gaps[place][1]:
            while time >= gaps[place][1]:
                place += 1
            if y:
                x.append(instant(gaps[place - 1][0]))
                y.append(None)
        x.append(instant(time))
        y.append(*numbers_of([value], 1, None))
    return {"x": x, "y": y, "connectgaps": False}


def _crosses(name: str, odd: Sequence[tuple[float, float]], low: float) -> Line:
    """Values that are no number, such as the loss of a training that diverged: marks at the foot of the panel."""
    return {
        "mode": "markers", "marker": {"size": 9, "symbol": "x", "color": "@bad"},
        "x": [instant(time) for time, _ in odd], "y": [low] * len(odd),
        "text": [_word(value) for _, value in odd], "name": literal(name, NAME_CELLS),
        "hovertemplate": "%{text}",
    }  # fmt: skip


def _word(value: float) -> str:
    return "NaN" if not is_known(value) else "Infinity" if value > 0 else "-Infinity"
