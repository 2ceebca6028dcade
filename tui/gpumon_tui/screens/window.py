"""Base class of scrollable windows above a page, the tinted page below, and `view_abilities`, which decides which
keys are listed.
"""

from __future__ import annotations

from typing import ClassVar

from rich.console import RenderableType
from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen

from gpumon.storage.history.query import HOST
from gpumon_tui import _textual, palette
from gpumon_tui.keybindings import PAGES, ViewAbilities
from gpumon_tui.render.text_width import Line
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer
from gpumon_tui.widgets.lines import Lines


def view_abilities(view: View) -> ViewAbilities:
    """Return the current properties of the view."""
    return ViewAbilities(view.is_readonly, view.can_seek, HOST in view.subjects, view.plays_recording)


_SCROLL = frozenset(("up", "down", "pageup", "pagedown", "home", "end"))
_VIM_KEYS = {
    "j": "down", "k": "up", "g": "home", "G": "end", "ctrl+d": "page_down", "ctrl+f": "page_down", "space": "page_down",
    "ctrl+u": "page_up", "ctrl+b": "page_up",
}  # fmt: skip
"""Additional keys for scrolling, as in vim."""
_PAGES = frozenset(map(str, range(1, len(PAGES) + 1)))
"""Keys that open a page, also from a window."""


BORDER: Line = [Segment("▌", palette.ink("key", "panel")), Segment(" ")]


class TextWidget(Lines):
    """A widget as tall as its lines, with a border at the left."""

    DEFAULT_CSS = "TextWidget { height: auto; }"
    ground = "panel"

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at the given width."""
        return len(self._lines_in(width))

    def lines(self) -> list[Line]:
        return self._lines_in(self.size.width)

    def _lines_in(self, width: int) -> list[Line]:
        return [[*BORDER, *line] for line in ([], *self.text_lines(max(1, width - 4)), [])]

    def text_lines(self, cells: int) -> list[Line]:
        """Return the lines for a width in cells."""
        raise NotImplementedError


class ModalWindow(ModalScreen[None]):
    """A modal window that shows `text`."""

    follows: ClassVar[bool] = False
    """Whether it is redrawn with each frame."""
    own_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys handled here that Textual would handle itself."""

    DEFAULT_CSS = """
    ModalWindow { align: center middle; }
    ModalWindow > VerticalScroll {
        width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 0;
    }
    """

    def __init__(self, text: TextWidget) -> None:
        super().__init__()
        self._text = text
        self.is_closed = False
        """Set on closing; keys that still arrive before the next redraw are passed to the page below."""

    def render(self) -> RenderableType:
        background = super().render()
        return _textual.tinted_page(background) if isinstance(background, BackgroundScreen) else background

    def compose(self) -> ComposeResult:
        """Yield the lines in a scrollable box."""
        yield VerticalScroll(self._text)

    def show(self) -> None:
        """Redraw the lines and adapt the height."""
        self._text.refresh(layout=True)
        self._text.show()

    def on_key(self, event: events.Key) -> None:
        """Close the window, unless the key scrolls."""
        if event.key in _SCROLL or self.is_closed:
            return
        event.stop()
        event.prevent_default()
        if event.key in _VIM_KEYS:
            getattr(self.query_one(VerticalScroll), f"scroll_{_VIM_KEYS[event.key]}")(animate=False)
        else:
            self.close()
            if event.key in _PAGES:
                self.app.post_message(Footer.Pressed(event.key))

    def on_click(self) -> None:
        """Close the window."""
        self.close()

    def run_key(self, name: str) -> None:
        """Run the action of one of `own_keys`."""

    def close(self) -> None:
        """Close the window; further calls do nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.dismiss()
