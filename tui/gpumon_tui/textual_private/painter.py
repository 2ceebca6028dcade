"""Writes changed cells directly to the terminal, bypassing Textual's compositor.

Textual passes a repaint through the messages of each widget, a timer, and a compositor that determines which widget is
visible where; this took a quarter of the time of a tick. While no widgets overlap and no layout is pending, the
position of a widget is fixed, and its cells are written immediately, as an update like Textual's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rich.style import Style

if TYPE_CHECKING:
    from textual.app import App
    from textual.geometry import Region

Change = tuple[int, int, int]
"""Row within a widget, first cell, and end cell (exclusive)."""


class PaintedWidget(Protocol):
    """A widget that can draw a single row."""

    @property
    def region(self) -> Region:
        """Position on the screen."""

    def pieces(self, row: int) -> list[tuple[str, Style]]:
        """Return the texts of a row with the terminal's styles."""


class WidgetChanges(NamedTuple):
    """Changes of a widget to be painted."""

    widget: PaintedWidget
    region: Region
    changes: Sequence[Change]


class Painter:
    """Collects the changes of widgets between `open` and `close`, and paints them."""

    def __init__(self) -> None:
        self.is_supported = False
        """Whether the installed Textual has the required private parts."""
        self.is_layout_final = False
        """Whether the layout is final and no widget covers another."""
        self._is_open = False
        self._has_refreshed = False
        self._collected: list[WidgetChanges] = []

    def open(self, app: App[Any]) -> None:
        """Start collecting changes, if direct painting is possible now."""
        is_batching = getattr(app, "_batch_count", 0) > 0
        self._is_open = self.is_supported and self.is_layout_final and len(app.screen_stack) == 1 and not is_batching
        self._has_refreshed = not self._is_open

    def add(self, widget: PaintedWidget, changes: Sequence[Change]) -> bool:
        """Accept changed cells; returns False if the widget must use Textual's refresh instead."""
        region = widget.region if self._is_open else None
        if not region:
            self._has_refreshed = True
            return False
        self._collected.append(WidgetChanges(widget, region, changes))
        return True

    def note_refresh(self) -> None:
        """Record that a widget uses Textual's refresh."""
        self._has_refreshed = True

    def close(self, app: App[Any]) -> bool:
        """Paint the collected changes; return whether these were all changes."""
        self._is_open = False
        collected, self._collected = self._collected, []
        if collected:
            from gpumon_tui.textual_private.screen_updates import WidgetUpdate

            update: Any = WidgetUpdate(collected, app.size.height)
            app._display(app.screen, update)
        return not self._has_refreshed
