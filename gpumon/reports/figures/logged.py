"""The lines in a figure for the metrics that a training logged."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import dropwhile

from gpumon.common.numbers import is_known
from gpumon.reports.figures.run_series import RunSeries
from gpumon.storage.ledger.summary import EpochSummary

LATE_EPOCHS = 2
"""The samples of an epoch may contain last values of up to this many earlier epochs, because values on a GPU arrive
late."""
LoggedPoint = tuple[float, float, float, float]
"""A point of a line: time (s since 1970), mean, lowest value and highest value."""


class LoggedKind(Enum):
    """Whether a metric was logged for steps or for epochs."""

    STEPS = auto()
    """Logged for steps: an epoch has several values. The last value may be of another kind, such as the mean over the
    steps."""
    EPOCHS = auto()
    """Logged for epochs: each epoch has a single value."""
    UNKNOWN = auto()
    """Cannot be determined, because no epoch was sampled long enough."""


def kind_of(points: Sequence[LoggedPoint], step: float, name: str, epochs: Sequence[EpochSummary]) -> LoggedKind:
    """Return whether a metric was logged for steps or for epochs.

    `points`: samples of the metric, each of `step` seconds. A sample contains the value that was logged last, so the
    first samples of an epoch may still contain a value of an earlier epoch. Such samples are ignored. If the value of
    the previous epoch is missing, the first value of the epoch is also ignored. `name`: name of the metric.
    """
    times = [time for time, *_ in points]
    earlier_values: list[float] = []
    is_sampled = False
    for index, epoch in enumerate(epochs):
        previous = epochs[index - 1] if index else None
        follows = previous is not None and previous.ordinal == epoch.ordinal - 1 and name in previous.metrics
        # An epoch in which a rank died has no end, even if the other ranks went on to the next epoch.
        after = epochs[index + 1].begun if index + 1 < len(epochs) else math.inf
        end = epoch.ended if is_known(epoch.ended) else after
        part = points[bisect_right(times, epoch.begun + step / 2) : bisect_left(times, end - step / 2)]
        own = without_earlier(part, earlier_values) if part else part
        if own and not follows:
            own = [*dropwhile(lambda point, first=own[0][1]: contains(point, first), own)]  # type: ignore[misc]
        last = epoch.metrics.get(name, math.nan)
        if is_known(epoch.ended) and math.isfinite(last):
            if own and _count_distinct(own, last):
                return LoggedKind.STEPS
            is_sampled = is_sampled or bool(follows and part)
        elif own and _count_distinct(own) > 1:
            return LoggedKind.STEPS
        earlier_values = [*earlier_values, last][-LATE_EPOCHS:] if math.isfinite(last) else earlier_values
    return LoggedKind.EPOCHS if is_sampled else LoggedKind.UNKNOWN


def without_earlier(part: Sequence[LoggedPoint], earlier_values: Sequence[float]) -> list[LoggedPoint]:
    """Drop the first samples of an epoch while they contain one of `earlier_values`, the values of earlier epochs."""
    return [*dropwhile(lambda point: any(contains(point, value) for value in earlier_values), part)]


def contains(point: LoggedPoint, value: float) -> bool:
    """Return whether `value` is the lowest or highest value of a point."""
    return any(is_equal(sampled, value) for sampled in point[2:])


def is_equal(value: float, other: float) -> bool:
    """Return whether two values are equal in float32, the precision of traces."""
    return math.isclose(value, other, rel_tol=1e-6)


def _count_distinct(points: Iterable[LoggedPoint], *excluded: float) -> int:
    """Return the number of distinct values of points without `excluded`. Counting stops at 2 or more."""
    values = [*excluded]
    for _, *own in points:
        for value in own:
            if not any(is_equal(value, other) for other in values):
                values.append(value)
        if len(values) - len(excluded) > 1:
            break
    return len(values) - len(excluded)


LoggedPart = tuple[float, float, Sequence[LoggedPoint]]
"""The end time of an epoch, its last logged value, and the samples since the end of the previous epoch."""


@dataclass(frozen=True, slots=True)
class LoggedSeries:
    """The values of a logged metric, in chronological order."""

    points: Sequence[LoggedPoint]
    is_of_steps: bool
    """True if epochs logged several values. The last value of an epoch may then be of another kind, such as the mean
    over its steps. So it is left out of `points`, unless the epoch has no end."""


def logged_series(
    ended: float, series: RunSeries, name: str, epochs: Sequence[EpochSummary], *, is_sample: bool = False
) -> LoggedSeries:  # fmt: skip
    """Return the values of a metric up to the end of the run, `ended` (s since 1970; NaN while it runs).

    A sample contains the value that was logged last, which may be from an earlier epoch. Such a value is shown only at
    the end of its own epoch. An epoch that logged nothing has no values, even if its samples still contain the previous
    value.

    A point with NaN breaks the line after an epoch without an end, because later values do not continue this epoch.
    Points with NaN also separate values of steps from values of epochs, but not if `epochs` is only a sample of all
    epochs (`is_sample`), because a value may then belong to an epoch that is not in the sample.
    """
    envelope, step = series.columns[name], series.step
    over = ended if is_known(ended) else math.inf
    samples = [
        (time, value, _finite_or(low, value), _finite_or(high, value))
        for index, (value, low, high) in enumerate(zip(envelope.mean, envelope.low, envelope.high, strict=True))
        if math.isfinite(value) and (time := series.begun + (index + 0.5) * step) <= over
    ]
    times = [time for time, *_ in samples]
    ends = _ends(epochs, name, over)
    has_new_value = _is_open(epochs, over) and name in epochs[-1].metrics
    parts, since = [], 0
    earlier_values: list[float] = []
    for end, value in [*ends, (math.inf, math.nan)]:
        until = bisect_left(times, end - step / 2)
        part = samples[since:until]
        if part and (math.isfinite(end) or not has_new_value):
            part = without_earlier(part, earlier_values)
        parts.append((end, value, part))
        # If an epoch ended during a sample, the sample may contain values of two epochs.
        since = max(until, bisect_right(times, end + step / 2))
        earlier_values = [*earlier_values, value][-LATE_EPOCHS:]
    kind = kind_of(samples, step, name, epochs)
    finished = {epoch.ended for epoch in epochs} if kind is LoggedKind.STEPS else set()
    kept = [point for end, value, part in parts if part
            for point in (_before_last(part, value) if end in finished else part)]  # fmt: skip
    known = [*kept, *((time, value, value, value) for time, value in ends if time not in finished)]
    last = max((time for time, *_ in known), default=-math.inf)
    breaks = [time for time in broken_off(epochs, ended) if time < last]
    if kind is not LoggedKind.STEPS and not is_sample:
        breaks += _breaks_between_kinds(parts, kind)
    points = [*known, *((time, math.nan, math.nan, math.nan) for time in breaks)]
    return LoggedSeries(sorted(points, key=lambda point: (point[0], not is_known(point[1]))), kind is LoggedKind.STEPS)


def broken_off(epochs: Sequence[EpochSummary], ended: float) -> list[float]:
    """Return the times at which epochs without a recorded end were last seen (s since 1970).

    The current epoch of a running run is left out. `ended`: end of the run (s since 1970), NaN while it runs.
    """
    over = ended if is_known(ended) else math.inf
    return [
        min(over, epoch.begun + epoch.seconds) for index, epoch in enumerate(epochs)
        if not is_known(epoch.ended) and is_known(epoch.begun + epoch.seconds)
        and not (index == len(epochs) - 1 and _is_open(epochs, over))
    ]  # fmt: skip


def _ends(epochs: Sequence[EpochSummary], name: str, over: float) -> list[tuple[float, float]]:
    """Return the end time and the last logged value of each ended epoch that logged the metric `name`.

    `over`: end of the run (s since 1970), infinite while it runs.
    """
    ends = []
    for epoch in epochs:
        # The times are not rounded. A value with a time after the end of the last epoch would be outside all epochs and
        # be lost.
        ended = epoch.ended if is_known(epoch.ended) else min(over, epoch.begun + epoch.seconds)
        if epoch is epochs[-1] and _is_open(epochs, over):
            continue
        if math.isfinite(ended) and math.isfinite(epoch.metrics.get(name, math.nan)):
            ends.append((ended, epoch.metrics[name]))
    return ends


def _is_open(epochs: Sequence[EpochSummary], over: float) -> bool:
    """Return True if the last epoch is still running. `over`: end of the run, infinite while it runs."""
    return bool(epochs) and not is_known(epochs[-1].ended) and not math.isfinite(over)


def _breaks_between_kinds(parts: Iterable[LoggedPart], kind: LoggedKind) -> Iterator[float]:
    """Yield the times at which the line is broken because values of steps may be next to values of epochs.

    These are the times before and after the samples of an epoch that differ from the epoch's last value. The current
    epoch is included only if `kind` is UNKNOWN, because otherwise earlier epochs determine its kind.
    """
    previous_end = -math.inf
    for end, value, part in parts:
        others = [point for point in part if not contains(point, value)] if part else part
        if others and (math.isfinite(end) or kind is LoggedKind.UNKNOWN):
            yield from filter(math.isfinite, (previous_end, others[-1][0] if math.isfinite(end) else math.inf))
        previous_end = end


def _before_last(part: Sequence[LoggedPoint], last: float) -> list[LoggedPoint]:
    """Return the samples of an epoch before its last value was logged."""
    return [*dropwhile(lambda point: contains(point, last), reversed(part))][::-1]


def _finite_or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
