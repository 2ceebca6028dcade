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
        self._folded = 0
        """Number of the first group of which the cells are not folded yet."""
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
        self.reach(number + count)

    def reach(self, number: int) -> None:
        """Hand over what is full before the cell of this number: none comes before it any more."""
        group, block = number // self._group, self._next // self._shape.cells
        if number // self._shape.cells != block:
            self._fold((block + 1) * self._shape.cells // self._group)
            self._seal()
            self._folded = group
        elif group > self._folded and self._has_others(group):
            self._fold(group)  # they take room until then
        self._next = number

    def finish(self) -> None:
        """Hand over what is open, here and in the tiers behind."""
        self._fold((self._next // self._shape.cells + 1) * self._shape.cells // self._group)
        self._seal()
        self._coarser.finish()
        self._next = self._folded = 0

    def _of(self, subject: str) -> SampleCells:
        if subject not in self._cells:
            columns = columns_of(subject)
            self._cells[subject] = SampleCells(self._shape.cells, len(columns.names), columns.counters)
        return self._cells[subject]

    def _seal(self) -> None:
        for subject, cells in self._cells.items():
            self._write(Block(self._shape, self._next // self._shape.cells, subject, cells))
        self._cells = {}

    def _has_others(self, group: int) -> bool:
        """Whether there are cells, not folded yet, before those of this group that are not of one sample each."""
        begin = self._folded * self._group % self._shape.cells
        end = begin + (group - self._folded) * self._group
        return any(cells.has_others(begin, end) for cells in self._cells.values())

    def _fold(self, until: int) -> None:
        """Fold the groups of the open block before this one, many at once."""
        first, size = self._folded, self._group
        begin = first * size % self._shape.cells
        end = begin + (until - first) * size
        folded = {name: cells.folded(begin, end, size) for name, cells in self._cells.items()}
        for group in range(first, until):
            place = begin + (group - first) * size
            known = {name: cells[place] for name, cells in folded.items() if place in cells}
            if known:
                self._coarser.take(group, known)
        self._folded = until


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
