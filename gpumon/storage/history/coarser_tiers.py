"""The open blocks of each tier. Merges cells into cells of the next coarser tier, and passes full blocks on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpumon.storage.history.cell import HistoryCell, fold
from gpumon.storage.history.counters import Growth
from gpumon.storage.history.sample_cells import EvenCells, SampleCells
from gpumon.storage.history.tiers import SHAPES, TierShape, columns_of


class Block(NamedTuple):
    """Cells of one subject that are stored together, by their index in the block."""

    shape: TierShape
    number: int
    subject: str
    cells: Mapping[int, HistoryCell]


class FinestTier:
    """The open blocks of the tier with the shortest cells. Full blocks are passed to `write`.

    The cells that together form one cell of the next tier are called a group. A block contains only whole groups.
    Usually one block is open. At the end of a block, two are open for a few seconds, until counters that are read less
    often have been read again.
    """

    def __init__(self, write: Callable[[Block], object]) -> None:
        self._write = write
        self._coarser = _CoarseTier(SHAPES[1], write, _CoarseTier(SHAPES[2], write, None))
        self._shape = SHAPES[0]
        self._group_size = SHAPES[1].step // SHAPES[0].step
        """Number of cells in a group."""
        self._first_group = 0
        """Number of the first group that was not added to the next tier yet."""
        self._blocks: dict[int, dict[str, SampleCells]] = {}
        """Open blocks by number, then by subject."""
        self.first_open = 0
        """Number of the first block that was not passed to `write` yet."""

    def add(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Add one cell for each subject. `number` is the number of the cell since 1970.

        Calls must be in chronological order.
        """
        for subject, cell in cells.items():
            self._block_cells(number, subject).put(number % self._shape.cells, cell)

    def add_even(self, number: int, cells: Mapping[str, EvenCells]) -> None:
        """Add consecutive cells of each subject. `number`: number of the first cell. All must belong to one block."""
        for subject, even in cells.items():
            self._block_cells(number, subject).put_even(number % self._shape.cells, even)

    def add_growth(self, number: int, subject: str, growth: Growth) -> None:
        """Add growth of counters to a cell that was added without it.

        Does nothing if the cell has already been merged into the next tier.
        """
        if number < self._first_group * self._group_size:
            return
        cells, index = self._block_cells(number, subject), number % self._shape.cells
        cells.put(index, cells.with_growth(index, growth))

    def advance(self, cell: int) -> None:
        """Write the blocks that end before the cell with this number.

        After this call, cells before this number must not be added or changed.
        """
        group, block = cell // self._group_size, cell // self._shape.cells
        if block > self.first_open:
            for full in sorted(number for number in self._blocks if number < block):
                self._write_block(full)
            self._first_group = max(self._first_group, block * self._shape.cells // self._group_size)
            self.first_open = block
        if group > self._first_group and self._has_others(block, group):
            self._fold(block, group)  # cells of several samples need less memory after this

    def finish(self) -> None:
        """Write the open blocks of this tier and of all coarser tiers."""
        for block in sorted(self._blocks):
            self._write_block(block)
        self._coarser.finish()
        self._first_group = self.first_open = 0

    def _block_cells(self, number: int, subject: str) -> SampleCells:
        """Return the cells of a subject in the block with this cell."""
        block = self._blocks.setdefault(number // self._shape.cells, {})
        if subject not in block:
            columns = columns_of(subject)
            block[subject] = SampleCells(self._shape.cells, len(columns.names), columns.counters)
        return block[subject]

    def _write_block(self, block: int) -> None:
        per_block = self._shape.cells // self._group_size
        self._first_group = max(self._first_group, block * per_block)
        self._fold(block, (block + 1) * per_block)
        for subject, cells in self._blocks.pop(block).items():
            self._write(Block(self._shape, block, subject, cells))

    def _has_others(self, block: int, group: int) -> bool:
        """Return whether the open groups before `group` contain a cell that is not a single sample."""
        begin = self._first_group * self._group_size % self._shape.cells
        end = begin + (group - self._first_group) * self._group_size
        return any(cells.has_others(begin, end) for cells in self._blocks.get(block, {}).values())

    def _fold(self, block: int, end_group: int) -> None:
        """Merge the groups of an open block before number `end_group`, and add the results to the next tier."""
        first, size = self._first_group, self._group_size
        begin = first * size - block * self._shape.cells
        end = begin + (end_group - first) * size
        folded = {name: cells.fold(begin, end, size) for name, cells in self._blocks.get(block, {}).items()}
        for group in range(first, end_group):
            index = begin + (group - first) * size
            known = {name: cells[index] for name, cells in folded.items() if index in cells}
            if known:
                self._coarser.add(group, known)
        self._first_group = end_group


class _CoarseTier:
    """The open block of a coarser tier, and the open cell of the next tier."""

    def __init__(self, shape: TierShape, write: Callable[[Block], object], coarser: _CoarseTier | None) -> None:
        self._shape = shape
        self._write = write
        self._coarser = coarser
        self._block = 0
        self._cells: dict[str, dict[int, HistoryCell]] = {}
        self._group = 0
        self._grouped: dict[str, list[HistoryCell]] = {}

    def add(self, number: int, cells: Mapping[str, HistoryCell]) -> None:
        """Add the cell with this number of each subject. Calls must be in chronological order."""
        self._advance(number)
        index = number % self._shape.cells
        for subject, cell in cells.items():
            self._cells.setdefault(subject, {})[index] = cell
            if self._coarser is not None:
                self._grouped.setdefault(subject, []).append(cell)

    def finish(self) -> None:
        """Write the open blocks of this tier and of all coarser tiers."""
        self._write_block()
        if self._coarser is not None:
            self._fold(self._coarser)
            self._coarser.finish()
        self._block = self._group = 0

    def _advance(self, number: int) -> None:
        """Write the block and close the group that end before the cell with this number."""
        block = number // self._shape.cells
        if block != self._block:
            self._write_block()
            self._block = block
        if self._coarser is not None:
            group = number * self._shape.step // self._coarser._shape.step
            if group != self._group:
                self._fold(self._coarser)
                self._group = group

    def _write_block(self) -> None:
        for subject, cells in self._cells.items():
            self._write(Block(self._shape, self._block, subject, cells))
        self._cells = {}

    def _fold(self, coarser: _CoarseTier) -> None:
        if self._grouped:
            folded = {name: fold(cells, columns_of(name).counters) for name, cells in self._grouped.items()}
            coarser.add(self._group, folded)
        self._grouped = {}
