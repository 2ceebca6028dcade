"""Terminal update built directly from the widgets whose cells have changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.style import Style
from textual._compositor import CompositorUpdate

from gpumon_tui.textual_private.pen import Pen, colors_of

if TYPE_CHECKING:
    from gpumon_tui.textual_private.painter import PaintedChanges


class StraightUpdate(CompositorUpdate):
    """Changes of widgets at their positions, on a screen of the given height."""

    def __init__(self, taken: Sequence[PaintedChanges], rows: int) -> None:
        self._taken = taken
        self._rows = rows

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text for the terminal."""
        pen = Pen(colors_of(console))
        for widget, (x, y, _, height), changes in self._taken:
            drawn, pieces = -1, list[tuple[str, Style]]()
            for row, begin, end in changes:
                if row >= height or y + row >= self._rows:
                    continue
                if row != drawn:
                    drawn, pieces = row, widget.pieces(row)
                pen.write(y + row, x + begin, pieces, begin, end)
        return pen.written()
