"""A page: what stands between header and footer, and what its keys do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar, Self

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key as Press
from textual.geometry import Region, Size
from textual.message import Message

from gpumon_tui.keybindings import OVERVIEW, PAGE_CLASSES
from gpumon_tui.render.overview_layout import AIRY_FROM
from gpumon_tui.state import View
from gpumon_tui.way_back import WayBack
from gpumon_tui.widgets.lines import Lines

COPIED = "copied, if the terminal allows OSC 52"


def half_pages(halves: int, rows: int) -> int:
    """Return how many rows so many half pages are, of a page of `rows`."""
    return int(halves * max(2, rows) / 2)


class TerminalPage(Container):
    """The base of every page. A key's action is the method `do_<action>`; what that does not know, the app does.

    A page draws from the view alone. It may keep what it works out as long as the view's frame is the same.
    """

    DEFAULT_CSS = "TerminalPage { height: 1fr; visibility: hidden; } TerminalPage Lines { visibility: visible; }"
    name_shown: ClassVar[str] = OVERVIEW
    """One of `keys.PAGES`."""
    has_past: ClassVar[bool] = False
    """Whether it shows the window of `View.shown`; every other page is of the frame on screen."""

    def copy(self, text: str) -> None:
        """Send a text to the clipboard of the terminal, and say so; not an empty one."""
        if text:
            self.app.copy_to_clipboard(text)
            self.view.say(COPIED)

    class Changed(Message):
        """The page wants to be drawn again, as when something that was read in another thread has come."""

    class Wanted(Message):
        """The page wants another one to be opened: that of a number on the keys, with a way back from a chart.

        `opens`: what is selected is to be open there.
        """

        def __init__(self, number: int, way_back: WayBack | None = None, *, opens: bool = False) -> None:
            super().__init__()
            self.number = number
            self.way_back = way_back
            self.opens = opens

    class Clicked(Message):
        """A click on something that stands for a key: `key`, as it is shown."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, view: View) -> None:
        self.view = view
        super().__init__()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Ask Textual; where the page moves, so does all that is on it."""
        painter = self.view.painter
        painter.is_placed = painter.is_placed and not layout
        painter.refuse()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    @property
    def drawn(self) -> tuple[Lines, ...]:
        """The widgets that the view fills."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Yield what lies on the page."""
        yield from self.drawn

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """Keys that do something only at times, for the footer: each with what it does."""
        return ()

    @property
    def withheld(self) -> frozenset[str]:
        """Keys, as they are shown, that do nothing just now: the footer does not offer them."""
        return frozenset()

    def leave_air(self, size: Size) -> None:
        """Leave a row below the header where there are many."""
        air = int(size.height >= AIRY_FROM)
        if self.styles.padding.top != air:
            self.styles.padding = (air, 0, 0, 0)

    @property
    def is_laid_out(self) -> bool:
        """Whether each part has the room that was given to it last, and is drawn for that."""
        return True

    def share_out(self, size: Size) -> None:
        """Share `size`, the room between header and footer, out to the parts; called before each picture."""

    def show(self) -> None:
        """Draw the view as it is now."""
        for part in self.drawn:
            part.show()

    def open_selected(self) -> None:
        """Open what another page has selected."""

    def take(self, press: Press) -> bool:
        """Take a key before all else, as while text is typed; whether it was taken."""
        return False

    def paste(self, text: str) -> None:
        """Take a line from the clipboard while text is typed, and nothing else: no letter of it is a key."""

    def forget(self) -> None:
        """Begin anew, as with frames of another source."""


def page_class(name: str, classes: Mapping[str, str] = PAGE_CLASSES) -> type[TerminalPage]:
    """Return the class of a page. Its module is imported when the page is first opened: most starts need only one."""
    module, _, class_name = classes[name].partition(":")
    page: type[TerminalPage] = getattr(import_module(module), class_name)
    return page
