"""Base class of scrollable windows above a page, the tinted page below, and `view_abilities`, which decides which
keys are listed.
"""

from __future__ import annotations

from typing import ClassVar

from rich.console import RenderableType
from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen

from gpumon.storage.history.query import HOST
from gpumon_tui import _textual, theme
from gpumon_tui.keybindings import PAGES, ViewAbilities
from gpumon_tui.render.text_width import Line
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines


def view_abilities(view: View) -> ViewAbilities:
    """Return the current properties of the view."""
    return ViewAbilities(view.is_readonly, view.can_seek, HOST in view.subjects, view.plays_recording)


BORDER: Line = [Segment("▌", theme.ink("key", "panel")), Segment(" ")]


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


class ModalWindow(ModalScreen[None], inherit_bindings=False):
    """A modal window that shows `text`. Keys that are not bound close it."""

    follows: ClassVar[bool] = False
    """Whether it is redrawn with each frame and after each key."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll('scroll_up')"),
        Binding("down,j", "scroll('scroll_down')"),
        Binding("pageup,ctrl+u,ctrl+b", "scroll('scroll_page_up')"),
        Binding("pagedown,ctrl+d,ctrl+f,space", "scroll('scroll_page_down')"),
        Binding("home,g", "scroll('scroll_home')"),
        Binding("end,G", "scroll('scroll_end')"),
        *(Binding(str(number), f"open_page({number})") for number in range(1, len(PAGES) + 1)),
        Binding("ctrl+c,ctrl+q", "app.quit"),
        Binding("ctrl+z", "app.suspend"),
    ]
    DEFAULT_CSS = """
    ModalWindow { align: center middle; }
    ModalWindow > VerticalScroll {
        width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 0;
    }
    """

    def __init__(self, text: TextWidget) -> None:
        super().__init__()
        self._text = text
        self._box = VerticalScroll(text)
        self.is_closed = False

    def render(self) -> RenderableType:
        background = super().render()
        return _textual.tinted_page(background) if isinstance(background, BackgroundScreen) else background

    def compose(self) -> ComposeResult:
        """Yield the lines in a scrollable box."""
        yield self._box

    def show(self) -> None:
        """Redraw the lines and adapt the height."""
        self._text.refresh(layout=True)
        self._text.show()

    def take_key(self, press: events.Key) -> bool:
        """Handle a key before any binding, for example while typing; return whether it was handled."""
        return False

    def paste(self, text: str) -> None:
        """Insert pasted text while typing."""

    def on_unbound_key(self) -> None:
        """Close the window on any key that is not bound."""
        self.close()

    def on_click(self) -> None:
        """Close the window."""
        self.close()

    def action_scroll(self, method: str) -> None:
        """Scroll the text, with one of the methods of `VerticalScroll`."""
        getattr(self._box, method)(animate=False)

    async def action_open_page(self, number: int) -> None:
        """Close the window and open a page."""
        self.close()
        await self.run_action(f"app.open_page({number})")

    def action_close(self) -> None:
        """Close the window."""
        self.close()

    def close(self) -> None:
        """Close the window; further calls do nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.dismiss()
