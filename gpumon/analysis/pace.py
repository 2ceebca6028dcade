"""The pace of a run: how many steps it makes in a second of training."""

from __future__ import annotations

from gpumon.analysis.epochs import INFINITY, Epochs
from gpumon.frame import NAN

OVER = 30.0
"""Seconds, at least, over which steps are counted, where so much is known."""
LEAST = 5.0
"""Seconds of training below which nothing is said."""
QUIET = 5
"""Steps that have not come, after which a run makes none; at least `OVER`."""
_SAME = 0.05
"""Seconds between two moments that are one."""


def steps_per_second(epochs: Epochs, key: str, now: float) -> float:
    """Return the steps per second of training of a run lately, without validation and checkpoints; NaN if unknown.

    A run that makes no step any more at `now` (s since 1970) has none, from when `QUIET` steps should have come.
    """
    known = epochs.steps_known(key)
    if len(known) < 2:
        return NAN
    end = known[-1]
    begin = next((one for one in reversed(known) if end[0] - one[0] >= OVER), known[0])
    pace = _pace(epochs, key, begin, end, LEAST)
    beside = any(span.end == INFINITY for span in epochs.spans([key]))
    return pace if beside or not now - end[0] > max(OVER, QUIET / pace) else NAN


def steps_per_second_in(epochs: Epochs, key: str, begin: float, end: float) -> float:
    """Return the same for all of an epoch (s since 1970); NaN where it is not known how many steps that had."""
    known = [one for one in epochs.steps_known(key) if begin - _SAME <= one[0] <= end + _SAME]
    if len(known) < 2 or known[0][0] > begin + _SAME:
        return NAN
    return _pace(epochs, key, known[0], known[-1], 0.0)


def _pace(epochs: Epochs, key: str, begin: tuple[float, int], end: tuple[float, int], least: float) -> float:
    spans = epochs.spans([key])
    beside = sum(max(0.0, min(span.end, end[0]) - max(span.begin, begin[0])) for span in spans)
    trained, steps = end[0] - begin[0] - beside, end[1] - begin[1]
    return steps / trained if trained > 0 and trained >= least and steps > 0 else NAN
