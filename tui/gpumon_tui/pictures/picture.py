"""A picture of the view for a room of so many cells: what a widget shows, and what needs no widget to be drawn."""

from __future__ import annotations

from typing import NamedTuple

from gpumon_tui.renderables.text_width import Line
from gpumon_tui.view import View


class Room(NamedTuple):
    """The room of a picture, in cells."""

    width: int
    height: int


class Picture:
    """Lines of the view for `size`. A line that is the same object as before shows the same."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.size = Room(0, 0)

    def lines(self) -> list[Line]:
        """Return the lines, at most as many as there is room for."""
        raise NotImplementedError
