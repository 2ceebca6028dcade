"""A widget of lines that repaints only the cells that changed."""

from __future__ import annotations

from itertools import zip_longest
from typing import Self

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpumon_tui.renderables.difference import changed
from gpumon_tui.renderables.text_width import Line, length
from gpumon_tui.view import View
from gpumon_tui.widgets.style_cache import StyleCache

BLANK: Line = [Segment("")]


class Lines(Widget):
    """Draws `lines()` of the view it was shown last.

    A line that is the same object as before is taken to be unchanged; its strip is kept too.
    """

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"
    dims = True
    """Whether it is dimmed while the screen shows what was, and not what is."""
    ground = "ground"
    """The role of what lies behind the lines."""

    def __init__(self, view: View, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._strip_cells = 0
        self._style_cache = StyleCache(view, self.ground)
        self._dimmed = False

    @property
    def size(self) -> Size:
        """The whole widget: there is no border or padding that Textual would have to look for at each question."""
        return self.outer_size

    def lines(self) -> list[Line]:
        """The picture for the widget's size."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw again, and repaint what differs from what is on screen."""
        cells, rows = self.size
        if not self.display or not rows:
            return
        if self.dims and self._dimmed != (self.view.age > 0):
            self._dimmed = not self._dimmed
            self._style_cache.faded = self._dimmed
            self.refresh()
        old, new = self._lines, self.lines()
        self._lines = new
        regions: list[Region] = []
        for row, (before, after) in enumerate(zip_longest(old[:rows], new[:rows], fillvalue=BLANK)):
            if before is after:
                continue
            ranges = changed(before, after, cells)
            if ranges:
                self._strips.pop(row, None)
                regions += [Region(begin, row, end - begin, 1) for begin, end in ranges]
        if regions:
            self.refresh(*regions)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Of no region: everything, in styles that may be others."""
        if not regions:
            self._strips.clear()
            self._style_cache.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def on_resize(self) -> None:
        """Every line is another one in another width."""
        self._lines = self.lines()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Strips straight from the lines: there is no border, padding or opacity to be worked in.

        Textual's own way through its cache of styles was two thirds of what a repaint cost.
        """
        cells = self.size.width
        if cells != self._strip_cells:
            self._strips, self._strip_cells = {}, cells
        strips = self._strips
        found = []
        for row in crop.line_range:
            strip = strips.get(row)
            if strip is None:
                strip = strips[row] = self._strip(row, cells)
            found.append(strip)
        if crop.column_span != (0, cells):
            return [strip.crop(*crop.column_span) for strip in found]
        return found

    def _strip(self, row: int, cells: int) -> Strip:
        """A line as the screen wants it."""
        line, styles = self._lines[row] if row < len(self._lines) else [], self._style_cache
        letters = self.view.look.letters
        segments = [Segment(text if text.isascii() else letters(text, style), styles[style]) for text, style, _ in line]
        used = length(line)
        if used < cells:
            segments.append(Segment(" " * (cells - used), styles[None]))
        strip = Strip(segments, max(used, cells))
        return strip if used <= cells else strip.crop(0, cells)
