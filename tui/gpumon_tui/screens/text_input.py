"""The filter field, and the list of columns to sort by."""

from __future__ import annotations

from typing import Protocol

from textual.events import Key as Press

from gpumon_tui.widgets.process_table import ProcessTable

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


class OrderChooser:
    """List of the columns to sort by, with its own cursor."""

    def __init__(self, rows: ProcessTable) -> None:
        self.rows = rows
        self.is_open = False
        self.cursor = 0

    def open(self) -> None:
        """Open the list with the cursor on the current column."""
        names = [column.name for column in self.rows.orders]
        self.is_open = True
        name = self.rows.order.name  # a stored column may have no values for any process
        self.cursor = names.index(name) if name in names else 0

    def handle(self, key: str) -> bool:
        """Handle a key; while the list is open, all keys are handled here."""
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -100, "end": 100}
        if key in steps:
            self.cursor = max(0, min(len(self.rows.orders) - 1, self.cursor + steps[key]))
        elif key in ("enter", "space"):
            self.choose(self.cursor)
        elif key in ("escape", "o", "f6", "q"):
            self.is_open = False
        return True

    def choose(self, index: int) -> None:
        """Sort by a column of the list, and close it."""
        self.is_open = False
        if 0 <= index < len(self.rows.orders):
            self.rows.sort_by(self.rows.orders[index].name)
