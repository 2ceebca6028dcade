"""Base class of the pages: screens with a header, the parts of the page, and a footer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.events import Key as Press
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen

from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.keybindings import OVERVIEW, PAGE_CLASSES
from gpumon_tui.render.overview_layout import BLANKS_FROM
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer, HeaderBar, ReasonLine
from gpumon_tui.widgets.filter_field import FilterField
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import LiveTable

COPIED_MESSAGE = "copied, if the terminal allows OSC 52"


def half_pages(halves: int, rows: int) -> int:
    """Return the number of rows in the given number of half pages, on a page of `rows`."""
    return int(halves * max(2, rows) / 2)


class TerminalPage(Screen[None], inherit_bindings=False):
    """Base class of all pages; each is the base screen of a mode of the app.

    Its keys are `BINDINGS`, and the action of a key is the method `action_<name>`. A page draws from the view alone. It
    may cache derived data while the view's frame stays the same.
    """

    DEFAULT_CSS = """
    TerminalPage { overflow: hidden; }
    TerminalPage > #page { height: 1fr; visibility: hidden; }
    TerminalPage > #page Lines { visibility: visible; }
    """
    BINDINGS: ClassVar[list[BindingType]] = []
    page_name: ClassVar[str] = OVERVIEW
    """One of `keybindings.PAGES`."""
    has_past: ClassVar[bool] = False
    """Whether it shows the window of `View.chart_time`; all other pages show the frame on screen."""

    def copy(self, text: str) -> None:
        """Copy `text` to the terminal's clipboard and show a message; does nothing for an empty string."""
        if text:
            self.app.copy_to_clipboard(text)
            self.view.show_message(COPIED_MESSAGE)

    class Changed(Message):
        """Posted when the page needs a redraw, for example after a background query."""

    class OpenRequested(Message):
        """Posted to open the page with the given number, with a return target if it is a chart.

        `opens`: open the selected item there.
        """

        def __init__(self, number: int, way_back: ReturnTarget | None = None, *, opens: bool = False) -> None:
            super().__init__()
            self.number = number
            self.return_target = way_back
            self.opens = opens

    class KeyClicked(Message):
        """Posted for a click on something that stands for a key; `key` is the displayed name."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, view: View) -> None:
        self.view = view
        self._heights: Sequence[tuple[Lines, int]] = ()
        """Rows of the parts, if they lie one below another."""
        super().__init__()
        self.header = HeaderBar(view)
        self.reason = ReasonLine(view)
        self.body = Container(id="page")
        self.footer = Footer(view, self.page_name)

    def compose(self) -> ComposeResult:
        """Yield header, page and footer."""
        yield self.header
        yield self.reason
        with self.body:
            yield from self.compose_page()
        yield self.footer

    def compose_page(self) -> ComposeResult:
        """Yield the widgets of the page."""
        yield from self.line_widgets

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        """Widgets that are drawn from the view."""
        raise NotImplementedError

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """Keys for the footer that apply only in the current state, with their descriptions."""
        return ()

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Displayed names of keys that currently have no effect; the footer leaves them out."""
        return frozenset()

    def set_top_padding(self, size: Size, blank_from: int = BLANKS_FROM) -> None:
        """Leave a blank row below the header if the page has at least `blank_from` rows."""
        padding = int(size.height >= blank_from)
        if self.body.styles.padding.top != padding:
            self.body.styles.padding = (padding, 0, 0, 0)

    def set_heights(self, *parts: tuple[Lines, int]) -> None:
        """Set the number of rows of parts that lie one below another; a part without rows is not shown."""
        self._heights = parts
        for part, rows in parts:
            part.display = rows > 0
            part.styles.height = max(0, rows)

    @property
    def is_laid_out(self) -> bool:
        """Whether every part has its final size and is drawn at that size."""
        parts = (self.header, *self.line_widgets, self.footer)
        return (
            self.header.size.width == self.app.size.width
            and all(part.drawn_size == part.size for part in parts if part.display and part.size)
            and all(part.drawn_size and part.drawn_size.height == rows for part, rows in self._heights if rows > 0)
        )

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Redraw after a click in a table."""
        self.post_message(self.Changed())

    def lay_out(self, size: Size) -> None:
        """Lay out the parts within `size`, the area between header and footer; called before each drawing."""

    def show(self) -> None:
        """Draw the current state of the view."""
        for part in self.line_widgets:
            part.show()

    def open_selected(self) -> None:
        """Open the item that another page has selected."""

    def take_key(self, press: Press) -> bool:
        """Handle a key before any binding, for example while typing; return whether it was handled."""
        return False

    def paste(self, text: str) -> None:
        """Insert pasted text while typing; otherwise ignore it, so that its letters do not act as keys."""

    def forget(self) -> None:
        """Reset for frames of another source."""

    def action_move(self, step: int) -> None:
        """Move the cursor, on pages that have one."""

    @property
    def page_rows(self) -> int:
        """Number of rows by which a page key moves the cursor."""
        return 1

    def action_move_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.action_move(half_pages(halves, self.page_rows))

    def action_subject(self, step: int) -> None:
        """Select the next or previous subject: a GPU or the host."""
        self.view.step_subject(step)

    def action_zoom(self, step: int) -> None:
        """Show a shorter or longer time window."""
        self.view.zoom(step)


class TablePage(TerminalPage):
    """Base class of the pages that consist of a table with a filter, and of details about its rows."""

    table: LiveTable
    filter_field: FilterField

    _page_rows = 1
    """Rows of the table for which there is room, even if it has fewer."""

    @property
    def page_rows(self) -> int:
        return self._page_rows

    def take_key(self, press: Press) -> bool:
        """Handle typing in the filter."""
        return self.filter_field.handle(press)

    def paste(self, text: str) -> None:
        """Paste text into the filter."""
        self.filter_field.paste(text)

    def on_live_table_opened(self) -> None:
        """Open a row that was clicked twice."""
        self.action_open()

    def action_open(self) -> None:
        """Open the row under the cursor."""
        raise NotImplementedError

    def action_filter(self) -> None:
        """Start typing a filter."""
        self.filter_field.begin()

    def action_move(self, step: int) -> None:
        """Move the cursor."""
        self.table.move(step)


def page_class(name: str, classes: Mapping[str, str] = PAGE_CLASSES) -> type[TerminalPage]:
    """Return the class of a page. Its module is imported on first use, because most sessions need only one page."""
    module, _, class_name = classes[name].partition(":")
    page: type[TerminalPage] = getattr(import_module(module), class_name)
    return page
