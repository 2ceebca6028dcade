"""Buckets of equal length at fixed times, the time windows that charts show, and the definition of a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor, nan
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import point_in_time, seconds
from gpumon.common.errors import UsageError
from gpumon.storage.history.counters import PAUSE, SHORTEST_INTERVAL

STEADY = 1.0
"""Maximum difference in seconds between the times from one tick to the next by the wall clock and by CLOCK_MONOTONIC.
If the difference is larger, the clock was set or the machine was suspended."""


def max_interval(interval: float) -> float:
    """Return the longest time between two ticks, in seconds, that does not count as a gap.

    `interval`: planned seconds between ticks.
    """
    return PAUSE * max(interval, SHORTEST_INTERVAL)


def is_gap(passed: float, by_clock: float, interval: float) -> bool:
    """Return whether there is a gap between two consecutive ticks, so that there is no data for the time in between.

    All arguments are in seconds. `passed`: time between the ticks by CLOCK_MONOTONIC, which stops while the machine is
    suspended. `by_clock`: time between them by the wall clock. `interval`: planned time between ticks. If an argument
    is NaN, for example before the first tick, the result is True.
    """
    return not (0 < passed <= max_interval(interval) and abs(by_clock - passed) <= STEADY)


LENGTHS = tuple(
    float(number * unit)
    for unit, numbers in (
        (0.1, (1, 2, 3, 5)), (1, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)),
        (60, (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)), (3600, (1, 1.5, 2, 3, 4, 6, 8, 12, 24)),
    )
    for number in numbers
)  # fmt: skip
"""Possible lengths of a bucket in seconds. A growing window keeps its buckets until it needs the next length."""
_LONGEST = tuple(LENGTHS[-1] * 2.0**n for n in range(1, 32))
"""Longer buckets, for series of one or two points. No window of time is longer than the last length."""
_EARLY = 1e-3
"""A sample also belongs to a bucket if it precedes the bucket by at most this fraction of the bucket's length, because
times are rounded. The tolerance is sufficient: in float64, the current time divided by the length of the shortest
bucket is exact to a few millionths."""


class Grid(NamedTuple):
    """Buckets of equal length. They start at multiples of their length since 1970, so they do not move as time passes.

    For the buckets of a run, the ledger counts from `phase` (s since 1970) instead of from 1970.
    """

    first: int
    """Number of the first bucket, counted from 1970 or `phase`."""
    step: float
    """Length of a bucket in seconds."""
    buckets: int
    """Number of buckets in the grid."""
    phase: float = 0.0

    @property
    def begin(self) -> float:
        """Start of the first bucket, in seconds since 1970."""
        return self.phase + self.first * self.step

    @property
    def end(self) -> float:
        """End of the last bucket, in seconds since 1970."""
        return self.phase + (self.first + self.buckets) * self.step

    def at(self, time: float) -> int:
        """Return the index of the bucket that contains `time` (s since 1970). The index may lie outside the grid."""
        return floor((time - self.phase) / self.step + _EARLY) - self.first

    def middles(self) -> list[float]:
        """Return the middle of each bucket, in seconds since 1970."""
        first, step, count, phase = self
        return [phase + (number + 0.5) * step for number in range(first, first + count)]

    def edges(self) -> list[float]:
        """Return the start of each bucket, followed by the end of the last bucket (s since 1970).

        Each time is slightly early, so that a sample whose time was rounded down is still assigned to its bucket.
        """
        first, step, count, phase = self
        return [phase + (number - _EARLY) * step for number in range(first, first + count + 1)]


def aligned(begin: float, end: float, points: int, cells: Iterable[float] = ()) -> Grid:
    """Return a grid from `begin` to `end` (s since 1970) with the shortest buckets that need at most `points` buckets.

    `cells`: lengths of stored cells in seconds. The length of a bucket is a multiple of each of these lengths.
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
    """Seconds since 1970, a datetime, an ISO 8601 text, or a text like "7d" for 7 days ago."""


_FARTHEST = 100 * 366 * 86400.0
"""Maximum seconds between a window and the current time. Dates that are much later cannot be printed."""


class WindowSpan(NamedTuple):
    """A span of time, in seconds since 1970."""

    begin: float
    end: float


def resolve_window(length: str | float | None, begin: Moment | None, end: Moment | None, now: float) -> WindowSpan:
    """Return the window of time given by any two of `length`, `begin` and `end`.

    `length` is in seconds, or a string such as "7d". If only `length` or only `begin` is given, the window ends at
    `now` (s since 1970). Raises UsageError.
    """
    if length is not None and begin is not None and end is not None:
        raise UsageError("pass only two of length, begin and end")
    if length is None and begin is None:
        raise UsageError("pass length, such as '7d', or begin")
    until = now if end is None else point_in_time(end, now)
    if begin is None:
        assert length is not None
        span = WindowSpan(until - seconds(length), until)
    else:
        since = point_in_time(begin, now)
        span = WindowSpan(since, until if length is None else since + seconds(length))
    if not all(abs(edge - now) <= _FARTHEST for edge in span):  # also the case for infinity and NaN
        raise UsageError("a window must lie within a hundred years of now: pass a length such as '7d', or a date")
    if not span.begin < span.end:
        raise UsageError("the window is empty: its begin must be before its end")
    return span


class ChartWindow(NamedTuple):
    """A window that a chart offers: the last `seconds` before now."""

    seconds: int
    title: str
    has_button: bool = False
    """Whether the window has a button. Windows without a button are only zoom steps."""


WINDOWS = (
    ChartWindow(60, "1 min", has_button=True), ChartWindow(120, "2 min"), ChartWindow(300, "5 min"),
    ChartWindow(600, "10 min", has_button=True), ChartWindow(900, "15 min"), ChartWindow(1800, "30 min"),
    ChartWindow(3600, "1 h", has_button=True), ChartWindow(3 * 3600, "3 h"), ChartWindow(6 * 3600, "6 h"),
    ChartWindow(12 * 3600, "12 h"), ChartWindow(86400, "24 h", has_button=True), ChartWindow(3 * 86400, "3 d"),
    ChartWindow(7 * 86400, "7 d", has_button=True), ChartWindow(31 * 86400, "31 d", has_button=True),
)  # fmt: skip
"""Windows from the shortest to the longest. The longest is as long as history is kept."""
SHORT_WINDOWS = (ChartWindow(2, "2 s"), ChartWindow(10, "10 s"), ChartWindow(30, "30 s"))
"""Shorter windows, which show single samples. They are zoom steps and never a default."""
DEFAULT_WINDOW = WINDOWS[3]
"""Window that a chart shows until the user chooses another one."""
LIVE_WINDOW = WINDOWS[6]
"""The longest window that is always available. Frames are kept for this time at one frame per second."""


def available_windows(known: float, whole: float = nan) -> Sequence[ChartWindow]:
    """Return the windows that a chart offers, shortest first.

    `known`: length of the available history in seconds. Windows that are much longer are left out. `whole`: length in
    seconds of the recording that is being played; NaN for live data.
    """
    longest = next((window.seconds for window in WINDOWS if window.seconds >= whole), WINDOWS[-1].seconds)
    longer = [window for shorter, window in pairwise(WINDOWS) if shorter.seconds < known]
    windows = [
        *SHORT_WINDOWS,
        *(window for window in WINDOWS if window.seconds <= LIVE_WINDOW.seconds or window in longer),
    ]
    return [window for window in windows if window.seconds <= longest]
