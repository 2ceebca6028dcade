"""The lines of a run on one device over time, as a report draws them.

`run_series` is the one place that says where such lines come from: today the traces of the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.common.numbers import NAN
from gpumon.storage.history.downsample import Envelope, downsample
from gpumon.storage.history.grid import Grid
from gpumon.storage.history.query import MOST
from gpumon.storage.ledger.records import Record, RunTrace

BRIDGED = 2
"""Missing points in a row that are no gap."""


class RunSeries(NamedTuple):
    """Lines on one time axis."""

    begun: float
    """Seconds since 1970 at the first point."""
    step: float
    """Seconds between points."""
    columns: Mapping[str, Envelope]
    """By metric name; all of the same length."""

    @property
    def points(self) -> int:
        """Number of points of each line."""
        return len(next(iter(self.columns.values())).mean) if self.columns else 0


def run_series(record: Record, traces: Sequence[RunTrace], uuid: str) -> RunSeries:
    """Return the lines of a run on a device, or (`uuid` empty) of what it logged; without columns where none is kept.

    Of several ranks on one device the longest trace counts; of what was logged that of the lowest rank that logged.
    """
    order = {rank.key: i for i, rank in enumerate(record.ranks)}
    found = [trace for trace in traces if trace.uuid == uuid and trace.columns]
    if not found:
        return RunSeries(record.run.started, 1.0, {})
    if uuid:
        best = max(found, key=lambda trace: trace.points * trace.step)
    else:
        best = min(found, key=lambda trace: order.get(trace.rank, len(order)))
    every = -(-best.points // MOST)
    columns = {
        name: Envelope(*(bridged(line) for line in thinned(course, every, keeps_last=not uuid)))
        for name, course in best.columns.items()
    }
    return RunSeries(best.begun, best.step * every, columns)


def diverged_points(logged: RunSeries) -> dict[str, list[tuple[float, float]]]:
    """By metric, when what was logged was no number (s since 1970), and which: NaN or infinite.

    A ledger's trace has such a point as an infinite extreme; one that is infinite to both sides was NaN.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for name, course in logged.columns.items():
        for place, (low, high) in enumerate(zip(course.low, course.high, strict=True)):
            if low == -math.inf or high == math.inf:
                value = NAN if low == -high else low if low == -math.inf else high
                found.setdefault(name, []).append((logged.begun + (place + 0.5) * logged.step, value))
    return found


def thinned(course: Envelope, every: int, *, keeps_last: bool = False) -> Envelope:
    """Each `every` points as one, with the lowest and the highest of them: a spike stays.

    `keeps_last`: the last known value in place of the mean, for what was logged: nobody logged the mean of two epochs.
    """
    if every <= 1:
        return course
    places = range(len(course.mean))
    (found,) = downsample(places, [course], Grid(0, float(every), -(-len(places) // every)), hold=0.0)
    return Envelope(found.low, _last(course.mean, every) if keeps_last else found.mean, found.high)


def _last(line: Sequence[float], every: int) -> list[float]:
    parts = (line[place : place + every] for place in range(0, len(line), every))
    return [next((value for value in reversed(part) if math.isfinite(value)), NAN) for part in parts]


def bridged(values: Sequence[float]) -> Sequence[float]:
    """`values` with gaps of a point or two closed: ticks and points do not beat together."""
    found = list(values)
    last = -1
    for i, value in enumerate(values):
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        if value == value:
            if 0 <= last < i - 1 <= last + BRIDGED:
                found[last + 1 : i] = [values[last]] * (i - 1 - last)
            last = i
    return found
