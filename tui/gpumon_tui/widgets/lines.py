"""A widget of lines that repaints only the cells that changed."""

from __future__ import annotations

from typing import Self

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon_tui.renderables.cells import Line, length
from gpumon_tui.renderables.difference import changed
from gpumon_tui.view import View

BLANK: Line = [Segment("")]


class Lines(Widget):
    """Draws `lines()` of the view it was shown last.

    A line that is the same object as before is taken to be unchanged; its strip is kept too.
    """

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"

    def __init__(self, view: View, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._strip_cells = 0
        self._inks: dict[Style | None, Style | None] = {}

    def lines(self) -> list[Line]:
        """The picture for the widget's size."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw again, and repaint what differs from what is on screen."""
        if not self.display or not self.size.height:
            return
        old, self._lines = self._lines, self.lines()
        cells = self.size.width
        regions: list[Region] = []
        for row in range(min(self.size.height, max(len(old), len(self._lines)))):
            before = old[row] if row < len(old) else BLANK
            after = self._lines[row] if row < len(self._lines) else BLANK
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
            self._strips, self._inks = {}, {}
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
                strip = strips[row] = self.render_line(row)
            found.append(strip)
        if crop.column_span != (0, cells):
            return [strip.crop(*crop.column_span) for strip in found]
        return found

    def render_line(self, y: int) -> Strip:
        """A line as the screen wants it."""
        cells = self.size.width
        line = self._lines[y] if y < len(self._lines) else []
        segments = [Segment(text, self._ink(style)) for text, style, _ in line]
        used = length(line)
        if used < cells:
            segments.append(Segment(" " * (cells - used), self._ink(None)))
        strip = Strip(segments, max(used, cells))
        return strip if used <= cells else strip.crop(0, cells)

    def _ink(self, style: Style | None) -> Style | None:
        """A style on the widget's ground, as a terminal of few or no colours shows it."""
        if style not in self._inks:
            base = self.rich_style
            sample = [Segment("x", base + style if style else base)]
            for one in self.get_line_filters():
                sample = one.apply(sample, self.background_colors[1])
            self._inks[style] = sample[0].style
        return self._inks[style]
