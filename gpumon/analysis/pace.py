"""The pace of a run: how many steps it makes in a second of training."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import NamedTuple

from gpumon.analysis.epochs import INFINITY, Epochs
from gpumon.analysis.thresholds import PACE_FROM
from gpumon.common.numbers import NAN

OVER = 30.0
"""Seconds, at least, over which steps are counted, where so much is known."""
QUIET = 5
"""Steps that have not come, after which a run makes none; at least `OVER`."""
_SAME = 0.05
"""Seconds between two moments that are one."""
_time = itemgetter(0)


class RecentPace(NamedTuple):
    """The speed of a run lately; NaN where that is not known."""

    rate: float = NAN
    """Steps per second of training, without validation and checkpoints."""
    over: float = NAN
    """Seconds over which that is the mean."""


def recent_pace(epochs: Epochs, key: str, now: float) -> RecentPace:
    """Return the pace of a run lately: over `OVER` seconds at least, from the begin of an epoch, phase or row of steps.

    The first epoch of a process, which compiles and fills caches, counts only until `PACE_FROM` seconds are known of
    those behind it. A run that makes no step any more at `now` (s since 1970) has no pace, from when `QUIET` steps
    should have come.
    """
    known = epochs.steps_known(key)
    if len(known) < 2:
        return RecentPace()
    end = known[-1]
    settled = _settled(epochs, key)
    first = bisect_left(known, settled, key=_time) if end[0] - settled >= PACE_FROM else 0
    begin = known[max(first, bisect_right(known, end[0] - OVER, key=_time) - 1)]
    rate = _pace(epochs, key, begin, end, PACE_FROM)
    beside = any(span.end == INFINITY for span in epochs.open_span(key))
    is_quiet = not beside and now - end[0] > max(OVER, QUIET / rate)
    return RecentPace() if is_quiet else RecentPace(rate, end[0] - begin[0])


def steps_per_second_in(epochs: Epochs, key: str, begin: float, end: float, *, is_open: bool = False) -> float:
    """Return the steps per second of training in all of an epoch (s since 1970); NaN where its steps are not known.

    One that goes on, or broke off, `is_open`: nothing is said of its first seconds.
    """
    known = epochs.steps_known(key)
    first = bisect_left(known, begin - _SAME, key=_time)
    behind = bisect_right(known, end + _SAME, key=_time)
    if behind - first < 2 or not begin - _SAME <= known[first][0] <= begin + _SAME:
        return NAN
    later = bisect_right(known, end, first, behind, key=_time)
    beside = [known[place] for place in (later, later - 1) if first <= place < behind]
    last = min(beside, key=lambda one: abs(one[0] - end))  # not a board of just after it
    return _pace(epochs, key, known[first], last, PACE_FROM if is_open else 0.0)


def _settled(epochs: Epochs, key: str) -> float:
    """When the second epoch of a process began (s since 1970); NaN before, and where nobody knows."""
    run = epochs.run(key)
    return epochs.begin_above(key, run.first_epoch) if run is not None else NAN


def _pace(epochs: Epochs, key: str, begin: tuple[float, int], end: tuple[float, int], least: float) -> float:
    spans = epochs.spans_since(key, begin[0])
    beside = sum(max(0.0, min(span.end, end[0]) - max(span.begin, begin[0])) for span in spans)
    trained, steps = end[0] - begin[0] - beside, end[1] - begin[1]
    return steps / trained if trained > 0 and trained >= least and steps > 0 else NAN
