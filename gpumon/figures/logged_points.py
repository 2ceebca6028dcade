"""Values that a run logged, by time: as they were sampled, and as each epoch ended.

What is logged just before an epoch or the run ends is seldom sampled; the ledger has it with the epoch, also where no
daemon sampled.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.figures.logged_kind import LATE, LoggedKind, LoggedPoint, has, kind_of, without_earlier
from gpumon.figures.run_series import RunSeries
from gpumon.storage.ledger.summary import EpochSummary

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
    ended: float, series: RunSeries, name: str, epochs: Sequence[EpochSummary]
) -> LoggedCourse:  # fmt: skip
    """Return the values of a metric, none of them after the end of the run, `ended` (NaN: it goes on).

    A sample sees what was logged last, also if that was in the epoch before: such a value is told once, at its end. An
    epoch that goes on or broke off without a value has none, however long the one before is still seen.
    Behind one that broke off the values are NaN: those of a later epoch do not follow from it. So are they between
    a value that may be of a step and one that may be of an epoch.
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
    if kind is not LoggedKind.STEPS:
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
