"""Progress of a run and its time left: one answer for every view."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import NamedTuple

from gpumon.analysis.epochs import INFINITY, Epochs
from gpumon.analysis.ranks import Ranks
from gpumon.analysis.thresholds import OVERDUE, PACE_FROM, PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import TRAINING, Run, RunState

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


_NEARLY = 0.99
"""Share of an epoch that counts as done before its end, at most: it may take longer than those before."""


class Progress(NamedTuple):
    """NaN where the plan or the pace is unknown."""

    done: float
    """Share of the planned epochs, 0 to 1, with what earlier processes did of a resumed run; without such a plan of
    the planned steps."""
    left: float
    """Seconds until the last planned epoch or step ends; NaN for a run that is over, and beyond its plan."""
    epoch: float
    """The usual seconds of an epoch: `Epochs.duration`, or else their mean by the board alone."""


def progress(ranks: Ranks, epochs: Epochs, now: float, monotonic_ns: int = 0) -> Progress:
    """Return the progress of a run at `now` (seconds since 1970), as far as its slowest rank is.

    `monotonic_ns`: the same moment by CLOCK_MONOTONIC; 0 where it is not known.
    """
    run = ranks.slowest
    duration = epochs.duration(run.key)
    if not duration > 0:
        duration = _mean_of(run, now, monotonic_ns)
    left = time_left(run, duration, now, monotonic_ns) if ranks.state is RunState.RUNNING else NAN
    return Progress(share_done(run, duration, now), left, duration)


def share_done(run: Run, duration: float, now: float) -> float:
    """Return the share of the planned epochs, or steps, that is done, by `duration` seconds an epoch."""
    if not run.epochs:
        planned = run.facts.planned_steps
        return min(1.0, run.step / planned) if planned > 0 else NAN
    whole = max(0, run.epoch - run.base)
    if run.state is RunState.FINISHED:
        part = 1.0
    elif run.epoch < run.base:
        part = 0.0
    else:
        part = _part(run, duration, now if run.state is RunState.RUNNING else run.updated)
    return min(1.0, (whole + part) / run.epochs)


def seconds_since_begin(run: Run, now: float, monotonic_ns: int = 0) -> float:
    """Return the seconds since a run began, by the monotonic clock where it knows both moments."""
    steady = monotonic_ns / SECOND - run.facts.begun
    return steady if monotonic_ns and run.facts.begun and steady > 0 else now - run.started


def time_left(run: Run, duration: float, now: float, monotonic_ns: int = 0) -> float:
    """Return the seconds until the last planned epoch, or step, ends, by `duration` seconds an epoch.

    NaN where the open epoch takes far longer than they did, or no steps come: whoever stopped a training gets no end
    that moves on with the clock. NaN beyond the plan, too: nobody knows how far a run goes that did not end with it.
    """
    if has_stopped(run, now):
        return NAN
    if not run.epochs:
        return _steps_left(run, now, monotonic_ns)
    if run.epoch < 0 or now - run.epoch_started > max(PAUSE, OVERDUE * duration):
        return NAN
    after = run.base + run.epochs - 1 - run.epoch
    if after < 0:
        return NAN
    spent = max(0.0, now - run.epoch_started)  # the clock may have been set back meanwhile
    current = max(0.0, duration - spent) if is_known(spent) else duration
    return after * duration + current


def has_stopped(run: Run, now: float) -> bool:
    """Whether several steps should have come by `now` and none has, by the mean time of all; as for its `pace`.

    False where it makes no steps that anybody counts, as in a validation.
    """
    if not run.step > 0 or run.phase not in ("", TRAINING):
        return False
    return now - run.updated > max(OVER, QUIET * (run.updated - run.started) / run.step)


def _steps_left(run: Run, now: float, monotonic_ns: int) -> float:
    """Seconds until the last planned step, by the mean of those made so far; of what is between them, too."""
    planned, spent = run.facts.planned_steps, seconds_since_begin(run, now, monotonic_ns) - (now - run.updated)
    if not planned > 0 or not 0 < run.step <= planned or not spent > 0:
        return NAN
    return (planned - run.step) * spent / run.step


def _part(run: Run, duration: float, at: float) -> float:
    """The share of the open epoch that is done; 0 where that is unknown."""
    share = (at - run.epoch_started) / duration if duration > 0 else NAN
    return max(0.0, min(share, _NEARLY)) if is_known(share) else 0.0


def _mean_of(run: Run, now: float, monotonic_ns: int) -> float:
    """Mean seconds of its epochs by its board alone; NaN before the first is over."""
    epochs = run.epoch - run.first_epoch
    spent = seconds_since_begin(run, now, monotonic_ns) - (now - run.epoch_started)
    return spent / epochs if epochs > 0 and spent > 0 else NAN
