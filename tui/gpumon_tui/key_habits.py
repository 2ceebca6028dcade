"""Keys that mean something else in htop, btop, nvtop, nvitop or vim: the help says so where they apply."""

from __future__ import annotations

from typing import NamedTuple

from gpumon_tui.keys import pressed


class Habit(NamedTuple):
    """Use of a key elsewhere, for those whose hands know that."""

    key: str
    """Textual's name of it."""
    action: str
    """Its action here; on pages where it has another one, nothing is said."""
    shown: str
    there: str
    """Effect there, and the key that does that here."""


HABITS = (
    Habit("k", "move", "k", "kill in htop and btop (K on page 3)"),
    Habit("k", "subject", "k", "kill in htop and btop (K on page 3)"),
    Habit("t", "tree", "t", "terminate in btop (K)"),
    Habit("T", "by_time", "T", "terminate in nvitop (K)"),
    Habit("I", "reverse", "I", "interrupt in nvitop (K)"),
    Habit("slash", "filter", "/", "reverse the order in nvitop (I on page 3)"),
    Habit("u", "by_user", "u", "one user's processes in htop (/ user:)"),
    Habit("space", "pause", "Space", "tag in htop and nvitop (on page 3)"),
    Habit("plus", "zoom", "+ -", "turn the order in nvtop, the interval in btop"),
    Habit("left_square_bracket", "seek", "[ ]", "scroll in nvitop (PgUp PgDn)"),
    Habit("left_square_bracket", "pan", "[ ]", "scroll in nvitop"),
    Habit("f2", "theme", "F2", "setup in htop and nvtop"),
    Habit("a", "attention", "a", "layout in nvitop"),
    Habit("r", "report", "r", "refresh in nvitop (^R)"),
    Habit("g", "subject", "g", "first row in vim (Home)"),
    Habit("g", "only_gpu", "g", "first row in vim (Home)"),
    Habit("p", "alike", "p", "another layout in btop"),
)


def habits(page: str) -> list[Habit]:
    """Return those of the keys of a page."""
    return [one for one in HABITS if (key := pressed(page, one.key)) is not None and key.action == one.action]
