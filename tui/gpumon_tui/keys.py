"""The keys: one table for the bindings, the line at the foot, and the help."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding, BindingType


class Key(NamedTuple):
    """A key and what it does."""

    keys: str
    """As Textual names them, separated by commas."""
    action: str
    shown: str
    what: str
    """For the help; a key that is told of beside another has none."""
    brief: str = ""
    """For the line at the foot; empty where there is no room for it."""


KEYS = (
    Key("q,ctrl+c", "quit", "q", "quit", "quit"),
    Key("ctrl+z", "suspend_process", "^Z", "suspend; 'fg' in the shell resumes"),
    Key("question_mark,h,f1", "help", "?", "this help", "help"),
    Key("g,right", "subject(1)", "g G", "next or previous GPU (also → ←); the host follows the last", "GPU"),
    Key("G,left", "subject(-1)", "", ""),
    Key("m", "panel(1)", "m M", "next or previous metric", "metric"),
    Key("M", "panel(-1)", "", ""),
    Key("plus,equals_sign", "zoom(-1)", "+ -", "shorter or longer time window, 2 seconds to 31 days", "window"),
    Key("minus", "zoom(1)", "", ""),
    Key("space", "pause", "space", "pause the display; sampling continues, a recording stands still", "pause"),
    Key("left_square_bracket", "seek(-60)", "[ ]", "a recording: back or forward a minute; { } ten minutes"),
    Key("right_square_bracket", "seek(60)", "", ""),
    Key("left_curly_bracket", "seek(-600)", "", ""),
    Key("right_curly_bracket", "seek(600)", "", ""),
    Key("tab,shift+tab", "table", "tab", "processes or runs", "table"),
    Key("enter", "open", "enter", "open or close a run: its problems and its ranks", "ranks"),
    Key(
        "less_than_sign,comma,shift+left",
        "pan(-1)",
        "< >",
        "charts: half a window back or forward; also shift ← →",
        "past",
    ),
    Key("greater_than_sign,full_stop,shift+right", "pan(1)", "", ""),
    Key("0", "to_now", "0", "charts: from the past back to now"),
    Key("s", "simulate", "s", "if no GPU can be read: switch to a simulation and back"),
    Key("a", "attention", "a", "what needs attention, the selected GPU and run first"),
    Key("up,k", "move(-1)", "↑ ↓", "move in a table; PgUp PgDn Home End too"),
    Key("down,j", "move(1)", "", ""),
    Key("pageup", "page(-1)", "", ""),
    Key("pagedown", "page(1)", "", ""),
    Key("home", "move(-1000000)", "", ""),
    Key("end", "move(1000000)", "", ""),
)

BINDINGS: list[BindingType] = [
    Binding(key.keys, key.action, key.what, show=False, priority="tab" in key.keys or "ctrl" in key.keys)
    for key in KEYS
]
FOOT = tuple((key.shown, key.brief) for key in KEYS if key.brief)
