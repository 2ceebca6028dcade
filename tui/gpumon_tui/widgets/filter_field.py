"""The filter field."""

from __future__ import annotations

from typing import Protocol

from rich.segment import Segment
from textual.events import Key as Press

from gpumon_tui import theme
from gpumon_tui.render.text_width import Line, cut, safe, width

FIELD = theme.ink("strong", "panel")
_CARET = theme.ink("key", "panel")
MAX_FILTER = 80
"""Maximum length of a filter."""


class Filtered(Protocol):
    """Rows that can be filtered, with a cursor."""

    filter: str

    def move(self, step: int) -> None:
        """Move the cursor."""


class FilterField:
    """Input field for the filter; the number of matches is updated with every key."""

    def __init__(self, rows: Filtered) -> None:
        self.rows = rows
        self.is_active = False

    def line(self, cells: int) -> Line:
        """Return the typed text with a caret, in at most `cells` cells; of a long text, the end."""
        text, room = safe(self.rows.filter), max(0, cells - 2)
        while width(text) > room:
            text = text[1:]
        caret = Segment("▏", _CARET) if self.is_active else Segment(" ", FIELD)
        return cut([Segment(f" {text}", FIELD), caret], cells)

    def begin(self) -> None:
        """Start typing."""
        self.is_active = True

    def paste(self, text: str) -> None:
        """Insert pasted text, if the field is active."""
        if self.is_active:
            self.rows.filter = (self.rows.filter + text)[:MAX_FILTER]

    def handle(self, press: Press) -> bool:
        """Handle a key if the field is active; return whether it was handled."""
        if not self.is_active or press.key in ("tab", "shift+tab"):
            return False
        rows = self.rows
        if press.key == "enter":
            self.is_active = False
        elif press.key == "escape":
            self.is_active, rows.filter = False, ""
        elif press.key in ("backspace", "ctrl+h"):
            rows.filter = rows.filter[:-1]
        elif press.key == "ctrl+u":
            rows.filter = ""
        elif press.key == "ctrl+w":
            rows.filter = rows.filter.rstrip().rpartition(" ")[0]
        elif press.key in ("up", "down"):
            rows.move(1 if press.key == "down" else -1)
        elif press.character and press.character.isprintable() and len(rows.filter) < MAX_FILTER:
            rows.filter += press.character
        return True


def one_line(text: str) -> str:
    """Return pasted text as one line of printable characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
