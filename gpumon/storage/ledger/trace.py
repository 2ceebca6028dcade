"""Traces: metrics over a whole run in at most `POINTS` points. A trace grows with each tick.

A point has the minimum, mean and maximum over `step` seconds. For logged metrics it has the last value instead of the
mean, so that charts show only values that were logged. If the training diverges and logs NaN or infinity, the minimum
or maximum of the point is infinite. When all `POINTS` are used, pairs of points are merged and the step doubles, so the
trace of a month needs no more space than the trace of an hour. The reduction of `history.envelope` cannot be used here,
because points are merged in place during the run and values are still added to the last point.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from operator import add

from gpumon.common.clock import SECOND
from gpumon.common.columnar import (
    ColumnarBlock,
    DamagedBlock,
    pack_block,
    pack_columns,
    pack_integers,
    pack_part,
)
from gpumon.common.numbers import NAN
from gpumon.storage.history.envelope import Envelope

POINTS = 2048


class TraceRecorder:
    """Builds a trace with one line for each metric name in `columns`.

    `begun_ns`: time of the first point (ns since 1970). `origin_ns`: the same time by CLOCK_MONOTONIC. `step_ns`: time
    between two points. `keeps_last`: points have the last value instead of the mean, as needed for logged metrics.
    """

    def __init__(
        self, begun_ns: int, origin_ns: int, step_ns: int, columns: Sequence[str], *, keeps_last: bool = False
    ) -> None:
        self.begun_ns = begun_ns
        self.step_ns = step_ns
        """Time between two points in nanoseconds."""
        self.columns: list[str] = []
        self.points = 0
        self._origin = origin_ns
        self._keeps_last = keeps_last
        self._lines: list[_Line] = []
        for name in columns:
            self.column(name)

    def column(self, name: str) -> int:
        """Return the index of the column with this name. A new name adds a column."""
        if name in self.columns:
            return self.columns.index(name)
        self.columns.append(name)
        line = _Line(self._keeps_last)
        line.grow(self.points)
        self._lines.append(line)
        return len(self.columns) - 1

    def add(self, monotonic_ns: int, values: Sequence[float]) -> None:
        """Add one value for each column; NaN is unknown. Calls must be in chronological order."""
        at = self._index(monotonic_ns)
        for line, value in zip(self._lines, values, strict=True):
            # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
            if value == value:
                line.add(at, value)

    def log(self, monotonic_ns: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics that the training logged at this time, by name. Values may be NaN or infinite."""
        for name in metrics:
            self.column(name)
        at = self._index(monotonic_ns)
        for name, line in zip(self.columns, self._lines, strict=True):
            value = metrics.get(name)
            if value is None:
                continue
            if math.isfinite(value):
                line.add(at, value)
            else:
                line.diverge(at, value)

    def fill(self, monotonic_ns: int, metrics: Mapping[str, float]) -> None:
        """Add metrics that were logged at an earlier time. Metrics that already have a value at this point stay."""
        at = self._index(monotonic_ns)
        present = {name for name, line in zip(self.columns, self._lines, strict=True) if line.counts[at]}
        self.log(monotonic_ns, {name: value for name, value in metrics.items() if name not in present})

    def _index(self, monotonic_ns: int) -> int:
        at = max(0, monotonic_ns - self._origin) // self.step_ns
        while at >= POINTS:
            for line in self._lines:
                line.halve()
            self.points = (self.points + 1) // 2
            self.step_ns *= 2
            at //= 2
        if at >= self.points:
            for line in self._lines:
                line.grow(at + 1 - self.points)
            self.points = at + 1
        return at

    def cells(self) -> list[Envelope]:
        """Return a copy of the points of each column in single precision, which `pack_trace` encodes."""
        return [Envelope(line.lows[:], array("f", line.means), line.highs[:]) for line in self._lines]

    def restore(self, cells: Sequence[Envelope], points: int, each: int) -> None:
        """Restore the points from `cells`, the result of an earlier call of `cells()`.

        `points`: number of points. `each`: number of values that each point is assumed to combine. Raises ValueError if
        the cells do not match the number of columns and points.
        """
        shapes = {len(column) for line in cells for column in line}
        if not 0 <= points <= POINTS or len(cells) != len(self._lines) or shapes - {points}:
            raise ValueError("a trace of another shape")
        self.points = points
        for line, (lows, means, highs) in zip(self._lines, cells, strict=True):
            line.restore(array("f", lows), array("f", means), array("f", highs), each)


class _Line:
    """The points of one metric. `keeps_last`: `means` has the last values instead of the means."""

    __slots__ = ("counts", "highs", "keeps_last", "lows", "means")

    def __init__(self, keeps_last: bool) -> None:
        self.keeps_last = keeps_last
        self.lows = array("f")
        self.highs = array("f")
        self.means = array("d")
        self.counts = array("I")

    def grow(self, points: int) -> None:
        nothing = [NAN] * points
        self.lows.extend(nothing)
        self.highs.extend(nothing)
        self.means.extend(nothing)
        self.counts.extend([0] * points)

    def add(self, at: int, value: float) -> None:
        # A huge number becomes infinite here, because lows and highs have single precision.
        count = self.counts[at] = self.counts[at] + 1
        self.means[at] = value if count == 1 or self.keeps_last else self.means[at] + (value - self.means[at]) / count
        if not value >= self.lows[at]:
            self.lows[at] = value
        if not value <= self.highs[at]:
            self.highs[at] = value

    def diverge(self, at: int, value: float) -> None:
        """Add an infinite value as minimum or maximum, or NaN as both. The mean does not change."""
        if not value > 0:
            self.lows[at] = -math.inf
        if not value < 0:
            self.highs[at] = math.inf

    def halve(self) -> None:
        if len(self.means) % 2:
            self.grow(1)
        a, b = self.counts[0::2], self.counts[1::2]
        pairs = zip(self.means[0::2], a, self.means[1::2], b, strict=True)
        self.means = array("d", (self._merge_means(*pair) for pair in pairs))
        self.counts = array("I", map(add, a, b))
        self.lows = array("f", (y if x != x else min(x, y) for x, y in _pairs(self.lows)))
        self.highs = array("f", (y if x != x else max(x, y) for x, y in _pairs(self.highs)))

    def _merge_means(self, a: float, count_a: int, b: float, count_b: int) -> float:
        """Return the mean, or the last value, of two points, given the mean and the number of values of each."""
        if not count_a or not count_b or self.keeps_last:
            return b if count_b else a
        return (a * count_a + b * count_b) / (count_a + count_b)

    def restore(self, lows: array[float], means: array[float], highs: array[float], each: int) -> None:
        self.counts = array("I", (each if v == v else 0 for v in means))
        self.lows, self.highs, self.means = lows, highs, array("d", means)


def _pairs(line: array[float]) -> Iterator[tuple[float, float]]:
    return zip(line[0::2], line[1::2], strict=True)


def step_for(interval_ns: int) -> int:
    """Return the time between points of a new trace in ns: one second, or the interval between ticks if longer."""
    return max(SECOND, interval_ns)


_LEVEL = 6
"""Compression level of zlib. Traces are written rarely and kept for months."""
_MAX_HEADS = 64
"""Maximum bytes of a part apart from its points."""


def pack_trace(cells: Sequence[Envelope]) -> bytes:
    """Return the columnar block of a trace: a part with the number of points, and a part for each column.

    The part of a column has the means, the minima and the maxima. `cells`: the result of `TraceRecorder.cells`.
    """
    points = len(cells[0].mean) if cells else 0
    parts = [pack_part(pack_columns(map(_singles, (line.mean, line.low, line.high))), _LEVEL) for line in cells]
    return pack_block([pack_part(pack_integers([points])), *parts])


def unpack_trace(data: bytes, points: int) -> list[Envelope]:
    """Return the points of each column. Raises DamagedBlock if the block is damaged or has another number of points."""
    block = ColumnarBlock(data)
    if not block.parts or block.open(0, _MAX_HEADS).integers(1) != [points]:
        raise DamagedBlock("a trace of another shape")
    lines = []
    for index in range(1, block.parts):
        part = block.open(index, _MAX_HEADS + 12 * points)
        mean, low, high = (part.floats(points) for _ in range(3))
        part.finish()
        lines.append(Envelope(low, mean, high))
    return lines


def _singles(values: Sequence[float]) -> array[float]:
    return values if isinstance(values, array) and values.typecode == "f" else array("f", values)
