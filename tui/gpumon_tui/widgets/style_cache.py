"""The styles of a widget's lines as the terminal is to show them."""

from __future__ import annotations

from rich.style import Style

from gpumon_tui.view import View


class StyleCache(dict[Style | None, Style]):
    """Styles on the widget's ground, in the look of the view; each is worked out once.

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
