"""The way of changed cells to the terminal, around Textual's queues.

Textual takes a repaint through the messages of each widget, a timer, and a compositor that looks for what lies where:
a quarter of what a tick cost. As long as nothing overlaps and nothing is about to move, the place of a widget is
known, and its cells are written at once, as an update of the terminal like Textual's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rich.style import Style

if TYPE_CHECKING:
    from textual.app import App
    from textual.geometry import Region

Change = tuple[int, int, int]
"""Row of a widget, first cell, and the cell after the last."""


class Painted(Protocol):
    """A widget that can be asked for a row alone."""

    @property
    def region(self) -> Region:
        """Its place on the screen."""

    def pieces(self, row: int) -> list[tuple[str, Style]]:
        """Return the texts of a row in the terminal's styles."""


class PaintedChanges(NamedTuple):
    """Changes that are to be painted."""

    widget: Painted
    region: Region
    changes: Sequence[Change]


class Painter:
    """Takes what widgets would repaint, between `open` and `close`."""

    def __init__(self) -> None:
        self.is_able = False
        """Whether this Textual has what that takes."""
        self.is_placed = False
        """Whether every widget is where it was last laid out, and none lies above another."""
        self._is_open = False
        self._has_refused = False
        self._taken: list[PaintedChanges] = []

    def open(self, app: App[Any]) -> None:
        """Begin to take changes, if they can be painted here."""
        is_held = getattr(app, "_batch_count", 0) > 0
        self._is_open = self.is_able and self.is_placed and len(app.screen_stack) == 1 and not is_held
        self._has_refused = not self._is_open

    def take(self, widget: Painted, changes: Sequence[Change]) -> bool:
        """Whether these cells are painted here; else the widget has to ask Textual."""
        region = widget.region if self._is_open else None
        if not region:
            self._has_refused = True
            return False
        self._taken.append(PaintedChanges(widget, region, changes))
        return True

    def refuse(self) -> None:
        """Note that a widget has asked Textual."""
        self._has_refused = True

    def close(self, app: App[Any]) -> bool:
        """Paint what was taken; whether that was all there was to paint."""
        self._is_open = False
        taken, self._taken = self._taken, []
        if taken:
            from gpumon_tui.textual_private.straight import StraightUpdate

            update: Any = StraightUpdate(taken, app.size.height)
            app._display(app.screen, update)
        return not self._has_refused
