"""Columns, cells and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, overload

from rich.segment import Segment
from rich.style import Style

from gpumon.model.columns import Column
from gpumon.model.metrics import Unit
from gpumon_tui import theme
from gpumon_tui.render.text_width import width

FLEXIBLE = 12
"""Minimum width of a column that takes the remaining room."""


class TableColumn(NamedTuple):
    """A column; a `cells` of 0 takes the remaining room."""

    title: str
    cells: int
    right: bool = False
    keep: int = 0
    """Priority: the larger, the longer it is kept when there is no room."""
    preferred: int = 0
    """Preferred width if there is room; for a flexible column, the width it leaves to others with a preferred width."""
    minimum: int = FLEXIBLE
    """Minimum width of a flexible column; others are dropped to reach it."""


_CELLS: Mapping[Unit | None, int] = {
    Unit.RATIO: 5, Unit.BYTES: 9, Unit.SECONDS: 8, Unit.JOULES: 9, Unit.PER_SECOND: 7, Unit.COUNT: 7,
}  # fmt: skip
"""Width of the largest number of a unit, including a sign."""


def table_column(column: Column, cells: int = 0, wish: int = 0) -> TableColumn:
    """Return a column of `model.columns`, as wide as its numbers and heading, or `cells` wide."""
    width_cells = cells or max(_CELLS.get(column.unit, 9), width(column.short))
    return TableColumn(column.short, width_cells, column.is_number, column.keep, wish)


class Cell(NamedTuple):
    """Content of a row in one column."""

    text: str
    style: Style = theme.PLAIN
    parts: Sequence[Segment] = ()
    """Used instead of `text` for content with several styles, such as a bar."""


Row = Sequence[Cell]
"""One cell per column."""


class LazyRows(Sequence[Row]):
    """Rows built on access, because most are not on screen."""

    def __init__(self, length: int, make: Callable[[int], Row]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self._make(position) for position in range(self._length)[index]]
        return self._make(index)
