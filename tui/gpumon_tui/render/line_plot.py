"""Line plots in braille with a band from minimum to maximum, averages of a curve over a time interval, and the cache of
their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import floor, fsum, nan
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.query import Query
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon_tui.render.axis import ValueAxis
from gpumon_tui.render.cells import EMPTY, PaintedCell, Row, Tint
from gpumon_tui.render.time_axis import HOLD, halves, window_text

FILL, BAND, LIMIT = 0.035, 0.15, 0.6
"""Shares of the color for the area under the line, for the band, and for limit lines."""
EIGHTHS = " ▁▂▃▄▅▆▇"
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Braille bits, by half of the cell, from top to bottom."""
_BLANK = 0x2800
_MARK_DISTANCE = 12
"""Columns between the markers of a line."""


class PlotCurve(NamedTuple):
    """Values of a metric; NaN is a gap."""

    low: Sequence[float]
    """Minimum, two points per column, as in the other two."""
    mean: Sequence[float]
    high: Sequence[float]


class OverlaidLine(NamedTuple):
    """Another line in the same plot."""

    mean: Sequence[float]
    role: str
    mark: str = ""
    """Marker drawn on the line at intervals if lines have no colors; empty for none."""


class LimitLine(NamedTuple):
    """A limit or threshold, and the role of its line."""

    value: float
    role: str


def plot(
    curve: PlotCurve, axis: ValueAxis, rows: int, role: str, overlaid: Sequence[OverlaidLine] = (),
    limits: Sequence[LimitLine] = (), mark: str = "",
) -> list[Row]:  # fmt: skip
    """Return `rows` of cells, one cell per two points of `curve`; the area is drawn only if the axis starts at zero.

    `mark` is the marker of the curve's line, as in `OverlaidLine`.
    """
    picture = _areas(curve, axis, rows, role)
    for limit in limits:
        if axis.low <= limit.value <= axis.high:
            row = min(rows - 1, int((1 - axis.share(limit.value)) * rows))
            for column, cell in enumerate(picture[row]):
                if cell.glyph in " █":
                    picture[row][column] = PaintedCell("─", Tint(limit.role, LIMIT), cell.ground)
    line_grounds: dict[tuple[int, int], Tint | None] = {}
    lines = (*overlaid, OverlaidLine(curve.mean, role, mark))
    for mean, ink, _ in lines:
        for (column, row), dots in line_dots(mean, axis, rows).items():
            cell = picture[row][column]
            if (column, row) in line_grounds:  # there is another line here
                dots |= ord(cell.glyph) - _BLANK
            else:
                line_grounds[column, row] = _ground_of(cell)
            picture[row][column] = PaintedCell(chr(_BLANK + dots), Tint(ink), line_grounds[column, row])
    for line_number, line in enumerate(lines):
        if line.mark:
            _put_marks(picture, line, line_dots(line.mean, axis, rows), line_number * _MARK_DISTANCE // len(lines))
    return picture


def _put_marks(picture: list[Row], line: OverlaidLine, dots: Iterable[tuple[int, int]], offset: int) -> None:
    """Draw the markers of a line, at columns not used by the other lines."""
    marked = set()
    for column, row in dots:
        if column % _MARK_DISTANCE == offset and column not in marked:
            marked.add(column)
            picture[row][column] = PaintedCell(line.mark, Tint(line.role), picture[row][column].ground)


def line_dots(mean: Sequence[float], axis: ValueAxis, rows: int) -> dict[tuple[int, int], int]:
    """Return the braille dots of a line by column and row; steps are connected vertically, gaps are not."""
    dots: dict[tuple[int, int], int] = {}
    last_dot = 4 * rows - 1
    previous = -1
    for index, value in enumerate(mean):
        share = axis.share(value)
        if share != share:  # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop
            previous = -1
            continue
        dot = int((1 - share) * last_dot + 0.5)
        span: Iterable[int] = (dot,)
        if previous >= 0 and abs(dot - previous) > 1:
            step = 1 if dot > previous else -1
            span = range(previous + step, dot + step, step)
        half = _DOTS[index % 2]
        for y in span:
            key = index // 2, y // 4
            dots[key] = dots.get(key, 0) | half[y % 4]
        previous = dot
    return dots


def _areas(curve: PlotCurve, axis: ValueAxis, rows: int, role: str) -> list[Row]:
    """Return the area and the band, with edges at an eighth of a cell."""
    fill, band = Tint(role, FILL) if axis.low == 0 else None, Tint(role, BAND)
    picture: list[Row] = [[EMPTY] * (len(curve.mean) // 2) for _ in range(rows)]
    # A block in the color of its own background: visible if there are no colors.
    band_cell, fill_cell = PaintedCell("█", band, band), PaintedCell(" ", None, fill)
    scale = 8 * rows
    for column in range(len(curve.mean) // 2):
        pair = slice(2 * column, 2 * column + 2)
        lows = [value for value in curve.low[pair] if value == value]
        highs = [value for value in curve.high[pair] if value == value]
        if not lows or not highs:
            continue
        bottom, top = round(axis.share(min(lows)) * scale), round(axis.share(max(highs)) * scale)
        if fill is None and bottom == top:
            continue
        for row in range(rows):
            base = 8 * (rows - 1 - row)
            if base >= top:
                continue
            if base + 8 <= bottom:
                if fill is not None:
                    picture[row][column] = fill_cell
            elif base >= bottom and base + 8 <= top:
                picture[row][column] = band_cell
            else:
                picture[row][column] = _edge(max(0, bottom - base), min(8, top - base), fill, band)
    return picture


@lru_cache(maxsize=1024)
def _edge(bottom: int, top: int, fill: Tint | None, band: Tint) -> PaintedCell:
    """Return the cell in which an area ends, in eighths from the bottom; if it has three parts, the smallest is
    dropped.
    """
    parts = ((bottom, fill), (top - bottom, band), (8 - top, None))
    visible = [(size, tint) for size, tint in parts if size > 0]
    if len(visible) == 3:
        del visible[min(range(3), key=lambda index: visible[index][0])]
    if len(visible) == 1:
        return PaintedCell(" " if visible[0][1] != band else "█", visible[0][1], visible[0][1])
    (size, below), (_, above) = visible
    if below is None:  # band without area below: the band is the background, and the page color the ink
        return PaintedCell(EIGHTHS[min(7, size)], Tint("ground"), above)
    if below == above:
        return PaintedCell(" ", below, below)
    return PaintedCell(EIGHTHS[min(7, max(1, size))], below, above)


def _ground_of(cell: PaintedCell) -> Tint | None:
    """Return the tint that covers most of a cell."""
    if cell.glyph in EIGHTHS[1:]:
        ink = None if cell.ink == Tint("ground") else cell.ink
        return ink if EIGHTHS.index(cell.glyph) >= 4 else cell.ground
    return cell.ground


class Average(NamedTuple):
    """Mean, minimum and maximum of known values; NaN if there are none."""

    mean: float
    low: float
    high: float
    seconds: float
    """Seconds with known values."""


def average(curve: PlotCurve, columns: Grid, begin: float, end: float) -> Average:
    """Return the average of a curve from `begin` to `end` (s since 1970); the curve's `columns` may extend beyond."""
    grid = halves(columns)
    lengths = [min(edge + grid.step, end) - max(edge, begin) for edge in _begins(grid, len(curve.mean))]
    weighted = [
        (value, length) for value, length in zip(curve.mean, lengths, strict=True) if length > 0 and is_known(value)
    ]
    seconds = fsum(length for _, length in weighted)
    mean = fsum(value * length for value, length in weighted) / seconds if seconds > 0 else nan
    lows, highs = (_values_in_window(line, lengths) for line in (curve.low, curve.high))
    return Average(mean, min(lows, default=nan), max(highs, default=nan), seconds)


def span_text(seconds: float, window: float, step: float) -> str:
    """Return the duration that an average covers: `10 min`, or `5 min 18 s` if less of the window has values.

    If less than `step` seconds are missing, it counts as complete, because times are rounded and a sample is still due.
    """
    if not 0 < seconds < window - step:
        return window_text(window)
    total = round(seconds)
    for (large, size), (small, part) in (
        (("d", 86400), ("h", 3600)),
        (("h", 3600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if total >= size:
            remainder = total % size // part
            return f"{total // size} {large}" + (f" {remainder} {small}" if remainder else "")
    return f"{total} s"


def _begins(grid: Grid, count: int) -> Iterator[float]:
    return ((grid.first + index) * grid.step for index in range(count))


def _values_in_window(values: Sequence[float], lengths: Sequence[float]) -> list[float]:
    return [value for value, length in zip(values, lengths, strict=True) if length > 0 and is_known(value)]


_MARGIN = 1e-3
"""Share of a bucket by which a sample may precede it, as in grids."""


class _CachedBuckets(NamedTuple):
    """Cached buckets of some metrics of a subject."""

    grid: Grid
    complete_until: int
    """Index of the first bucket that may still change."""
    begin: float
    """Start of the history at the time of the query."""
    curves: Mapping[str, PlotCurve]
    arguments: tuple[Grid, float, float, float]
    """Arguments of the last query: columns, end time, and the history's end and start.

    Equal arguments return the cached result.
    """


class Columns:
    """Cached buckets by subject, two per column, up to the last column that has started."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, tuple[str, ...]], _CachedBuckets] = {}

    def clear(self) -> None:
        """Clear the cache."""
        self._buckets.clear()

    def get(
        self, history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, *, until: float, interval: float
    ) -> Mapping[str, PlotCurve]:
        """Return the metrics of a subject on `grid`, without buckets that start at `until` (s since 1970) or later."""
        cache_key, fine = (subject, tuple(metrics)), halves(grid)
        cached = self._buckets.get(cache_key)
        first, newest = fine.first, (fine, until, history.end, history.begin)
        if cached and str(cached.arguments) == str(newest):
            return cached.curves
        if cached and cached.grid.step == fine.step and cached.grid.first <= first and not history.begin < cached.begin:
            first = min(max(first, cached.complete_until), first + fine.buckets)
        else:
            cached = None
        end_of_started = max(first, min(fine.first + fine.buckets, floor(until / fine.step - _MARGIN) + 1))
        queried = _query(history, subject, metrics, Grid(first, fine.step, end_of_started - first), interval)
        empty = [nan] * (fine.first + fine.buckets - end_of_started)
        # Drop columns the history no longer contains, because the cursor could not read them.
        dropped = min(first - fine.first, max(0, fine.at(history.begin))) if is_known(history.begin) else 0
        dropped_values = [nan] * dropped
        curves = {}
        for name in metrics:
            cached_curve = cached.curves[name] if cached else None
            overlap = slice(fine.first + dropped - cached.grid.first, first - cached.grid.first) if cached else slice(0)
            lines = [
                (*dropped_values, *(cached_curve[line][overlap] if cached_curve else ()), *queried[name][line], *empty)
                for line in range(3)
            ]
            curves[name] = PlotCurve(*lines)
        # A bucket finer than the sampling interval is complete only when the next sample has arrived.
        complete_until = floor((min(until, history.end) - HOLD * interval) / fine.step)
        for cached_key in [
            cached_key for cached_key in self._buckets if cached_key[0] == subject and cached_key != cache_key
        ]:
            del self._buckets[cached_key]
        self._buckets[cache_key] = _CachedBuckets(
            fine, min(complete_until, end_of_started), history.begin, curves, newest
        )
        return curves


def _query(
    history: TieredHistory, subject: str, metrics: Sequence[str], grid: Grid, interval: float, margin: float = 0.0
) -> Mapping[str, PlotCurve]:
    if grid.buckets <= 0:
        return {name: PlotCurve((), (), ()) for name in metrics}
    begin, end = grid.begin - max(margin, _MARGIN * grid.step), grid.end + margin
    series_by_name = history.query(Query(subject, tuple(metrics), begin, end, grid=grid, hold=HOLD * interval))
    return {name: PlotCurve(series.low, series.mean, series.high) for name, series in series_by_name.items()}


def at_column(
    history: TieredHistory, subject: str, metrics: Sequence[str], column: Grid, interval: float
) -> Mapping[str, tuple[float, float, float]]:
    """Return minimum, mean and maximum of a column as stored in the history.

    If columns are shorter than the sampling interval, values are interpolated, like the line in the chart.
    """
    curves = _query(history, subject, metrics, column, interval, HOLD * interval if column.step < interval else 0.0)
    return {name: (curve.low[0], curve.mean[0], curve.high[0]) for name, curve in curves.items()}
