"""Command palette: all actions of a page, filtered by typed letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from textual import events

from gpumon_tui import palette
from gpumon_tui.keybindings import PAGES, USUAL, Abilities, told_on
from gpumon_tui.render.text_width import Line, cut, spread
from gpumon_tui.screens.text_input import pasted
from gpumon_tui.screens.window import Scrolled, Text, abilities_of
from gpumon_tui.state import View
from gpumon_tui.widgets.bars import Footer

ROWS = 12
"""Number of rows; fixed, so that the window does not change its size while typing."""
_LONGEST = 40
"""Maximum length of the typed text."""
_HIDDEN = ("commands", "open_page")
_LAST = "quit"
_PAGE = "page: "


class Command(NamedTuple):
    """An action bound to a key."""

    what: str
    shown: str
    key: str
    """Textual's name of the key."""
    brief: str = ""
    """Its name in the footer, which is searched too."""


def commands_of(page: str, pages: Sequence[str], view: Abilities = USUAL) -> list[Command]:
    """Return the commands of a page: its keys, then the other pages, and quit last.

    The first row is selected on opening and Enter runs it, so quit must not be first.
    """
    others = [Command(f"{_PAGE}{name}", str(digit), str(digit)) for digit, name in enumerate(PAGES, 1) if name in pages]
    told = told_on(page, view)
    keys = [key for key in told if key.action not in _HIDDEN]
    rows = [(key.action == _LAST, Command(key.what, key.shown, key.keys.split(",")[0], key.brief)) for key in keys]
    rows += [(False, one) for one in others]
    return [one for _, one in sorted(rows, key=lambda row: row[0])]


def of_other_pages(page: str, pages: Sequence[str], view: Abilities = USUAL) -> list[Command]:
    """Return the commands that exist only on other pages; each opens the first such page."""
    known = {key.what for key in told_on(page, view)}
    rows: list[Command] = []
    for digit, name in enumerate(PAGES, 1):
        if name == page or name not in pages:
            continue
        for key in told_on(name, view):
            if key.what not in known and key.action not in _HIDDEN:
                known.add(key.what)
                rows.append(Command(f"{name}: {key.what}", f"{digit} {key.shown}", str(digit), key.brief))
    return rows


def found(commands: Sequence[Command], typed: str) -> list[Command]:
    """Return the commands that contain all typed letters in order; those that contain them contiguously come first.

    Among equal matches, a page whose name starts with the text comes first.
    """
    text = typed.lower().strip()
    if not text:
        return list(commands)
    ranks = [(_rank(f"{one.brief} {one.what}".lower(), text), one) for one in commands]
    ranked = [row for row in ranks if row[0] >= 0]
    return [one for _, one in sorted(ranked, key=lambda row: (row[0], not _is_page(row[1], text)))]


def _is_page(command: Command, text: str) -> bool:
    return command.what.lower().startswith((_PAGE + text, text)) and command.what.startswith(_PAGE)


def _in_one_piece(commands: Sequence[Command], typed: str) -> list[Command]:
    """Return the commands that contain the text contiguously; all commands if the text is empty."""
    text = typed.lower().strip()
    return [one for one in commands if text in f"{one.brief} {one.what}".lower()]


def _rank(what: str, text: str) -> int:
    """Return a rank: 0 if a word starts with the text, 1 if it occurs elsewhere, otherwise by the distance between
    its letters.
    """
    at = what.find(text)
    if at >= 0:
        return 0 if at == 0 or not what[at - 1].isalnum() else 1
    begin = place = -1
    for letter in text.replace(" ", ""):
        place = what.find(letter, place + 1)
        if place < 0:
            return -1
        begin = place if begin < 0 else begin
    return 2 + place - begin


class CommandLines(Text):
    """The typed text and the matching commands."""

    def __init__(self, view: View, commands: Sequence[Command], others: Sequence[Command] = ()) -> None:
        super().__init__(view)
        self._others = others
        self.typed = ""
        self.at = 0
        self._commands = commands

    @property
    def matching(self) -> list[Command]:
        """Return the matching commands; commands of other pages come first if only they contain the text
        contiguously.
        """
        own = found(self._commands, self.typed)
        if _in_one_piece(own, self.typed):
            return own
        others = found(self._others, self.typed)
        return [*_in_one_piece(others, self.typed), *own] or others

    def told(self, cells: int) -> list[Line]:
        matching = self.matching
        top = max(0, min(self.at - ROWS // 2, len(matching) - ROWS))
        rows = [self._row(one, place == self.at, cells) for place, one in enumerate(matching) if place >= top][:ROWS]
        below = len(matching) - top - len(rows)
        count = f"{len(matching)} of {len(self._commands)}" + (f"  +{below} ▼" if below else "")
        head: Line = [
            Segment(": ", palette.ink("key", "panel", bold=True)), Segment(self.typed, palette.ink("strong", "panel")),
            Segment("▌", palette.ink("key", "panel")),
        ]  # fmt: skip
        empty: list[Line] = [[] for _ in range(ROWS - len(rows))]
        if not matching:
            empty[0] = [Segment(f"no command has '{self.typed}'", palette.ink("dim", "panel"))]
        return [spread(head, [Segment(count, palette.ink("faint", "panel"))], cells), [], *rows, *empty]

    def _row(self, command: Command, is_chosen: bool, cells: int) -> Line:
        on = "select" if is_chosen else "panel"
        mark = Segment("▌ " if is_chosen else "  ", palette.ink("key", on))
        key = Segment(f"{command.shown:>6} ", palette.ink("key", on, bold=True))
        what = cut([Segment(command.what, palette.ink("text", on))], cells - 10)
        return spread([mark, *what], [key], cells, palette.ink("text", on))


class Commands(Scrolled):
    """The palette window; Enter runs the selected command. Its width fits the longest description."""

    DEFAULT_CSS = "Commands > VerticalScroll { width: 116; }"

    def __init__(self, view: View, *, page: str, pages: Sequence[str]) -> None:
        able = abilities_of(view)
        own, others = (of(page, pages, able) for of in (commands_of, of_other_pages))
        self.list = CommandLines(view, own, others)
        super().__init__(self.list)

    def on_key(self, event: events.Key) -> None:
        """Handle typing, moving the selection, running a command, and closing."""
        if self.is_closed:
            return
        event.stop()
        event.prevent_default()
        lines, name = self.list, event.key
        if name in ("escape", "ctrl+c", "ctrl+p"):
            self.close()
        elif name == "enter":
            chosen = lines.matching[lines.at : lines.at + 1]
            self.close()
            for command in chosen:
                self.app.post_message(Footer.Pressed(command.key))
        elif name in _STEPS:
            lines.at = max(0, min(lines.at + _STEPS[name], len(lines.matching) - 1))
        elif name in ("backspace", "ctrl+h", "ctrl+u"):
            lines.typed, lines.at = lines.typed[:-1] if name != "ctrl+u" else "", 0
        elif event.is_printable and event.character and len(lines.typed) < _LONGEST:
            lines.typed, lines.at = lines.typed + event.character, 0
        lines.show()

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text."""
        event.stop()
        self.list.typed, self.list.at = (self.list.typed + pasted(event.text))[:_LONGEST], 0
        self.list.show()


_STEPS = {"up": -1, "down": 1, "ctrl+k": -1, "ctrl+j": 1, "pageup": -ROWS, "pagedown": ROWS, "home": -999, "end": 999}
