"""Buckets of time: of one length, at fixed places in absolute time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor, nan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import point_in_time, seconds
from gpumon.common.errors import UsageError
from gpumon.storage.history.counters import PAUSE, SHORTEST_INTERVAL

STEADY = 1.0
"""Seconds by which the wall clock may differ from the steady one between two ticks; else it was set, or we slept."""


def longest(interval: float) -> float:
    """Return by how many seconds two ticks that follow each other lie apart at most; `interval` as planned."""
    return PAUSE * max(interval, SHORTEST_INTERVAL)


def is_gap(passed: float, by_clock: float, interval: float) -> bool:
    """Return whether nothing is known of the time between two ticks.

    `passed` seconds lie between them by CLOCK_MONOTONIC, which stands still while the machine sleeps, and `by_clock`
    by the wall clock; `interval`: seconds between ticks as planned. NaN, before the first tick, is a gap.
    """
    return not (0 < passed <= longest(interval) and abs(by_clock - passed) <= STEADY)


LENGTHS = tuple(
    float(number * unit)
    for unit, numbers in (
        (0.1, (1, 2, 3, 5)), (1, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)),
        (60, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)), (3600, (1, 1.5, 2, 3, 4, 6, 8, 12, 24)),
    )
    for number in numbers
)  # fmt: skip
"""Seconds that a bucket may last. A window that grows keeps its buckets until it needs the next length."""
_LONGEST = tuple(LENGTHS[-1] * 2.0**n for n in range(1, 32))
"""The same for a line of one or two points: no window of time is longer."""
_EARLY = 1e-3
"""The share of a bucket by which a sample may come before it: times are rounded. A float64 of today's seconds over the
shortest bucket is exact to a few millionths, so that the place of a time is that of its sample."""


class Grid(NamedTuple):
    """Buckets of equal length. They begin at multiples of it since 1970, so that they stay while time passes.

    `phase` (s since 1970) is where the ledger's buckets of a run are counted from instead.
    """

    first: int
    """Number of the first bucket."""
    step: float
    """Seconds in each."""
    buckets: int
    phase: float = 0.0

    @property
    def begin(self) -> float:
        """Seconds since 1970."""
        return self.phase + self.first * self.step

    @property
    def end(self) -> float:
        """Seconds since 1970 behind the last bucket."""
        return self.phase + (self.first + self.buckets) * self.step

    def at(self, time: float) -> int:
        """The place of the bucket that holds `time`; it may lie outside."""
        return floor((time - self.phase) / self.step + _EARLY) - self.first

    def middles(self) -> list[float]:
        """The time at the middle of each bucket, in seconds since 1970."""
        first, step, count, phase = self
        return [phase + (place + 0.5) * step for place in range(first, first + count)]

    def edges(self) -> list[float]:
        """The time from which a sample belongs to each bucket, and the one from which it is behind the last."""
        first, step, count, phase = self
        return [phase + (place - _EARLY) * step for place in range(first, first + count + 1)]


def aligned(begin: float, end: float, points: int, cells: Iterable[float] = ()) -> Grid:
    """Return the shortest buckets, at most `points` of them, that hold all times from `begin` to `end`.

    `cells` (s): what was summed up before is in cells of these lengths, and each bucket holds whole ones.
    """
    lengths = (*LENGTHS, *_LONGEST)
    for cell in cells:
        lengths = tuple(length for length in lengths if length % cell == 0)
    grid = Grid(0, LENGTHS[0], 0)
    for length in lengths:
        if length * points >= end - begin:
            first, last = floor(begin / length + _EARLY), floor(end / length + _EARLY)
            grid = Grid(first, length, last - first + 1)
            if grid.buckets <= points:
                break
    return grid


if TYPE_CHECKING:
    from datetime import datetime

    Moment = str | float | datetime
    """Seconds since 1970, a datetime, a text of ISO 8601, or such as "7d" for so long ago."""


_FARTHEST = 100 * 366 * 86400.0
"""Seconds from now beyond which no window lies: it could not even be printed as a date."""


class WindowSpan(NamedTuple):
    """A stretch of time, in seconds since 1970."""

    begin: float
    end: float


def span_of(length: str | float | None, begin: Moment | None, end: Moment | None, now: float) -> WindowSpan:
    """Return the window of `length` (seconds, or such as "7d") up to `end`, or from `begin` on; or between the two.

    Without an end it ends `now` (s since 1970). Raises UsageError.
    """
    if length is not None and begin is not None and end is not None:
        raise UsageError("pass two of length, begin and end: the third follows")
    if length is None and begin is None:
        raise UsageError("pass a length such as '7d', or a begin")
    until = now if end is None else point_in_time(end, now)
    if begin is None:
        assert length is not None
        found = WindowSpan(until - seconds(length), until)
    else:
        since = point_in_time(begin, now)
        found = WindowSpan(since, until if length is None else since + seconds(length))
    if not all(abs(edge - now) <= _FARTHEST for edge in found):  # also one that is infinite, or not a number
        raise UsageError("a window must lie within a hundred years of now: pass a length such as '7d', or a date")
    if not found.begin < found.end:
        raise UsageError("the window is empty: its begin must be before its end")
    return found


class ChartWindow(NamedTuple):
    """The last `seconds` up to now."""

    seconds: int
    title: str
    has_button: bool = False
    """It is offered also where each window takes a button, rather than a step of the zoom."""


WINDOWS = (
    ChartWindow(60, "1 min", has_button=True), ChartWindow(120, "2 min"), ChartWindow(300, "5 min"),
    ChartWindow(600, "10 min", has_button=True), ChartWindow(900, "15 min"), ChartWindow(1800, "30 min"),
    ChartWindow(3600, "1 h", has_button=True), ChartWindow(3 * 3600, "3 h"), ChartWindow(6 * 3600, "6 h"),
    ChartWindow(12 * 3600, "12 h"), ChartWindow(86400, "24 h", has_button=True), ChartWindow(3 * 86400, "3 d"),
    ChartWindow(7 * 86400, "7 d", has_button=True), ChartWindow(31 * 86400, "31 d", has_button=True),
)  # fmt: skip
"""From the shortest to the longest, which is as long as history is kept."""
CLOSE = (ChartWindow(2, "2 s"), ChartWindow(10, "10 s"), ChartWindow(30, "30 s"))
"""Shorter ones, for a look at single samples: only a step of the zoom leads there, never a default."""
USUAL = WINDOWS[3]
"""Until the user chooses another one."""
ALWAYS = WINDOWS[6]
"""The longest that is offered however little is known: as long as the last frames are kept at one a second."""


def offered(known: float, whole: float = nan) -> Sequence[ChartWindow]:
    """Return the windows to choose from where history goes back by `known` seconds; none is longer than it must be.

    `whole`: seconds of the recording that plays, beyond which there will never be more; NaN where time goes on.
    """
    most = next((window.seconds for window in WINDOWS if window.seconds >= whole), WINDOWS[-1].seconds)
    longer = [window for shorter, window in pairwise(WINDOWS) if shorter.seconds < known]
    found = [*CLOSE, *(window for window in WINDOWS if window.seconds <= ALWAYS.seconds or window in longer)]
    return [window for window in found if window.seconds <= most]
