"""The begin of the view beside a daemon: a picture at once, while all else is imported behind it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpumon_tui.feed import FrameFeed
from gpumon_tui.first_picture import first_picture, first_terminal, first_view
from gpumon_tui.instead import RestartDaemon
from gpumon_tui.remembered import Remembered, path_of
from gpumon_tui.taken_terminal import WIDTH_ASKED, TakenTerminal, taken

_OF_TEXTUAL = "TEXTUAL_COLOR_SYSTEM"
"""A variable by which Textual may be told of other colors than the terminal's own."""


@contextmanager
def begun(
    feed: FrameFeed, *, interval: float, has_simulation: bool, readonly: bool, restart: RestartDaemon
) -> Iterator[TakenTerminal | None]:
    """Show the first picture, and give the terminal back unless the view has taken it over; None if there is none.

    What goes wrong here is left to the view to meet and to tell.
    """
    if sys.__stdin__ is None or sys.__stderr__ is None or _OF_TEXTUAL in os.environ:
        yield None
        return
    screen = sys.__stderr__
    with taken(sys.__stdin__.fileno(), screen.fileno()) as terminal:
        with suppress(Exception):
            remembered = Remembered(path_of(os.environ))
            told = os.get_terminal_size(screen.fileno())
            size = os.terminal_size((told.columns or 80, told.lines or 24))  # as Textual takes a serial console's 0 × 0
            there = first_terminal(os.environ, screen.encoding, remembered.get("theme"), size)
            view = first_view(feed, there.look, remembered, interval=interval, has_simulation=has_simulation)
            view.is_readonly = readonly
            if picture := first_picture(view, there, restart):
                terminal.take(("" if there.look.is_ascii else WIDTH_ASKED) + picture)
        yield terminal if terminal.is_taken else None
