"""All GPUs, with the mouse."""

from __future__ import annotations

from textual import events
from textual.message import Message

from gpumon_tui.pictures.gpu_table import GpuTablePicture
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

WHEEL = 3
"""Rows that the wheel scrolls, as elsewhere."""


class GpuTable(Lines):
    """A click on a GPU selects it."""

    class Selected(Message):
        """A GPU was clicked."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, view: View, picture: GpuTablePicture, *, id: str) -> None:
        super().__init__(view, picture, id=id)
        self._table = picture

    def on_click(self, event: events.Click) -> None:
        """Select the GPU under the mouse, or go on to those that are not on screen."""
        if self._table.is_mark(event.y):
            self._scroll(self._table.page)
        elif uuid := self._table.at(event.y, event.x):
            self.post_message(self.Selected(uuid))

    def on_mouse_scroll_down(self) -> None:
        """Show GPUs further down."""
        self._scroll(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Show GPUs further up."""
        self._scroll(-WHEEL)

    def _scroll(self, rows: int) -> None:
        self._table.top += rows
        self.show()
