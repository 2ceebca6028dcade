"""The styles of a widget's lines as the terminal is to show them."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.widget import Widget

from gpumon_tui import theme


class StyleCache(dict[Style | None, Style | None]):
    """Styles on the widget's ground, fit for a terminal of few or no colors; each is worked out once.

    A dictionary, since every segment that is painted asks for one.
    """

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget
        self.faded = False
        """Whether what is shown is old."""

    def __missing__(self, style: Style | None) -> Style | None:
        widget, asked = self._widget, style
        base = widget.rich_style
        if self.faded:
            style = theme.faded(base + style if style else base)
        sample = [Segment("x", base + style if style else base)]
        for one in widget.get_line_filters():
            sample = one.apply(sample, widget.background_colors[1])
        ink = self[asked] = sample[0].style
        return ink
