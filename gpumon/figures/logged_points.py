"""Values that a run logged, by time: as they were sampled, and as each epoch ended.

What is logged just before an epoch or the run ends is seldom sampled; the ledger has it with the epoch, also where no
daemon sampled.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import dropwhile
from typing import NamedTuple

from gpumon.figures.run_series import RunSeries
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.missing import is_known

OFTEN = 2
"""Values that an epoch logged besides its last one, from which on a metric is one of steps."""
LoggedPoint = tuple[float, float, float, float]
"""Time (s since 1970), mean, lowest and highest value."""


class LoggedCourse(NamedTuple):
    """The values of a metric in their order."""

    points: Sequence[LoggedPoint]
    is_of_steps: bool
    """Whether epochs logged several values. Then the last one of each may be of another kind, such as the mean of all
    its steps, which nobody can tell: it is none of the points, but for that of an epoch that broke off."""


def logged_points(
    ended: float, series: RunSeries, name: str, epochs: Sequence[EpochSummary]
) -> Sequence[LoggedPoint]:  # fmt: skip
    """Return the points of `logged_course`."""
    return logged_course(ended, series, name, epochs).points


def logged_course(
    ended: float, series: RunSeries, name: str, epochs: Sequence[EpochSummary]
) -> LoggedCourse:  # fmt: skip
    """Return the values of a metric, none of them after the end of the run, `ended` (NaN: it goes on).

    A sample sees what was logged last, also if that was in the epoch before: such a value is told once, at its end. An
    epoch that goes on or broke off without a value has none, however long the one before is still seen.
    Behind one that broke off the values are NaN: those of a later epoch do not follow from it.
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
    parts, since, before = [], 0, math.nan
    for end, value in [*ends, (math.inf, math.nan)]:
        until = bisect_left(times, end - step / 2)
        part = found[since:until]
        if math.isfinite(end) or not is_logged_anew:
            part = [*dropwhile(lambda one, before=before: _has(one, before), part)]  # type: ignore[misc]
        parts.append((end, value, part))
        # A cell in which an epoch ended may have values of two epochs.
        since, before = max(until, bisect_right(times, end + step / 2)), value
    is_of_steps = any(_has_steps(part, value) for _, value, part in parts if math.isfinite(value))
    whole = {one.ended for one in epochs} if is_of_steps else set()
    kept = [point for end, value, part in parts for point in (_without(part, value) if end in whole else part)]
    shown = [one for one in ends if one[0] not in whole]
    known = [*kept, *((time, value, value, value) for time, value in shown)]
    last = max((time for time, *_ in known), default=-math.inf)
    breaks = [(time, math.nan, math.nan, math.nan) for time in broken_off(epochs, ended) if time < last]
    return LoggedCourse(sorted([*known, *breaks], key=lambda point: (point[0], not is_known(point[1]))), is_of_steps)


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


def _has_steps(part: Sequence[LoggedPoint], last: float) -> bool:
    """Whether an epoch logged several values besides its last one."""
    return len({point[1] for point in part if not _has(point, last)}) >= OFTEN


def _without(part: Sequence[LoggedPoint], last: float) -> list[LoggedPoint]:
    """The samples of an epoch before its last value."""
    return [*dropwhile(lambda point: _has(point, last), reversed(part))][::-1]


def _has(point: LoggedPoint, value: float) -> bool:
    """Whether a value is among the samples of a point; traces have single precision."""
    return any(math.isclose(one, value, rel_tol=1e-6) for one in point[2:])


def _finite(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
