"""The line above and the line below, at their places."""

from __future__ import annotations

from textual import events
from textual.message import Message

from gpumon_tui.pictures.bars import FooterPicture
from gpumon_tui.widgets.lines import Lines


class HeaderBar(Lines):
    """Above the page."""

    dims = False
    ground = "panel"


class ReasonLine(Lines):
    """Below the header; it has a row only while there is a reason to tell."""

    DEFAULT_CSS = "ReasonLine { display: none; }"
    dims = False


class Footer(Lines):
    """Below the page; each key can be clicked."""

    dims = False
    ground = "panel"

    class Pressed(Message):
        """Something at the foot was clicked; `key` is Textual's name of the key that does the same."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def on_click(self, event: events.Click) -> None:
        """Press the key under the mouse."""
        if isinstance(self.picture, FooterPicture) and (key := self.picture.at(event.x)):
            self.post_message(self.Pressed(key))
