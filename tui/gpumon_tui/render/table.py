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
"""Fewest cells of a column that takes what is left."""


class TableColumn(NamedTuple):
    """A column; `cells` of 0 takes what room is left."""

    title: str
    cells: int
    right: bool = False
    keep: int = 0
    """The larger, the longer it stays when there is no room."""
    wish: int = 0
    """Cells that it takes where others leave them; those that one of 0 leaves to others with a wish."""
    least: int = FLEXIBLE
    """Fewest cells of one of 0: others leave for these."""


_CELLS: Mapping[Unit | None, int] = {
    Unit.RATIO: 5, Unit.BYTES: 9, Unit.SECONDS: 8, Unit.JOULES: 9, Unit.PER_SECOND: 7, Unit.COUNT: 7,
}  # fmt: skip
"""Cells of the widest number of a unit, with a sign before it."""


def table_column(column: Column, cells: int = 0, wish: int = 0) -> TableColumn:
    """A column of `model.columns`, as wide as its numbers and its heading, or of so many `cells`."""
    wide = cells or max(_CELLS.get(column.unit, 9), width(column.short))
    return TableColumn(column.short, wide, column.is_number, column.keep, wish)


class Cell(NamedTuple):
    """The content of a row in one column."""

    text: str
    style: Style = theme.PLAIN
    parts: Sequence[Segment] = ()
    """In place of the text, where it has several styles, as a bar has."""


Row = Sequence[Cell]
"""A cell for each column."""


class LazyRows(Sequence[Row]):
    """Rows that are made when they are asked for: most are not on screen."""

    def __init__(self, many: int, make: Callable[[int], Row]) -> None:
        self._many = many
        self._make = make

    def __len__(self) -> int:
        return self._many

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self._make(at) for at in range(self._many)[place]]
        return self._make(place)
