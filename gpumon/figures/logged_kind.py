"""The kind of values that a run logged under a name: of steps, or of epochs. Boards do not tell.

It shows in what epochs logged besides their last value. Where it does not, nobody knows.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import dropwhile

from gpumon.common.numbers import is_known
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
