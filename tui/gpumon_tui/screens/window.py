"""Windows above a page: the base class, lists to choose from, and which keys a window lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen

from gpumon.storage.history.query import HOST
from gpumon_tui import theme
from gpumon_tui.appearance import Appearance, ColorDepth
from gpumon_tui.keybindings import PAGES, ViewAbilities
from gpumon_tui.render.text_width import Line, spread, width
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines


def view_abilities(view: View) -> ViewAbilities:
    """Return the current properties of the view."""
    return ViewAbilities(view.is_readonly, view.can_seek, HOST in view.subjects, view.plays_recording)


WINDOW_OPACITY = 0.6
"""Opacity of the background of a window above a page."""


def paint_ground(screen: Screen[Any], appearance: Appearance) -> None:
    """Set the background of a screen; a window above a page is translucent if the terminal has enough colors."""
    ground = Color.parse(appearance.ground)
    is_window = isinstance(screen, ModalWindow) and appearance.depth is ColorDepth.MANY
    screen.styles.background = ground.with_alpha(WINDOW_OPACITY) if is_window else ground


def open_window(app: App[Any], window: ModalWindow) -> None:
    """Open a window, unless one is already open."""
    if not isinstance(app.screen, ModalWindow):
        paint_ground(window, window.view.appearance)
        app.push_screen(window)


class TextWidget(Lines):
    """A widget as tall as its lines, with a border at the left."""

    DEFAULT_CSS = "TextWidget { height: auto; }"
    ground = "panel"
    border_role = "key"

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at the given width."""
        return len(self._lines_in(width))

    def lines(self) -> list[Line]:
        return self._lines_in(self.size.width)

    def _lines_in(self, width: int) -> list[Line]:
        border = Segment("▌", theme.ink(self.border_role, "panel")), Segment(" ")
        return [[*border, *line] for line in ([], *self.text_lines(max(1, width - 4)), [])]

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
        self.view = text.view
        self._text = text
        self._box = VerticalScroll(text)
        self.is_closed = False

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


class ListText(TextWidget):
    """A title with a hint, and rows, one of them under the cursor; a row has a text at each side."""

    dims = False

    class Chosen(Message):
        """Posted when a row was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, view: View, title: str, hints: Sequence[str]) -> None:
        super().__init__(view)
        self.rows: Sequence[tuple[str, str]] = ()
        self.cursor = 0
        self._title = title
        self._hints = hints
        """Forms of the hint, longest first."""

    @property
    def _on_screen(self) -> range:
        """Indexes of the rows on screen."""
        room = max(1, self.app.size.height - 6)
        first = max(0, min(self.cursor - room // 2, len(self.rows) - room))
        return range(first, min(first + room, len(self.rows)))

    def text_lines(self, cells: int) -> list[Line]:
        on_screen = self._on_screen
        hidden = len(self.rows) - on_screen.stop
        forms = [hint + (f"  +{hidden} ▼" if hidden else "") for hint in self._hints]
        hint = next((form for form in forms if width(self._title) + 2 + width(form) <= cells), forms[-1])
        title: Line = [Segment(self._title, theme.ink("strong", "panel", bold=True))]
        lines = [spread(title, [Segment(hint, theme.ink("faint", "panel"))], cells)]
        for index in on_screen:
            left, right = self.rows[index]
            ground = "select" if index == self.cursor else "panel"
            text, value = theme.ink("text", ground), theme.ink("dim", ground)
            lines.append(spread([Segment(f" {left}", text)], [Segment(f" {right} ", value)], cells, text))
        return lines

    def move(self, step: int) -> None:
        """Move the cursor, stopping at the first and last row."""
        self.cursor = max(0, min(self.cursor + step, len(self.rows) - 1))

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked row; a click elsewhere closes the window."""
        index = event.y - 2 + self._on_screen.start
        if event.y >= 2 and index < self._on_screen.stop:
            event.stop()
            self.post_message(self.Chosen(index))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move the cursor up."""
        event.stop()
        self.move(-1)
        self.show()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move the cursor down."""
        event.stop()
        self.move(1)
        self.show()


class ListWindow(ModalWindow):
    """A list to choose from: `rows` returns it, and `on_chosen` receives the index of the chosen row."""

    follows: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close"),
        Binding("enter,space", "choose"),
        Binding("up,k,M", "step(-1)"),
        Binding("down,j,m", "step(1)"),
        Binding("pageup,ctrl+b", "move(-10)"),
        Binding("pagedown,ctrl+f", "move(10)"),
        Binding("ctrl+u", "move(-5)"),
        Binding("ctrl+d", "move(5)"),
        Binding("home,g", "move(-1_000)"),
        Binding("end,G", "move(1_000)"),
    ]

    def __init__(
        self, view: View, title: str, rows: Callable[[], Sequence[tuple[str, str]]], cursor: int,
        on_chosen: Callable[[int], object], *, cells: int, hints: Sequence[str] = ("",),
    ) -> None:  # fmt: skip
        self.list = ListText(view, title, hints)
        super().__init__(self.list)
        self._box.styles.width = cells
        self._rows = rows
        self._on_chosen = on_chosen
        self.list.rows, self.list.cursor = rows(), cursor

    def show(self) -> None:
        self.list.rows = self._rows()
        super().show()

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        self.close()
        self._on_chosen(self.list.cursor)

    def action_step(self, step: int) -> None:
        """Move the cursor, wrapping around."""
        self.list.cursor = (self.list.cursor + step) % max(1, len(self.list.rows))

    def action_move(self, step: int) -> None:
        """Move the cursor by several rows, stopping at the first and last."""
        self.list.move(step)

    async def on_list_text_chosen(self, message: ListText.Chosen) -> None:
        """Choose the clicked row."""
        self.list.cursor = message.index
        await self.run_action("choose")
