"""Cells of frames that no file has yet: those of the ring, made as the daemon will make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.history.block import MetricCells
from gpumon.history.cell import HistoryCell, weights
from gpumon.history.collect import Block, Collector, columns_of, values_of_frame
from gpumon.history.line import SparseLine
from gpumon.history.tiers import SHAPES
from gpumon.model.frame import Frame

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
    collector.add_all([*map(values_of_frame, frames)])
    collector.finish()
    return found


def lines_of(cells: FrameCells, subject: str, metrics: Sequence[str]) -> dict[str, SparseLine]:
    """Return lines of some metrics of a subject; none where it has no cells."""
    own = sorted(cells.get(subject, {}).items())
    if not own:
        return {}
    columns = columns_of(subject)
    numbers = [number for number, _ in own]
    seconds = [weights(cell, columns.counters) for _, cell in own]
    found = {}
    for name in metrics:
        place = columns.names.index(name)
        low, mean, high, last = (
            [values[place] for values in column] for column in zip(*(c[:4] for _, c in own), strict=True)
        )
        found[name] = SparseLine(FINEST.step, numbers, MetricCells(low, mean, high, last, [s[place] for s in seconds]))
    return found
