"""Columns, cells and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, overload

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme


class TableColumn(NamedTuple):
    """A column; `cells` of 0 takes what room is left."""

    title: str
    cells: int
    right: bool = False
    keep: int = 0
    """The larger, the longer it stays when there is no room."""
    wish: int = 0
    """Cells that it takes where others leave them."""


class Cell(NamedTuple):
    """The content of a row in one column."""

    text: str
    style: Style = theme.PLAIN
    parts: Sequence[Segment] = ()
    """In place of the text, where it has several styles, as a bar has."""


Row = Sequence[Cell]
"""A cell for each column."""
FLEXIBLE = 12
"""Fewest cells of a column that takes what is left."""


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
