"""The open blocks of the tiers: cells are folded into those of the next tier, and full blocks are handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpumon.storage.history.cell import HistoryCell, fold
from gpumon.storage.history.counters import Grown
from gpumon.storage.history.sample_cells import EvenCells, SampleCells
from gpumon.storage.history.tiers import SHAPES, TierShape, columns_of


class Block(NamedTuple):
    """Cells of one subject that are written together, by their place in the block."""

    shape: TierShape
    number: int
    subject: str
    cells: Mapping[int, HistoryCell]


class FinestTier:
    """The open blocks of the finest tier. They have whole cells of the next tier, which are folded from them.

    There is one, and for a few seconds also the one before it, while counters are behind: a slow one is read seldom.
    """

    def __init__(self, write: Callable[[Block], object]) -> None:
        self._write = write
        self._coarser = _CoarseTier(SHAPES[1], write, _CoarseTier(SHAPES[2], write, None))
        self._shape = SHAPES[0]
        self._group = SHAPES[1].step // SHAPES[0].step
        """Cells in a cell of the next tier."""
        self._folded = 0
        """Number of the first group of which the cells are not folded yet."""
        self._blocks: dict[int, dict[str, SampleCells]] = {}
        """By number, then by subject."""
        self.first_open = 0
        """Number of the first block that is not handed over."""

    def take(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Take the cells of one time; they come in order."""
        for subject, cell in cells.items():
            self._of(number, subject).put(number % self._shape.cells, cell)

    def take_even(self, number: int, cells: Mapping[str, EvenCells]) -> None:
        """Take some cells of each subject, from one of this number on; all are in the same block."""
        for subject, even in cells.items():
            self._of(number, subject).put_even(number % self._shape.cells, even)

    def grow(self, number: int, subject: str, grown: Grown) -> None:
        """Add growth to a cell that was taken without it; nothing where that is handed over, or folded."""
        if number < self._folded * self._group:
            return
        cells, place = self._of(number, subject), number % self._shape.cells
        cells.put(place, cells.grown(place, grown))

    def reach(self, since: int) -> None:
        """Hand over what is full before the cell of this number: none comes before it any more, nor is any changed."""
        group, block = since // self._group, since // self._shape.cells
        if block > self.first_open:
            for old in sorted(one for one in self._blocks if one < block):
                self._hand_over(old)
            self._folded = max(self._folded, block * self._shape.cells // self._group)
            self.first_open = block
        if group > self._folded and self._has_others(block, group):
            self._fold(block, group)  # they take room until then

    def finish(self) -> None:
        """Hand over what is open, here and in the tiers behind."""
        for block in sorted(self._blocks):
            self._hand_over(block)
        self._coarser.finish()
        self._folded = self.first_open = 0

    def _of(self, number: int, subject: str) -> SampleCells:
        block = self._blocks.setdefault(number // self._shape.cells, {})
        if subject not in block:
            columns = columns_of(subject)
            block[subject] = SampleCells(self._shape.cells, len(columns.names), columns.counters)
        return block[subject]

    def _hand_over(self, block: int) -> None:
        per_block = self._shape.cells // self._group
        self._folded = max(self._folded, block * per_block)
        self._fold(block, (block + 1) * per_block)
        for subject, cells in self._blocks.pop(block).items():
            self._write(Block(self._shape, block, subject, cells))

    def _has_others(self, block: int, group: int) -> bool:
        """Whether there are cells, not folded yet, before those of this group that are not of one sample each."""
        begin = self._folded * self._group % self._shape.cells
        end = begin + (group - self._folded) * self._group
        return any(cells.has_others(begin, end) for cells in self._blocks.get(block, {}).values())

    def _fold(self, block: int, until: int) -> None:
        """Fold the groups of an open block before this one, many at once."""
        first, size = self._folded, self._group
        begin = first * size - block * self._shape.cells
        end = begin + (until - first) * size
        folded = {name: cells.folded(begin, end, size) for name, cells in self._blocks.get(block, {}).items()}
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
