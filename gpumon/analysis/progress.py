"""Progress, speed and remaining time of a run, for all views."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import NamedTuple

from gpumon.analysis.ranks import Ranks
from gpumon.analysis.run_epochs import INFINITY, Epochs
from gpumon.analysis.thresholds import OVERDUE, PACE_FROM, PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import TRAINING, Run, RunState

OVER = 30.0
"""Seconds over which the recent pace is averaged. Fewer if the run is younger."""
QUIET = 5
"""A run counts as stopped if this many steps are overdue and at least `OVER` seconds have passed."""
_SAME_MOMENT = 0.05
"""Two times that differ by at most this many seconds count as equal."""
_time = itemgetter(0)


class RecentPace(NamedTuple):
    """The recent speed of a run. NaN if it cannot be computed."""

    rate: float = NAN
    """Training steps per second of training. Time in validation and checkpoints does not count."""
    over: float = NAN
    """Seconds over which the rate is averaged."""


def recent_pace(epochs: Epochs, key: str, now: float) -> RecentPace:
    """Return the pace of a run over about the last `OVER` seconds. `now`: current time in s since 1970.

    The measurement starts at a time for which the step count was reported. The first epoch of a process, which compiles
    and fills caches, is left out once there are at least `PACE_FROM` seconds of data after it. The pace is NaN if the
    run has stopped making steps (see `QUIET`).
    """
    moments = epochs.step_moments(key)
    if len(moments) < 2:
        return RecentPace()
    end = moments[-1]
    settled = _second_epoch_begin(epochs, key)
    first = bisect_left(moments, settled, key=_time) if end[0] - settled >= PACE_FROM else 0
    begin = moments[max(first, bisect_right(moments, end[0] - OVER, key=_time) - 1)]
    rate = _pace(epochs, key, begin, end, PACE_FROM)
    in_other_phase = any(span.end == INFINITY for span in epochs.open_span(key))
    is_quiet = not in_other_phase and now - end[0] > max(OVER, QUIET / rate)
    return RecentPace() if is_quiet else RecentPace(rate, end[0] - begin[0])


def steps_per_second_in(epochs: Epochs, key: str, begin: float, end: float, *, is_open: bool = False) -> float:
    """Return the training steps per second from `begin` to `end` of an epoch (s since 1970); NaN if unknown.

    `is_open`: whether the epoch is still running or was aborted. If so, the result is NaN for the first `PACE_FROM`
    seconds.
    """
    moments = epochs.step_moments(key)
    first = bisect_left(moments, begin - _SAME_MOMENT, key=_time)
    stop = bisect_right(moments, end + _SAME_MOMENT, key=_time)
    if stop - first < 2 or not begin - _SAME_MOMENT <= moments[first][0] <= begin + _SAME_MOMENT:
        return NAN
    later = bisect_right(moments, end, first, stop, key=_time)
    candidates = [moments[index] for index in (later, later - 1) if first <= index < stop]
    last = min(candidates, key=lambda moment: abs(moment[0] - end))  # the board may be read just after the epoch ended
    return _pace(epochs, key, moments[first], last, PACE_FROM if is_open else 0.0)


def _second_epoch_begin(epochs: Epochs, key: str) -> float:
    """Return the start (s since 1970) of the second epoch of a process; NaN if no such start was reported."""
    run = epochs.run(key)
    return epochs.begin_above(key, run.first_epoch) if run is not None else NAN


def _pace(epochs: Epochs, key: str, begin: tuple[float, int], end: tuple[float, int], min_seconds: float) -> float:
    spans = epochs.spans_since(key, begin[0])
    other = sum(max(0.0, min(span.end, end[0]) - max(span.begin, begin[0])) for span in spans)
    trained, steps = end[0] - begin[0] - other, end[1] - begin[1]
    return steps / trained if trained > 0 and trained >= min_seconds and steps > 0 else NAN


_MAX_OPEN_SHARE = 0.99
"""Maximum share of an open epoch that counts as done. It is below 1, because the epoch may take longer than earlier
epochs."""


class Progress(NamedTuple):
    """Progress of a run. Values are NaN if the run reports no plan or its speed cannot be computed."""

    done: float
    """Share (0 to 1) of the planned epochs that is done, or of the planned steps if no epochs are planned. Epochs of
    earlier processes of a resumed run count, too."""
    left: float
    """Seconds until the last planned epoch or step ends. NaN if the run has ended or exceeded its plan."""
    epoch: float
    """Usual seconds per epoch: `Epochs.duration`, or the mean since the start of the run if `Epochs.duration` is
    NaN."""


def progress(ranks: Ranks, epochs: Epochs, now: float, monotonic_ns: int = 0) -> Progress:
    """Return the progress of a run (`Ranks.slowest`) at `now` (s since 1970).

    `monotonic_ns`: the same time by CLOCK_MONOTONIC, 0 if unknown.
    """
    run = ranks.slowest
    duration = epochs.duration(run.key)
    if not duration > 0:
        duration = _mean_epoch_seconds(run, now, monotonic_ns)
    left = time_left(run, duration, now, monotonic_ns) if ranks.state is RunState.RUNNING else NAN
    done = share_done(run, duration, now)
    if unended := _unended_epochs(ranks):
        done = max(0.0, done - len(unended) / run.epochs)
    return Progress(done, left, duration)


def _unended_epochs(ranks: Ranks) -> set[int]:
    """Return planned epochs that the run has passed but that a rank never finished, because it died or was stopped.

    The ledger does not count them as done either (`RunSummary.done`).
    """
    run = ranks.slowest
    end = run.epoch + (run.state is RunState.FINISHED)
    return {
        rank.epoch
        for rank in ranks.all
        if run.epochs and run.base <= rank.epoch < end and rank.state not in (RunState.RUNNING, RunState.FINISHED)
    }


def share_done(run: Run, duration: float, now: float) -> float:
    """Return the share (0 to 1) of the planned epochs that is done, or of the planned steps if no epochs are planned.

    `duration`: usual seconds per epoch. `now`: current time in s since 1970.
    """
    if not run.epochs:
        planned = run.facts.planned_steps
        return min(1.0, run.step / planned) if planned > 0 else NAN
    whole = max(0, run.epoch - run.base)
    if run.state is RunState.FINISHED:
        part = 1.0
    elif run.epoch < run.base:
        part = 0.0
    else:
        part = _share_of_open_epoch(run, duration, now if run.state is RunState.RUNNING else run.updated)
    return min(1.0, (whole + part) / run.epochs)


def seconds_since_begin(run: Run, now: float, monotonic_ns: int = 0) -> float:
    """Return the number of seconds for which a run has been running.

    `now`: current time in s since 1970. `monotonic_ns`: the same time by CLOCK_MONOTONIC, 0 if unknown. CLOCK_MONOTONIC
    is used if the start of the run was recorded with it, too.
    """
    steady = monotonic_ns / SECOND - run.facts.begun
    return steady if monotonic_ns and run.facts.begun and steady > 0 else now - run.started


def time_left(run: Run, duration: float, now: float, monotonic_ns: int = 0) -> float:
    """Return the seconds until the last planned epoch ends, or the last planned step if no epochs are planned.

    `duration`: usual seconds per epoch. NaN if the run has exceeded its plan. Also NaN if the open epoch already takes
    much longer than `duration` or the run makes no more steps, because the estimate would then only grow with time.
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
    spent = max(0.0, now - run.epoch_started)  # the clock may have been set back during the epoch
    current = max(0.0, duration - spent) if is_known(spent) else duration
    return after * duration + current


def has_stopped(run: Run, now: float) -> bool:
    """Return whether several steps are overdue at `now` (s since 1970), compared with the mean time per step.

    False in phases in which no steps are counted, such as validation.
    """
    if not run.step > 0 or run.phase not in ("", TRAINING):
        return False
    return now - run.updated > max(OVER, QUIET * (run.updated - run.started) / run.step)


def _steps_left(run: Run, now: float, monotonic_ns: int) -> float:
    """Return the seconds until the last planned step.

    They are computed from the mean time per step so far. Pauses are included.
    """
    planned, spent = run.facts.planned_steps, seconds_since_begin(run, now, monotonic_ns) - (now - run.updated)
    if not planned > 0 or not 0 < run.step <= planned or not spent > 0:
        return NAN
    return (planned - run.step) * spent / run.step


def _share_of_open_epoch(run: Run, duration: float, at: float) -> float:
    """Return the share (0 to 1) of the open epoch that is done at the time `at` (s since 1970). 0 if it has no data."""
    share = (at - run.epoch_started) / duration if duration > 0 else NAN
    return max(0.0, min(share, _MAX_OPEN_SHARE)) if is_known(share) else 0.0


def _mean_epoch_seconds(run: Run, now: float, monotonic_ns: int) -> float:
    """Return the mean seconds per epoch, computed from the run's board. NaN before the first epoch has ended."""
    epochs = run.epoch - run.first_epoch
    spent = seconds_since_begin(run, now, monotonic_ns) - (now - run.epoch_started)
    return spent / epochs if epochs > 0 and spent > 0 else NAN
