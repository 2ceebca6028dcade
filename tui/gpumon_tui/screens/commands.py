"""Command palette: all actions of a page, filtered by typed letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Key

from gpumon_tui import theme
from gpumon_tui.keybindings import DEFAULT_ABILITIES, PAGES, ViewAbilities, action_name, help_keys, press_key
from gpumon_tui.render.text_width import Line, cut, spread
from gpumon_tui.screens.window import ModalWindow, TextWidget, view_abilities
from gpumon_tui.state import View

ROWS = 12
"""Number of rows; fixed, so that the window does not change its size while typing."""
_MAX_TYPED = 40
"""Maximum length of the typed text."""
_HIDDEN = ("commands", "open_page")
_LAST = "quit"
_PAGE = "page: "


class Command(NamedTuple):
    """An action bound to a key."""

    description: str
    label: str
    key: str
    """Textual's name of the key."""
    footer_text: str = ""
    """Its name in the footer, which is searched too."""


def page_commands(page: str, pages: Sequence[str], view: ViewAbilities = DEFAULT_ABILITIES) -> list[Command]:
    """Return the commands of a page: its keys, then the other pages, and quit last.

    The first row is selected on opening and Enter runs it, so quit must not be first.
    """
    others = [Command(f"{_PAGE}{name}", str(digit), str(digit)) for digit, name in enumerate(PAGES, 1) if name in pages]
    keys_of_page = help_keys(page, view)
    keys = [key for key in keys_of_page if action_name(key) not in _HIDDEN]
    rows = [
        (action_name(key) == _LAST, Command(key.tooltip, key.key_display or "", key.key.split(",")[0], key.description))
        for key in keys
    ]
    rows += [(False, command) for command in others]
    return [command for _, command in sorted(rows, key=lambda row: row[0])]


def other_page_commands(page: str, pages: Sequence[str], view: ViewAbilities = DEFAULT_ABILITIES) -> list[Command]:
    """Return the commands that exist only on other pages; each opens the first such page."""
    descriptions = {key.tooltip for key in help_keys(page, view)}
    rows: list[Command] = []
    for digit, name in enumerate(PAGES, 1):
        if name == page or name not in pages:
            continue
        for key in help_keys(name, view):
            if key.tooltip not in descriptions and action_name(key) not in _HIDDEN:
                descriptions.add(key.tooltip)
                label = f"{digit} {key.key_display}"
                rows.append(Command(f"{name}: {key.tooltip}", label, str(digit), key.description))
    return rows


def search_commands(commands: Sequence[Command], typed: str) -> list[Command]:
    """Return the commands that contain all typed letters in order; contiguous matches come first.

    Among equal matches, a page whose name starts with the text comes first.
    """
    text = typed.lower().strip()
    if not text:
        return list(commands)
    ranks = [(_rank(f"{command.footer_text} {command.description}".lower(), text), command) for command in commands]
    ranked = [row for row in ranks if row[0] >= 0]
    return [command for _, command in sorted(ranked, key=lambda row: (row[0], not _is_page(row[1], text)))]


def _is_page(command: Command, text: str) -> bool:
    return command.description.lower().startswith((_PAGE + text, text)) and command.description.startswith(_PAGE)


def _containing(commands: Sequence[Command], typed: str) -> list[Command]:
    """Return the commands that contain the text contiguously; all commands if the text is empty."""
    text = typed.lower().strip()
    return [command for command in commands if text in f"{command.footer_text} {command.description}".lower()]


def _rank(description: str, text: str) -> int:
    """Return a rank: 0 if a word starts with the text, 1 if it occurs elsewhere, otherwise by the distance between
    its letters.
    """
    position = description.find(text)
    if position >= 0:
        return 0 if position == 0 or not description[position - 1].isalnum() else 1
    begin = last = -1
    for letter in text.replace(" ", ""):
        last = description.find(letter, last + 1)
        if last < 0:
            return -1
        begin = last if begin < 0 else begin
    return 2 + last - begin


class CommandLines(TextWidget):
    """The typed text and the matching commands."""

    def __init__(self, view: View, commands: Sequence[Command], others: Sequence[Command] = ()) -> None:
        super().__init__(view)
        self._others = others
        self.typed = ""
        self.cursor = 0
        self._commands = commands

    @property
    def matching(self) -> list[Command]:
        """Return the matching commands; commands of other pages come first if only they contain the text
        contiguously.
        """
        matches = search_commands(self._commands, self.typed)
        if _containing(matches, self.typed):
            return matches
        other_matches = search_commands(self._others, self.typed)
        return [*_containing(other_matches, self.typed), *matches] or other_matches

    def text_lines(self, cells: int) -> list[Line]:
        matching = self.matching
        top = max(0, min(self.cursor - ROWS // 2, len(matching) - ROWS))
        rows = [
            self._row(command, index == self.cursor, cells) for index, command in enumerate(matching) if index >= top
        ][:ROWS]
        hidden = len(matching) - top - len(rows)
        count = f"{len(matching)} of {len(self._commands)}" + (f"  +{hidden} ▼" if hidden else "")
        head: Line = [
            Segment(": ", theme.ink("key", "panel", bold=True)), Segment(self.typed, theme.ink("strong", "panel")),
            Segment("▌", theme.ink("key", "panel")),
        ]  # fmt: skip
        empty: list[Line] = [[] for _ in range(ROWS - len(rows))]
        if not matching:
            empty[0] = [Segment(f"no command has '{self.typed}'", theme.ink("dim", "panel"))]
        return [spread(head, [Segment(count, theme.ink("faint", "panel"))], cells), [], *rows, *empty]

    def _row(self, command: Command, is_chosen: bool, cells: int) -> Line:
        background = "select" if is_chosen else "panel"
        mark = Segment("▌ " if is_chosen else "  ", theme.ink("key", background))
        key = Segment(f"{command.label:>6} ", theme.ink("key", background, bold=True))
        description = cut([Segment(command.description, theme.ink("text", background))], cells - 10)
        return spread([mark, *description], [key], cells, theme.ink("text", background))


class CommandWindow(ModalWindow):
    """The palette window; Enter runs the selected command. Its width fits the longest description."""

    DEFAULT_CSS = "CommandWindow > VerticalScroll { width: 116; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+p", "close"),
        Binding("enter", "run"),
        Binding("up,ctrl+k", "move(-1)"),
        Binding("down,ctrl+j", "move(1)"),
        Binding("pageup", f"move({-ROWS})"),
        Binding("pagedown", f"move({ROWS})"),
        Binding("home", "move(-999)"),
        Binding("end", "move(999)"),
        Binding("backspace,ctrl+h", "erase"),
        Binding("ctrl+u", "clear"),
    ]

    def __init__(self, view: View, *, page: str, pages: Sequence[str]) -> None:
        abilities = view_abilities(view)
        commands, others = (collect(page, pages, abilities) for collect in (page_commands, other_page_commands))
        self.list = CommandLines(view, commands, others)
        super().__init__(self.list)

    def take_key(self, press: Key) -> bool:
        """Insert a typed character."""
        if press.is_printable and press.character:
            self._edit(self.list.typed + press.character)
            return True
        return False

    def paste(self, text: str) -> None:
        """Insert pasted text."""
        self._edit(self.list.typed + text)

    def action_erase(self) -> None:
        """Remove the last character."""
        self._edit(self.list.typed[:-1])

    def action_clear(self) -> None:
        """Remove everything typed."""
        self._edit("")

    def _edit(self, text: str) -> None:
        self.list.typed, self.list.cursor = text[:_MAX_TYPED], 0
        self.list.show()

    def action_move(self, step: int) -> None:
        """Move the selection."""
        self.list.cursor = max(0, min(self.list.cursor + step, len(self.list.matching) - 1))
        self.list.show()

    async def action_run(self) -> None:
        """Close the window and run the selected command."""
        selected = self.list.matching[self.list.cursor : self.list.cursor + 1]
        self.close()
        for command in selected:
            await press_key(self.app.screen, command.key)
