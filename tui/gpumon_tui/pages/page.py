"""A page: what stands between header and footer, and what its keys do."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key as Press
from textual.geometry import Size
from textual.message import Message

from gpumon_tui.keys import OVERVIEW
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class TerminalPage(Container):
    """The base of every page. A key's action is the method `do_<action>`; what that does not know, the app does.

    A page draws from the view alone. It may keep what it works out as long as the view's frame is the same.
    """

    DEFAULT_CSS = "TerminalPage { height: 1fr; visibility: hidden; } TerminalPage Lines { visibility: visible; }"
    name_shown: ClassVar[str] = OVERVIEW
    """One of `keys.PAGES`."""

    class Changed(Message):
        """The page wants to be drawn again, as when something that was read in another thread has come."""

    class Wanted(Message):
        """The page wants another one to be opened: that of a number on the keys."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    class Clicked(Message):
        """A click on something that stands for a key: `key`, as it is shown."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

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

    def share_out(self, size: Size) -> None:
        """Share `size`, the room between header and footer, out to the parts; called before each picture."""

    def show(self) -> None:
        """Draw the view as it is now."""
        for part in self.drawn:
            part.show()

    def take(self, press: Press) -> bool:
        """Take a key before all else, as while text is typed; whether it was taken."""
        return False

    def forget(self) -> None:
        """Begin anew, as with frames of another source."""
