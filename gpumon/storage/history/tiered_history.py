"""`TieredHistory` answers queries from the last frames and, for earlier times, from tiers such as the history file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import ceil, floor, nan

from gpumon.common.numbers import is_known
from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.folded_frames import FoldedFrames
from gpumon.storage.history.query import ALWAYS, HOST, CoarseCells, Query, Series, Tier, unknown
from gpumon.storage.history.recent import KEEP, RecentHistory
from gpumon.storage.history.tiers import TierShape
from gpumon.storage.history.time_slices import (
    TimeSlice,
    cell_numbers,
    coarse_parts,
    deciding_steps,
    limit_coarse_tiers,
    unobserved,
)


class StoredTier:
    """A tier of the history file: cells of the same length."""

    def __init__(self, file: HistoryFile, shape: TierShape) -> None:
        self._file = file
        self._shape = shape

    @property
    def step(self) -> float:
        """Length of a cell in seconds."""
        return float(self._shape.step)

    @property
    def begin(self) -> float:
        """Start of the tier's data (s since 1970); NaN if it is empty."""
        return self._file.time_range(self._shape).begin

    @property
    def end(self) -> float:
        """End of the tier's data (s since 1970); NaN if it is empty."""
        return self._file.time_range(self._shape).end

    def has(self, subject: str, metric: str) -> bool:
        """Return whether the newest block of the subject has a value of this metric."""
        return metric in self._file.metrics(self._shape, subject)

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query, on the query's grid. Missing values are NaN."""
        assert query.grid is not None, "tiers need a grid"
        lines = self._file.lines(self._shape, query.subject, query.metrics)
        gap = unknown(query.grid)
        return {
            name: lines[name].buckets(query.grid, query.begin, query.end) if name in lines else gap
            for name in query.metrics
        }

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        """Return, for each cell between two times (s since 1970), the number of seconds that have data.

        Cells that lie only partly between the two times are included.
        """
        own = self._file.lines(self._shape, query.subject, query.metrics)
        lines = [*own.values(), *self._file.lines(self._shape, HOST, [ALWAYS]).values()]
        return [
            max((line.seconds(number) for line in lines), default=0.0)
            for number in cell_numbers(begin, end, self._shape.step)
        ]


_FINEST = 1.0
"""Minimum length in seconds of a bucket if all data comes from frames. There is one frame per second."""


class TieredHistory(RecentHistory):
    """The last frames, combined with `tiers` for older times. `tiers` are ordered from the finest to the coarsest.

    Frames are used for the time that they cover. For earlier times, the coarsest tier whose cells are not longer than
    the requested buckets is used. Where this tier has no data, another tier is used. Without a history file, frames
    beyond `keep` are reduced to a tier in memory.
    """

    def __init__(
        self, tiers: Iterable[Tier] = (), keep: int = KEEP, file: HistoryFile | None = None,
        metrics: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        self._file = file
        self._file_tiers = tuple(tiers)
        self._folded = FoldedFrames()
        super().__init__(keep, metrics)

    def clear(self) -> None:
        """Remove all frames, for example because the clock was set back. The history file is not changed."""
        super().clear()
        self._folded = FoldedFrames()

    @property
    def _tiers(self) -> Sequence[Tier]:
        """Tiers for the time before the frames, from the finest to the coarsest."""
        if not is_known(self._folded.begin):
            return self._file_tiers
        return sorted((*self._file_tiers, self._folded), key=lambda tier: tier.step)

    @property
    def begin(self) -> float:
        """Start of the history (s since 1970); NaN if it is empty."""
        begins = [super().begin, *(span.begin for span in self._tier_ranges())]
        return min((begin for begin in begins if is_known(begin)), default=nan)

    def has(self, subject: str, metric: str) -> bool:
        """Return whether there is any value of this metric."""
        return super().has(subject, metric) or any(tier.has(subject, metric) for tier in self._tiers)

    def without_frames(self) -> TieredHistory:
        """Return a history without frames that reads the same file."""
        history = copy(self)
        history.clear()
        return history

    def set_path(self, path: str) -> None:
        """Use the history file at `path` for older times. An empty path means that there is no file."""
        if self._file is not None:
            self._file.set_path(path)

    @property
    def problem(self) -> str:
        """Reason why the history file cannot be read. Empty if it can be read, or if there is no file."""
        return self._file.problem if self._file is not None else ""

    def finer(self, step: float) -> Sequence[Tier]:
        """Return the tiers whose cells are shorter than `step` seconds, finest first."""
        return [tier for tier in self._tiers if tier.step < step]

    def close(self) -> None:
        """Close the history file. The next query opens it again."""
        if self._file is not None:
            self._file.close()

    def whole(self, subject: str) -> TieredHistory:
        """Return a copy with one subject and all its metrics. Another thread may read the copy.

        The copy uses the same tiers.
        """
        history = TieredHistory(self._tiers, self.keep)
        history.move_from(self.only(subject))
        return history

    def query(self, query: Query) -> Mapping[str, Series]:
        """Return a series for each metric of the query. All series have the same times. Missing values are NaN."""
        spans = self._spans(query)
        if all(span.has_frames for span in spans):
            return super().query(query)
        wanted = (spans[-1].end - query.begin) / max(1, query.points)
        cells = deciding_steps(spans, wanted) or {_FINEST}
        grid = query.grid or aligned(spans[0].begin, spans[-1].end, query.points, cells)
        parts: list[tuple[TimeSlice, Mapping[str, Series]]] = []
        for span, extended in zip(spans, spans if query.seen else _extend_to_cells(spans, query.grid), strict=True):
            part = query._replace(begin=extended.begin, end=extended.end, grid=grid)
            if span.tier is not None:
                parts.append((span, span.tier.query(part)))
            elif span.is_observed:
                parts.append((span, super().query(part)))
            else:
                parts.append((span, dict.fromkeys(query.metrics, unknown(grid))))
        coarse = coarse_parts(spans, grid.step)
        joined = {name: _join(grid, [(span, series[name]) for span, series in parts]) for name in query.metrics}
        return {name: series._replace(coarse=coarse) for name, series in joined.items()}

    def coarse(self, query: Query) -> Sequence[CoarseCells]:
        """Return the periods of the query for which only cells are stored that are longer than the requested buckets.

        The query must have a `grid`.
        """
        assert query.grid is not None, "samples are never coarse"
        return coarse_parts(self._spans(query), query.grid.step)

    def peak(self, subject: str, metric: str, begin: float, end: float) -> float:
        """Return the highest value between two times (s since 1970); NaN if there is no value."""
        if not begin < self.first_frame:
            return super().peak(subject, metric, begin, end)
        highs = self.query(Query(subject, (metric,), begin, end))[metric].high
        return max((high for high in highs if is_known(high)), default=nan)

    def _trim(self) -> None:
        """Remove the oldest rows. Without a history file, merge them into cells first."""
        if self._file is not None and self._file.path:
            super()._trim()
            return
        rows = self._folded.add(self._times[: len(self._times) - self.keep], self._columns, self._pauses)
        if rows > 1:
            self._drop_oldest(rows - 1)  # keep the last of these rows, because it is valid until the next row

    def _spans(self, query: Query) -> list[TimeSlice]:
        """Return the slices of the query's window in chronological order, each with the tier that answers it."""
        frames = self.first_frame
        if query.begin >= frames or not self._tiers:
            return []
        ranges = self._tier_ranges()
        newest = [self.end] if is_known(frames) else [span.end for span in ranges]
        until = min(query.end, query.grid.end if query.grid else max(newest, default=query.begin))
        wanted = query.grid.step if query.grid else (until - query.begin) / max(1, query.points)
        fine = [span for span in ranges if span.step <= wanted]
        # Prefer tiers that are sufficiently fine, coarsest first, because this reads the least data. Then use the
        # others, finest first.
        order = [*reversed(fine), *ranges[len(fine) :]]
        slices = [TimeSlice(0.0, frames, until)] if is_known(frames) and frames <= until else []
        free = [(query.begin, min(until, frames) if is_known(frames) else until)]
        for span in order:
            left = []
            for begin, end in free:
                first, last = max(begin, span.begin), min(end, span.end)
                if first < last:
                    slices.append(replace(span, begin=first, end=last))
                    left += [(begin, first), (last, end)]
                else:
                    left.append((begin, end))
            free = [(begin, end) for begin, end in left if begin < end]
        begin = max(query.begin, self.begin)
        if slices and begin < (first := min(span.begin for span in slices)):
            slices.append(unobserved(begin, first))
        return limit_coarse_tiers(sorted(slices, key=lambda span: span.begin), query, wanted, self.seconds_of_frames)

    def _tier_ranges(self) -> list[TimeSlice]:
        """Return the time covered by each tier, from the finest to the coarsest."""
        return _clip_outer_cells(
            [TimeSlice(tier.step, tier.begin, tier.end, tier) for tier in self._tiers if is_known(tier.begin)]
        )


def _clip_outer_cells(tiers: Sequence[TimeSlice]) -> list[TimeSlice]:
    """Return the times that tiers cover (finest first), with the first and the last cell of coarse tiers shortened.

    If a daemon started or was killed within a cell of five minutes, the cell covers minutes without a daemon. If the
    finer tier starts or ends within that cell, it has all data of the cell. The cell is then shortened to the time of
    the finer tier.
    """
    clipped: list[TimeSlice] = []
    for span in tiers:
        if clipped:
            fine = clipped[-1]
            if 0.0 < fine.begin - span.begin < span.step:
                span = replace(span, begin=fine.begin)
            if 0.0 < span.end - fine.end < span.step:
                span = replace(span, end=fine.end)
        clipped.append(span)
    return clipped


def _extend_to_cells(spans: Sequence[TimeSlice], grid: Grid | None) -> list[TimeSlice]:
    """Return the slices with the start and end of the window moved outward to the borders of cells.

    So a window that lies within one cell shows this cell. If cells are not longer than the buckets of a requested
    `grid`, the start or end is not moved.
    """
    extended, least = list(spans), grid.step if grid else 0.0
    if (step := extended[0].step) > least:
        extended[0] = replace(extended[0], begin=floor(extended[0].begin / step) * step)
    if (step := extended[-1].step) > least:
        extended[-1] = replace(extended[-1], end=ceil(extended[-1].end / step) * step)
    return extended


def _join(grid: Grid, parts: Sequence[tuple[TimeSlice, Series]]) -> Series:
    """Join the series of consecutive slices. All series are on `grid`. Two slices may share a bucket."""
    (span, series), *others = parts
    if not others:
        return series
    low, mean, high = list(series.low), list(series.mean), list(series.high)
    done, share = _last_bucket(grid, span.end), _seconds_in_bucket(grid, span)
    for span, series in others:
        first, last = max(0, grid.at(span.begin)), _last_bucket(grid, span.end)
        if first == done and is_known(mean[first]) and is_known(series.mean[first]):
            part = _seconds_in_bucket(grid, span, first)
            low[first], high[first] = min(low[first], series.low[first]), max(high[first], series.high[first])
            mean[first] += (series.mean[first] - mean[first]) * part / (share + part)
            first += 1
        elif first == done and is_known(mean[first]):
            first += 1
        rest = slice(first, last + 1)
        low[rest], mean[rest], high[rest] = series.low[rest], series.mean[rest], series.high[rest]
        done, share = last, _seconds_in_bucket(grid, span)
    return Series(series.times, low, mean, high, grid.step, _sum_seen([part for _, part in parts]))


def _sum_seen(parts: Sequence[Series]) -> Sequence[float]:
    """Return, for each bucket, the number of seconds with a value, summed over the parts.

    Empty if one of the parts does not have these numbers.
    """
    if not all(part.seen for part in parts):
        return ()
    return [sum(seconds) for seconds in zip(*(part.seen for part in parts), strict=True)]


def _last_bucket(grid: Grid, end: float) -> int:
    """Return the index of the last bucket of a slice that ends at `end` (s since 1970)."""
    return min(grid.buckets - 1, grid.at(end))


def _seconds_in_bucket(grid: Grid, span: TimeSlice, bucket: int | None = None) -> float:
    """Return the seconds of a slice that lie in a bucket, by default in the slice's last bucket."""
    begin = grid.begin + (_last_bucket(grid, span.end) if bucket is None else bucket) * grid.step
    return max(min(begin + grid.step, span.end) - max(begin, span.begin), 1e-9)
