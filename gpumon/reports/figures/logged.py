"""Logged metrics of a training, as lines of a report's figure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import dropwhile
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.reports.figures.axes import instant, literal, numbers_of
from gpumon.reports.figures.run_series import RunSeries
from gpumon.storage.history.query import MOST
from gpumon.storage.ledger.summary import EpochSummary

LATE = 2
"""Ends of epochs whose values an epoch may begin with: what a GPU still computes is known some time after the end."""
LoggedPoint = tuple[float, float, float, float]
"""Time (s since 1970), mean, lowest and highest value."""


class LoggedKind(Enum):
    """That of which a metric tells values."""

    STEPS = auto()
    """Epochs logged others besides their last ones, which may be of another kind, such as the mean of all steps."""
    EPOCHS = auto()
    """Each had one value, as far as any was seen."""
    UNKNOWN = auto()
    """No epoch was seen long enough."""


def kind_of(points: Sequence[LoggedPoint], step: float, name: str, epochs: Sequence[EpochSummary]) -> LoggedKind:
    """Return what the values of a metric are of; `points` are those that were sampled, each of `step` seconds.

    A sample sees what was logged last: that an epoch begins with a value of the one before says nothing of it, nor
    does the value that it begins with where nobody knows what was before.
    """
    times = [time for time, *_ in points]
    before: list[float] = []
    is_seen = False
    for place, one in enumerate(epochs):
        earlier = epochs[place - 1] if place else None
        follows = earlier is not None and earlier.ordinal == one.ordinal - 1 and name in earlier.metrics
        end = one.ended if is_known(one.ended) else math.inf
        part = points[bisect_right(times, one.begun + step / 2) : bisect_left(times, end - step / 2)]
        rest = without_earlier(part, before) if part else part
        if rest and not follows:
            rest = [*dropwhile(lambda point, first=rest[0][1]: has(point, first), rest)]  # type: ignore[misc]
        last = one.metrics.get(name, math.nan)
        if is_known(one.ended) and math.isfinite(last):
            if rest and _distinct(rest, last):
                return LoggedKind.STEPS
            is_seen = is_seen or bool(follows and part)
        elif rest and _distinct(rest) > 1:
            return LoggedKind.STEPS
        before = [*before, last][-LATE:] if math.isfinite(last) else before
    return LoggedKind.EPOCHS if is_seen else LoggedKind.UNKNOWN


def without_earlier(part: Sequence[LoggedPoint], before: Sequence[float]) -> list[LoggedPoint]:
    """The samples of an epoch behind those that still see what was logged `before` it."""
    return [*dropwhile(lambda point: any(has(point, value) for value in before), part)]


def has(point: LoggedPoint, value: float) -> bool:
    """Whether a value is among the samples of a point; traces have single precision."""
    return any(is_same(one, value) for one in point[2:])


def is_same(one: float, value: float) -> bool:
    """Whether two values are one in single precision."""
    return math.isclose(one, value, rel_tol=1e-6)


def _distinct(points: Iterable[LoggedPoint], *besides: float) -> int:
    """Number of different values of points, none of those that they have `besides`; no more than 2 are counted."""
    found = [*besides]
    for _, *values in points:
        for value in values:
            if not any(is_same(value, other) for other in found):
                found.append(value)
        if len(found) - len(besides) > 1:
            break
    return len(found) - len(besides)


LoggedPart = tuple[float, float, Sequence[LoggedPoint]]
"""When an epoch ended, the value that it logged last, and what was sampled until then, since the end before it."""


class LoggedCourse(NamedTuple):
    """The values of a metric in their order."""

    points: Sequence[LoggedPoint]
    is_of_steps: bool
    """Whether an epoch logged another value besides its last one. Then the last one of each may be of another kind,
    such as the mean of all its steps, which nobody can tell: it is none of the points, but for that of an epoch that
    broke off."""


def logged_course(
    ended: float, series: RunSeries, name: str, epochs: Sequence[EpochSummary], *, is_sample: bool = False
) -> LoggedCourse:  # fmt: skip
    """Return the values of a metric, none of them after the end of the run, `ended` (NaN: it goes on).

    A sample sees what was logged last, also if that was in the epoch before: such a value is told once, at its end. An
    epoch that goes on or broke off without a value has none, however long the one before is still seen.
    Behind one that broke off the values are NaN: those of a later epoch do not follow from it. So are they between
    a value that may be of a step and one that may be of an epoch. Of a sample of the epochs (`is_sample`) nobody knows
    that: a value may be that of another epoch.
    """
    course, step = series.columns[name], series.step
    over = ended if is_known(ended) else math.inf
    found = [
        (time, value, _finite(low, value), _finite(high, value))
        for place, (value, low, high) in enumerate(zip(course.mean, course.low, course.high, strict=True))
        if math.isfinite(value) and (time := series.begun + (place + 0.5) * step) <= over
    ]
    times = [time for time, *_ in found]
    ends = _ends(epochs, name, over)
    is_logged_anew = _is_open(epochs, over) and name in epochs[-1].metrics
    parts, since = [], 0
    before: list[float] = []
    for end, value in [*ends, (math.inf, math.nan)]:
        until = bisect_left(times, end - step / 2)
        part = found[since:until]
        if part and (math.isfinite(end) or not is_logged_anew):
            part = without_earlier(part, before)
        parts.append((end, value, part))
        # A cell in which an epoch ended may have values of two epochs.
        since, before = max(until, bisect_right(times, end + step / 2)), [*before, value][-LATE:]
    kind = kind_of(found, step, name, epochs)
    whole = {one.ended for one in epochs} if kind is LoggedKind.STEPS else set()
    kept = [point for end, value, part in parts if part
            for point in (_without(part, value) if end in whole else part)]  # fmt: skip
    shown = [one for one in ends if one[0] not in whole]
    known = [*kept, *((time, value, value, value) for time, value in shown)]
    last = max((time for time, *_ in known), default=-math.inf)
    breaks = [time for time in broken_off(epochs, ended) if time < last]
    if kind is not LoggedKind.STEPS and not is_sample:
        breaks += _apart(parts, kind)
    points = [*known, *((time, math.nan, math.nan, math.nan) for time in breaks)]
    return LoggedCourse(sorted(points, key=lambda point: (point[0], not is_known(point[1]))), kind is LoggedKind.STEPS)


def broken_off(epochs: Sequence[EpochSummary], ended: float) -> list[float]:
    """Return when epochs broke off, as far as that was seen; `ended`: when the run did, NaN while it goes on."""
    over = ended if is_known(ended) else math.inf
    return [
        min(over, one.begun + one.seconds) for place, one in enumerate(epochs)
        if not is_known(one.ended) and is_known(one.begun + one.seconds)
        and not (place == len(epochs) - 1 and _is_open(epochs, over))
    ]  # fmt: skip


def _ends(epochs: Sequence[EpochSummary], name: str, over: float) -> list[tuple[float, float]]:
    """When epochs ended or broke off, and what they logged last; `over`: the end of the run, infinite while it runs."""
    found = []
    for one in epochs:
        # Not rounded: a moment behind the end of the last epoch has no place among epochs, and its value would be lost.
        ended = one.ended if is_known(one.ended) else min(over, one.begun + one.seconds)
        if one is epochs[-1] and _is_open(epochs, over):
            continue
        if math.isfinite(ended) and math.isfinite(one.metrics.get(name, math.nan)):
            found.append((ended, one.metrics[name]))
    return found


def _is_open(epochs: Sequence[EpochSummary], over: float) -> bool:
    """Whether the last epoch goes on."""
    return bool(epochs) and not is_known(epochs[-1].ended) and not math.isfinite(over)


def _apart(parts: Iterable[LoggedPart], kind: LoggedKind) -> Iterator[float]:
    """Times behind which a value may be of another kind: on both sides of those that epochs logged besides their last.

    Whether an epoch that goes on logs of steps or of itself is known where those before it showed it.
    """
    before = -math.inf
    for end, value, part in parts:
        others = [point for point in part if not has(point, value)] if part else part
        if others and (math.isfinite(end) or kind is LoggedKind.UNKNOWN):
            yield from filter(math.isfinite, (before, others[-1][0] if math.isfinite(end) else math.inf))
        before = end


def _without(part: Sequence[LoggedPoint], last: float) -> list[LoggedPoint]:
    """The samples of an epoch before its last value."""
    return [*dropwhile(lambda point: has(point, last), reversed(part))][::-1]


def _finite(value: float, other: float) -> float:
    return value if math.isfinite(value) else other


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
