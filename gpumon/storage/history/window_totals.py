"""Totals of each GPU over a window: energy, utilization, throttling, memory, links and errors.

The history stores the counters themselves, so sums are exact for the time in which the GPU was sampled. Nothing is
extrapolated. A total covers only the time with data and also contains the number of seconds without data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from math import ceil, floor, inf, nan
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS
from gpumon.model.frame import Frame
from gpumon.model.metrics import BY_NAME, GPU_METRICS, Unit
from gpumon.storage.history.block import MetricCells
from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.counters import PAUSE
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.metric_series import Line, SparseLine
from gpumon.storage.history.tier_aggregator import Aggregator, Block, values_from_frame
from gpumon.storage.history.tiers import SHAPES, columns_of

_COMPLETE = 0.999
"""Finer cells count as complete if their values are known for at least this fraction of the time in which the coarse
cell's value is known. The fraction is below 1 because seconds are stored with seven digits.
"""
_CLOSE = 1e-6
"""A time that differs from the end of a cell by at most this many seconds counts as equal to it."""


class WindowSum(NamedTuple):
    """The sum of a metric over a window of time, and its lowest and highest value."""

    total: float = 0.0
    """Sum of value times seconds; for a counter, its growth."""
    known: float = 0.0
    """Seconds of the window in which the value is known."""
    shared: float = 0.0
    """Seconds of `known` in cells that lie only partly within the window. Such a cell counts by the fraction that lies
    within."""
    high: float = -inf
    """Highest value. A cell that lies partly within the window counts with the highest value of the whole cell."""
    low: float = inf
    """Lowest value. A cell that lies partly within the window counts with the lowest value of the whole cell."""


_NONE = WindowSum()


def window_sum(lines: Sequence[Line], begin: float, end: float) -> WindowSum:
    """Return the sum of a metric from `begin` to `end` (s since 1970).

    `lines`: the cells of the metric in each tier, from the finest to the coarsest. Time that is missing in one tier is
    taken from the next. A cell that lies only partly in the window counts by the fraction that lies within.
    """
    if not lines or not begin < end:
        return _NONE
    return _add_up(_split(lines, begin, end))


def _split(lines: Sequence[Line], begin: float, end: float) -> Iterator[WindowSum]:
    step = lines[-1].step
    first, last = ceil((begin - _CLOSE) / step), floor((end + _CLOSE) / step)
    if first > last:
        yield _partial_cell(lines, last, begin, end)
        return
    if begin < first * step - _CLOSE:
        yield _partial_cell(lines, first - 1, begin, first * step)
    yield from _prefer_finer(lines, first, last)
    if last * step < end - _CLOSE:
        yield _partial_cell(lines, last, last * step, end)


def _prefer_finer(lines: Sequence[Line], first: int, last: int) -> Iterator[WindowSum]:
    """Yield the sums of whole coarse cells from number `first` to `last` (not included).

    If finer cells are complete, they are used instead.
    """
    *finer, line = lines
    for begin, end in _covered_ranges(finer, line.step):
        begin, end = max(begin, first), min(end, last)
        if begin < end:
            yield _whole_cells(line, first, begin)
            for number in range(begin, end):
                own = _whole_cells(line, number, number + 1)
                fine = window_sum(finer, number * line.step, (number + 1) * line.step)
                yield fine if fine.known >= _COMPLETE * own.known else own
            first = end
    yield _whole_cells(line, first, last)


def _covered_ranges(lines: Iterable[Line], step: int) -> list[tuple[int, int]]:
    """Return the ranges of the cells of `step` seconds in which these lines have data, as first and end number."""
    spans = {
        (cells.start * line.step // step, -(-cells.stop * line.step // step))
        for line in lines
        for cells in line.ranges()
    }
    return sorted(spans)


def _partial_cell(lines: Sequence[Line], number: int, begin: float, end: float) -> WindowSum:
    """Return the sum of the part of a coarse cell from `begin` to `end` (s since 1970).

    Finer cells are used where they exist. What they lack of the sum of the coarse cell is assumed to be spread evenly
    over the time without finer data.
    """
    *finer, line = lines
    own = _whole_cells(line, number, number + 1)
    fine = window_sum(finer, begin, end)
    whole = window_sum(finer, number * line.step, (number + 1) * line.step)
    if whole.known >= _COMPLETE * own.known:
        return fine
    share = min(max(0.0, end - begin - fine.known) / max(line.step - whole.known, _CLOSE), 1.0)
    known = (own.known - whole.known) * share
    total = max(0.0, own.total - whole.total) * share
    high, low = max(fine.high, own.high), min(fine.low, own.low)
    return WindowSum(fine.total + total, fine.known + known, fine.shared + known, high, low)


def _whole_cells(line: Line, first: int, last: int) -> WindowSum:
    """Return the sum of whole cells from number `first` to `last` (not included)."""
    part = line.part(first, last)
    weight = line.weight[part]
    known = sum(weight)
    return WindowSum(sum(line.total[part]), known, 0.0, max(line.high[part]), min(line.low[part])) if known else _NONE


def _add_up(parts: Iterator[WindowSum]) -> WindowSum:
    total, known, shared, high, low = _NONE
    for part in parts:
        total, known, shared, high, low = (
            total + part.total, known + part.known, shared + part.shared, max(high, part.high), min(low, part.low),
        )  # fmt: skip
    return WindowSum(total, known, shared, high, low)


FINEST = SHAPES[0]
FrameCells = Mapping[str, Mapping[int, HistoryCell]]
"""Cells of the finest tier by subject and by number since 1970."""


def frame_cells(frames: Iterable[Frame]) -> FrameCells:
    """Return cells built from frames, which must be in order. The first and the last cell may be incomplete."""
    cells_by_subject: dict[str, dict[int, HistoryCell]] = {}

    def add(block: Block) -> None:
        if block.shape is FINEST:
            cells = cells_by_subject.setdefault(block.subject, {})
            cells.update({block.number * FINEST.cells + index: cell for index, cell in block.cells.items()})

    aggregator = Aggregator(add)
    for frame in frames:
        aggregator.add(values_from_frame(frame))
    aggregator.finish()
    return cells_by_subject


def frame_lines(cells: FrameCells, subject: str, metrics: Sequence[str]) -> dict[str, SparseLine]:
    """Return the lines of the given metrics of a subject, by metric. Empty if there are no cells of the subject."""
    own = sorted(cells.get(subject, {}).items())
    if not own:
        return {}
    names = columns_of(subject).names
    numbers, cells_of_subject = zip(*own, strict=True)
    lines = {}
    for name in metrics:
        index = names.index(name)
        columns = ([values[index] for values in column] for column in zip(*cells_of_subject, strict=True))
        lines[name] = SparseLine(FINEST.step, numbers, MetricCells(*columns))
    return lines


_MAX_MISSING = 0.002
"""A total counts as complete if at most this fraction of the window is missing."""
THROTTLED = tuple(metric.name for metric in GPU_METRICS if metric.name.startswith("gpu.throttled_"))


@dataclass(frozen=True, slots=True)
class Total:
    """The sum, mean or peak of a metric over a window."""

    value: float
    """Value over the time with data; NaN if there is no data."""
    seconds: float
    """Length of the window in seconds."""
    missing_seconds: float
    """Seconds of the window without data."""
    estimated_seconds: float = 0.0
    """Seconds in cells that lie only partly within the window. Such a cell counts by the fraction that lies within."""

    @property
    def missing_share(self) -> float:
        """Fraction of the window without data, from 0 to 1."""
        return self.missing_seconds / self.seconds if self.seconds > 0 else nan

    @property
    def is_complete(self) -> bool:
        """Whether data is missing for at most 0.2 % of the window."""
        return self.missing_share <= _MAX_MISSING


@dataclass(frozen=True, slots=True)
class TotalKind:
    """A total, which is a row of `TOTALS`."""

    name: str
    """Name of the total in JSON and CSV."""
    heading: str
    """Heading of its column in the table."""
    metric: str
    unit: Unit
    value: Callable[[WindowSum], float]
    """Function that computes the value from the sum of the metric."""
    keep: int = 5
    """Importance of the column. The least important columns are left out where there is little room."""


def _growth(window: WindowSum) -> float:
    return window.total


def _mean(window: WindowSum) -> float:
    return window.total / window.known


def _peak(window: WindowSum) -> float:
    return window.high


def _gauge_growth(window: WindowSum) -> float:
    """Return the growth of a gauge that only grows, such as lifetime errors. Growth during gaps is included."""
    return window.high - window.low


TOTALS: tuple[TotalKind, ...] = (
    TotalKind("energy", "ENERGY", "gpu.energy", Unit.JOULES, _growth, keep=9),
    TotalKind("utilization", "UTIL", "gpu.utilization", Unit.RATIO, _mean, keep=8),
    *(TotalKind(name.partition(".")[2], BY_NAME[name].column, name, Unit.RATIO, _mean) for name in THROTTLED),
    TotalKind("memory_peak", "MEM PEAK", "gpu.memory_used", Unit.BYTES, _peak, keep=7),
    TotalKind("pcie_sent", "PCI-TX", "gpu.pcie_sent", Unit.BYTES, _growth, keep=3),
    TotalKind("pcie_received", "PCI-RX", "gpu.pcie_received", Unit.BYTES, _growth, keep=3),
    TotalKind("nvlink_sent", "NVL-TX", "gpu.nvlink_sent", Unit.BYTES, _growth, keep=3),
    TotalKind("nvlink_received", "NVL-RX", "gpu.nvlink_received", Unit.BYTES, _growth, keep=3),
    TotalKind("ecc_corrected", "ECC-C", "gpu.ecc_corrected_lifetime", Unit.COUNT, _gauge_growth, keep=1),
    TotalKind("ecc_uncorrected", "ECC-U", "gpu.ecc_uncorrected_lifetime", Unit.COUNT, _gauge_growth, keep=4),
)
"""All totals. The totals of throttling are the fraction of time throttled, for each cause."""
_METRICS = tuple(dict.fromkeys(kind.metric for kind in TOTALS))


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """The totals of GPUs from `begin` to `end` (s since 1970)."""

    begin: float
    end: float
    devices: Mapping[str, Mapping[str, Total]]
    """Totals by UUID of the GPU, then by name in `TOTALS`, such as `energy` (J) or `throttled_sw_power` (share of the
    time)."""
    problem: str = ""
    """Reason why the history file cannot be read or why there is no data; else empty."""
    gpus: Sequence[Device] = ()
    """The GPUs sorted by index. An absent GPU has its last index and name."""


def gpu_totals(lines: Mapping[str, Sequence[Line]], begin: float, end: float) -> dict[str, Total]:
    """Return the totals of one GPU by name.

    `lines`: for each metric, its cells in each tier from the finest to the coarsest. `begin`, `end`: s since 1970.
    """
    sums = {name: window_sum(lines.get(name, ()), begin, end) for name in _METRICS}
    return {kind.name: _total(sums[kind.metric], kind, end - begin) for kind in TOTALS}


def window_totals(
    file: HistoryFile, frames: Sequence[Frame], begin: float, end: float, subjects: Iterable[str] = ()
) -> WindowTotals:
    """Return the totals from `begin` to `end` (s since 1970) from the history file and the newest frames.

    `subjects`: UUIDs of GPUs; by default every GPU that has data.
    """
    written = file.time_range(FINEST).end
    since = max(begin, written if is_known(written) else -inf)
    # Build complete cells at both ends of the window, because a partial cell would count only by its fraction.
    first, last = floor(max(since, 0.0) / FINEST.step) * FINEST.step, ceil(end / FINEST.step) * FINEST.step
    # Include readings before and after the window, which are needed for the growth at its ends if counters are late.
    newest = [*dropwhile(lambda frame: frame.time < first - _reach(frame), frames)]
    newest = [frame for frame in newest if frame.time <= last + _reach(frame)]
    cells = frame_cells(newest)
    known = dict.fromkeys(subjects) or dict.fromkeys([*file.subjects(begin, end), *filter(None, cells)])
    devices = {}
    for subject in known:
        tiers: list[Mapping[str, Line]] = [frame_lines(cells, subject, _METRICS)]
        tiers += [file.lines(shape, subject, _METRICS) for shape in SHAPES]
        lines = {name: [tier[name] for tier in tiers if name in tier] for name in _METRICS}
        devices[subject] = gpu_totals(lines, begin, end)
    return WindowTotals(begin, end, devices, file.problem)


def _reach(frame: Frame) -> float:
    """Return the maximum seconds between two readings of a counter between which it is assumed to grow evenly."""
    return max(PAUSE * frame.interval, FOLLOWS)


def _total(window: WindowSum, kind: TotalKind, seconds: float) -> Total:
    if not window.known:
        return Total(nan, seconds, max(seconds, 0.0))
    return Total(kind.value(window), seconds, max(0.0, seconds - window.known), min(window.shared, seconds))
