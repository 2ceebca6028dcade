"""The styles of a picture's lines as the terminal is to show them."""

from __future__ import annotations

from rich.style import Style

from gpumon_tui.renderables.text_width import Line, length
from gpumon_tui.view import View


class StyleCache(dict[Style | None, Style]):
    """Styles on the picture's ground, in the look of the view; each is worked out once.

    A dictionary, since every segment that is painted asks for one.
    """

    def __init__(self, view: View, on: str) -> None:
        super().__init__()
        self._view = view
        self._on = on
        self.faded = False
        """Whether what is shown is old."""

    def __missing__(self, style: Style | None) -> Style:
        ink = self[style] = self._view.look.cells(style, self._on, self.faded)
        return ink

    def pieces(self, line: Line, cells: int) -> list[tuple[str, Style]]:
        """Return the texts of a line, at least as long as `cells`, with their styles on this terminal."""
        look = self._view.look
        letters = look.letters
        pieces = [
            (text if text.isascii() else letters(text, style), self[style]) for text, style, _ in look.bounds(line)
        ]
        rest = cells - length(line)
        return [*pieces, (" " * rest, self[None])] if rest > 0 else pieces
