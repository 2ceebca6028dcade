"""Partial updates that send only the changed cells.

Textual 8 starts each changed range at the first cell of its widget. On a line of cards that is most of the line, and
thus most of the output. There is no public hook to change this.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType
from textual._compositor import ChopsUpdate, CompositorUpdate

from gpumon_tui.textual_private.pen import Pen, colors_of


class CellDiffUpdate(CompositorUpdate):
    """A partial update in which each range starts at its own first cell."""

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text for the terminal."""
        update, pen = self._update, Pen(colors_of(console))
        for row, begin, end in update.spans:
            for right, (left, strip) in zip(update.chop_ends[row], update.chops[row].items(), strict=False):
                if strip is None or left >= end or right <= begin:
                    continue
                first, last = max(left, begin), min(right, end)
                pen.write(row, first, ((text, style) for text, style, _ in strip), first - left, last - left)
        return pen.written()


def cell_diff(renderable: RenderableType | None) -> Any:
    """Convert a partial update to one that sends only changed cells; returns anything else unchanged."""
    return CellDiffUpdate(renderable) if isinstance(renderable, ChopsUpdate) else renderable
