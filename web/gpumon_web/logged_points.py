"""Values that a run logged, by time: as they were sampled, and as each epoch ended.

What is logged just before an epoch or the run ends is seldom sampled; the ledger has it with the epoch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from gpumon.figures.run_series import RunSeries
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.records import RunRow
from gpumon.missing import is_known

MISSED = 3
"""Steps between two samples beyond which nothing was seen between them."""
LoggedPoint = tuple[float, float, float, float]
"""Time (s since 1970), mean, lowest and highest value."""


def logged_points(run: RunRow, series: RunSeries, name: str, epochs: Sequence[EpochSummary]) -> list[LoggedPoint]:
    """Return the known values of a metric in their order, none of them after the end of the run."""
    course, step = series.columns[name], series.step
    over = run.ended if is_known(run.ended) else math.inf
    found = [
        (time, value, _finite(low, value), _finite(high, value))
        for place, (value, low, high) in enumerate(zip(course.mean, course.low, course.high, strict=True))
        if math.isfinite(value) and (time := round(series.begun + (place + 0.5) * step, 3)) <= over
    ]
    # Not rounded: a moment behind the end of the last epoch has no place among epochs, and its value would be lost.
    ends = [(one.ended, one.metrics[name]) for one in epochs
            if is_known(one.ended) and math.isfinite(one.metrics.get(name, math.nan))]  # fmt: skip
    times = [time for time, *_ in found]
    seen = [(time, value) for time, value in ends if _is_seen(times, time, step)]
    ended = [time for time, _ in seen]
    # The middle of a cell may lie behind the end of an epoch, and its sample before it.
    kept = [one for one in found if not (at := bisect_left(ended, one[0])) or one[0] - ended[at - 1] >= step / 2]
    return sorted([*kept, *((time, value, value, value) for time, value in seen)])


def _is_seen(times: Sequence[float], time: float, step: float) -> bool:
    """Whether a moment lies in no gap of samples."""
    at = bisect_left(times, time)
    return at > 0 and (at == len(times) or times[at] - times[at - 1] <= MISSED * step)


def _finite(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
