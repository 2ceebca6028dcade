"""The open blocks of the tiers: cells are folded into those of the next tier, and full blocks are handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpumon.history.cell import HistoryCell, fold
from gpumon.history.samples import EvenCells, SampleCells
from gpumon.history.tiers import SHAPES, TierShape, columns_of


class Block(NamedTuple):
    """Cells of one subject that are written together, by their place in the block."""

    shape: TierShape
    number: int
    subject: str
    cells: Mapping[int, HistoryCell]


class FinestTier:
    """The open block of the finest tier. Its blocks have whole cells of the next tier, which are folded from them."""

    def __init__(self, write: Callable[[Block], object]) -> None:
        self._write = write
        self._coarser = _CoarseTier(SHAPES[1], write, _CoarseTier(SHAPES[2], write, None))
        self._shape = SHAPES[0]
        self._group = SHAPES[1].step // SHAPES[0].step
        """Cells in a cell of the next tier."""
        self._next = 0
        """Number of the cell that is open."""
        self._cells: dict[str, SampleCells] = {}

    def take(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Take the cells of one time; they come in order."""
        self.reach(number)
        for subject, cell in cells.items():
            self._of(subject).put(number % self._shape.cells, cell)

    def take_even(self, number: int, count: int, cells: Mapping[str, EvenCells]) -> None:
        """Take `count` cells of each subject, from one of this number on; all are in the same block."""
        self.reach(number)
        for subject, even in cells.items():
            self._of(subject).put_even(number % self._shape.cells, even)
        for group in range(number // self._group, (number + count) // self._group):
            self.reach((group + 1) * self._group)

    def reach(self, number: int) -> None:
        """Hand over what is full before the cell of this number: none comes before it any more."""
        if number // self._group != self._next // self._group:
            self._fold()
        if number // self._shape.cells != self._next // self._shape.cells:
            self._seal()
        self._next = number

    def finish(self) -> None:
        """Hand over what is open, here and in the tiers behind."""
        self._fold()
        self._seal()
        self._coarser.finish()
        self._next = 0

    def _of(self, subject: str) -> SampleCells:
        if subject not in self._cells:
            columns = columns_of(subject)
            self._cells[subject] = SampleCells(self._shape.cells, len(columns.names), columns.counters)
        return self._cells[subject]

    def _seal(self) -> None:
        for subject, cells in self._cells.items():
            self._write(Block(self._shape, self._next // self._shape.cells, subject, cells))
        self._cells = {}

    def _fold(self) -> None:
        group = self._next // self._group
        begin = group * self._group % self._shape.cells
        folded = {name: cells.folded(begin, begin + self._group) for name, cells in self._cells.items()}
        known = {name: cell for name, cell in folded.items() if cell is not None}
        if known:
            self._coarser.take(group, known)


class _CoarseTier:
    """The open block of a coarser tier, and the open cell of the next one."""

    def __init__(self, shape: TierShape, write: Callable[[Block], object], coarser: _CoarseTier | None) -> None:
        self._shape = shape
        self._write = write
        self._coarser = coarser
        self._block = 0
        self._cells: dict[str, dict[int, HistoryCell]] = {}
        self._group = 0
        self._grouped: dict[str, list[HistoryCell]] = {}

    def take(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Take the cells of one time; they come in order."""
        self._reach(number)
        place = number % self._shape.cells
        for subject, cell in cells.items():
            self._cells.setdefault(subject, {})[place] = cell
            if self._coarser is not None:
                self._grouped.setdefault(subject, []).append(cell)

    def finish(self) -> None:
        """Hand over what is open, here and in the tiers behind."""
        self._seal()
        if self._coarser is not None:
            self._fold(self._coarser)
            self._coarser.finish()
        self._block = self._group = 0

    def _reach(self, number: int) -> None:
        """Hand over what is full before the cell of this number."""
        block = number // self._shape.cells
        if block != self._block:
            self._seal()
            self._block = block
        if self._coarser is not None:
            group = number * self._shape.step // self._coarser._shape.step
            if group != self._group:
                self._fold(self._coarser)
                self._group = group

    def _seal(self) -> None:
        for subject, cells in self._cells.items():
            self._write(Block(self._shape, self._block, subject, cells))
        self._cells = {}

    def _fold(self, coarser: _CoarseTier) -> None:
        if self._grouped:
            folded = {name: fold(cells, columns_of(name).counters) for name, cells in self._grouped.items()}
            coarser.take(self._group, folded)
        self._grouped = {}
