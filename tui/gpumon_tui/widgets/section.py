"""A section of a page that scrolls, with a cursor that the mouse moves too."""

from __future__ import annotations

from textual import events
from textual.message import Message

from gpumon_tui.pictures.section import SectionPicture
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

WHEEL = 3
"""Rows that the wheel scrolls, as elsewhere."""


class Section(Lines):
    """A click on a row takes it."""

    class Chosen(Message):
        """A row was clicked: keys go to its section from now on."""

        def __init__(self, picture: SectionPicture, *, opens: bool, is_again: bool) -> None:
            super().__init__()
            self.picture = picture
            self.opens = opens
            """Whether the name of the section was clicked, for more of it."""
            self.is_again = is_again
            """Whether it was the row under the cursor."""

    def __init__(self, view: View, picture: SectionPicture, *, id: str) -> None:
        super().__init__(view, picture, id=id)
        self._section = picture

    def on_click(self, event: events.Click) -> None:
        """Take the row under the mouse."""
        is_again = self._section.take(event.y)
        self.post_message(self.Chosen(self._section, opens=event.y == 0, is_again=is_again))

    def on_mouse_scroll_down(self) -> None:
        """Show rows further down."""
        self._scroll(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Show rows further up."""
        self._scroll(-WHEEL)

    def _scroll(self, rows: int) -> None:
        self._section.top += rows
        self.show()
