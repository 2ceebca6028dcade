"""`Lines`, the widget that draws lines of styled text, and repaints only the cells that have changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Self

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpumon_tui.render.cells import changed_ranges
from gpumon_tui.render.text_width import ClickRange, Line, length
from gpumon_tui.state import View


class StyleCache(dict[Style | None, Style]):
    """Cache of converted styles for a background and the terminal's appearance.

    It is a subclass of dict because it is queried for every segment drawn.
    """

    def __init__(self, view: View, ground: str) -> None:
        super().__init__()
        self._view = view
        self._ground = ground
        self.is_faded = False
        """Whether the content is outdated and drawn faded."""

    def __missing__(self, style: Style | None) -> Style:
        ink = self[style] = self._view.appearance.cells(style, self._ground, self.is_faded)
        return ink

    def segments(self, line: Line, cells: int) -> list[Segment]:
        """Return a line with converted glyphs and styles, padded to at least `cells`."""
        look = self._view.appearance
        converted = [Segment(look.letters(text, style), self[style]) for text, style, _ in look.bounds(line)]
        missing_cells = cells - length(line)
        return [*converted, Segment(" " * missing_cells, self[None])] if missing_cells > 0 else converted


BLANK: Line = [Segment("")]


class Lines(Widget):
    """Draws the lines that `draw` returns; a subclass may override `lines` instead, if it knows its size itself.

    A line that is the same object as before is treated as unchanged, and its strip is reused.
    """

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"
    dims = True
    """Whether the widget is dimmed while the data on screen are outdated."""
    ground = "ground"
    """Role of the background color."""

    def __init__(self, view: View, *, id: str | None = None) -> None:
        self.view = view
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._strip_cells = 0
        self._style_cache = StyleCache(view, self.ground)
        self._dimmed = False
        self.click_ranges: Sequence[ClickRange] = ()
        """Ranges of cells that can be clicked, in the lines drawn last."""
        self.drawn_size: Size | None = None
        """Size at which it was last drawn."""

    @property
    def size(self) -> Size:
        """Size of the whole widget. There is no border or padding, so Textual's slower computation is skipped."""
        return self.outer_size

    def draw(self, cells: int, height: int) -> list[Line]:
        """Return the lines for a size, at most `height`."""
        raise NotImplementedError

    def lines(self) -> list[Line]:
        """Return the lines for the widget's size."""
        return self.draw(*self.size)

    def action_at(self, x: int, y: int) -> str:
        """Return the action of a clicked cell; empty if it has none."""
        at_cell = (range_.action for range_ in self.click_ranges if range_.row == y and range_.begin <= x < range_.end)
        return next(at_cell, "")

    def show(self) -> None:
        """Draw again, and repaint the lines that have changed."""
        cells, rows = self.size
        if not self.display or not rows:
            return
        if self.dims and self._dimmed != self.view.freshness.is_faded:
            self._dimmed = not self._dimmed
            self._style_cache.is_faded = self._dimmed
            self.refresh()
        old_lines = self._lines
        new_lines = self.lines()
        self._lines, self.drawn_size = new_lines, self.size
        changes: list[Region] = []
        for row, (old_line, new_line) in enumerate(zip_longest(old_lines[:rows], new_lines[:rows], fillvalue=BLANK)):
            if old_line is new_line:
                continue
            ranges = changed_ranges(old_line, new_line, cells)
            if ranges:
                self._strips.pop(row, None)
                changes += [Region(begin, row, end - begin, 1) for begin, end in ranges]
        if changes:
            self.refresh(*changes)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Without regions, discard all cached strips, because styles may have changed."""
        if not regions:
            self._strips.clear()
            self._style_cache.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def on_resize(self) -> None:
        """Discard all lines, because they depend on the width."""
        self._lines, self.drawn_size = self.lines(), self.size
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Build strips directly from the lines; there is no border, padding or opacity to apply.

        Textual's own method, with its cache of styles, took two thirds of the time of a repaint.
        """
        cells = self.size.width
        if cells != self._strip_cells:
            self._strips, self._strip_cells = {}, cells
        strips = self._strips
        strips_of_rows = []
        for row in crop.line_range:
            strip = strips.get(row)
            if strip is None:
                strip = strips[row] = self._strip(row, cells)
            strips_of_rows.append(strip)
        if crop.column_span != (0, cells):
            return [strip.crop(*crop.column_span) for strip in strips_of_rows]
        return strips_of_rows

    def _strip(self, row: int, cells: int) -> Strip:
        """Return a line as a Textual strip."""
        line = self._lines[row] if row < len(self._lines) else []
        segments = self._style_cache.segments(line, cells)
        used = length(segments)
        strip = Strip(segments, used)
        return strip if used <= cells else strip.crop(0, cells)
