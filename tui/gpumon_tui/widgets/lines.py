"""`Picture`, the lines of a part of the view for a given size, and `Lines`, the widget that draws them."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple, Self

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpumon_tui import _textual
from gpumon_tui.render.cells import changed_ranges
from gpumon_tui.render.text_width import Line, length
from gpumon_tui.state import View


class Room(NamedTuple):
    """Size of a picture in cells."""

    width: int
    height: int


class Picture:
    """Lines of the view for `size`. A line that is the same object as before has the same content."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.size = Room(0, 0)

    def lines(self) -> list[Line]:
        """Return the lines, at most as many as there is room for."""
        raise NotImplementedError


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

    def pieces(self, line: Line, cells: int) -> list[tuple[str, Style]]:
        """Return the texts of a line with converted styles, padded to at least `cells`."""
        look = self._view.appearance
        letters = look.letters
        pieces = [
            (text if text.isascii() else letters(text, style), self[style]) for text, style, _ in look.bounds(line)
        ]
        missing_cells = cells - length(line)
        return [*pieces, (" " * missing_cells, self[None])] if missing_cells > 0 else pieces


BLANK: Line = [Segment("")]


class Lines(Widget):
    """Draws `picture` from its view; a widget without a picture implements `lines()` itself.

    A line that is the same object as before is treated as unchanged, and its strip is reused.
    """

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"
    dims = True
    """Whether the widget is dimmed while the data on screen are outdated."""
    ground = "ground"
    """Role of the background color."""

    def __init__(self, view: View, picture: Picture | None = None, *, id: str | None = None) -> None:
        self.view = view
        self.picture = picture
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._strip_cells = 0
        self._style_cache = StyleCache(view, self.ground)
        self._dimmed = False
        self.drawn_size: Size | None = None
        """Size at which it was last drawn."""

    @property
    def size(self) -> Size:
        """Size of the whole widget. There is no border or padding, so Textual's slower computation is skipped."""
        return self.outer_size

    def lines(self) -> list[Line]:
        """Return the picture for the widget's size."""
        if self.picture is None:
            raise NotImplementedError
        self.picture.size = Room(*self.size)
        return self.picture.lines()

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
        changes: list[_textual.Change] = []
        for row, (old_line, new_line) in enumerate(zip_longest(old_lines[:rows], new_lines[:rows], fillvalue=BLANK)):
            if old_line is new_line:
                continue
            ranges = changed_ranges(old_line, new_line, cells)
            if ranges:
                self._strips.pop(row, None)
                changes += [(row, begin, end) for begin, end in ranges]
        if changes and not self.view.painter.add(self, changes):
            self.refresh(*(Region(begin, row, end - begin, 1) for row, begin, end in changes))

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Without regions, discard all cached strips, because styles may have changed."""
        if not regions:
            self._strips.clear()
            self._style_cache.clear()
        painter = self.view.painter
        painter.is_layout_final = painter.is_layout_final and not layout
        painter.note_refresh()
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

    def pieces(self, row: int) -> list[tuple[str, Style]]:
        """Return the texts of a row with converted styles, padded to at least the widget's width."""
        line = self._lines[row] if row < len(self._lines) else []
        return self._style_cache.pieces(line, self.size.width)

    def _strip(self, row: int, cells: int) -> Strip:
        """Return a line as a Textual strip."""
        segments = [Segment(text, style) for text, style in self.pieces(row)]
        used = length(segments)
        strip = Strip(segments, used)
        return strip if used <= cells else strip.crop(0, cells)
