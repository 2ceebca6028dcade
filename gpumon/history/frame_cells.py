"""Cells of frames that no file has yet: those of the ring, made as the daemon will make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan

from gpumon.clock import SECOND
from gpumon.frame import Frame
from gpumon.history.block import MetricCells
from gpumon.history.cell import HistoryCell, weights
from gpumon.history.collect import Block, Collector, SubjectValues, TickValues, columns_of
from gpumon.history.line import Line
from gpumon.history.query import HOST
from gpumon.history.tiers import SHAPES
from gpumon.metrics import Availability

FINEST = SHAPES[0]
FrameCells = Mapping[str, Mapping[int, HistoryCell]]
"""By subject, cells of the finest tier by their number since 1970."""


def frame_cells(frames: Iterable[Frame]) -> FrameCells:
    """Return the cells of frames, which come in order; the first one and the last one may be parts."""
    found: dict[str, dict[int, HistoryCell]] = {}

    def take(block: Block) -> None:
        if block.shape is FINEST:
            cells = found.setdefault(block.subject, {})
            cells.update({block.number * FINEST.cells + place: cell for place, cell in block.cells.items()})

    collector = Collector(take)
    for frame in frames:
        collector.add(_values_of(frame))
    collector.finish()
    return found


def lines_of(cells: FrameCells, subject: str, metrics: Sequence[str]) -> dict[str, Line]:
    """Return lines of some metrics of a subject; none where it has no cells."""
    own = cells.get(subject, {})
    if not own:
        return {}
    columns = columns_of(subject)
    first, count = min(own), max(own) - min(own) + 1
    seconds = {number: weights(cell, columns.counters) for number, cell in own.items()}
    found = {}
    for name in metrics:
        place = columns.names.index(name)
        low, mean, high, last, known = ([nan] * count for _ in MetricCells._fields)
        for number, cell in own.items():
            at = number - first
            low[at], mean[at], high[at], last[at] = (
                cell.low[place],
                cell.mean[place],
                cell.high[place],
                cell.last[place],
            )
            known[at] = seconds[number][place]
        found[name] = Line(FINEST.step, first, first + count)
        found[name].fill(first, MetricCells(low, mean, high, last, known))
    return found


def _values_of(frame: Frame) -> TickValues:
    """The part of a frame that history keeps, as `values_of` gives it of a tick."""
    rows = [SubjectValues(HOST, frame.host, frame.monotonic_ns)]
    for sample in frame.samples:
        if sample.state is Availability.OK:
            read = sample.counters_monotonic_ns or sample.monotonic_ns or frame.monotonic_ns
            rows.append(SubjectValues(sample.device.uuid, sample.values, read))
    return TickValues(round(frame.time * SECOND), frame.monotonic_ns, round(frame.interval * SECOND), rows)
