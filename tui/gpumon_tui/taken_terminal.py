"""The terminal from the first picture until the view takes it over: keys wait unseen, and it is left as it was."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

BEGIN = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""
WIDTH_ASKED = "\x1b[2;1H●\x1b[6n"
"""A letter of ambiguous width, and the question where the cursor is then; the first picture covers it."""
_END = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOCAL = 3
"""The place of the local modes in what `tcgetattr` returns."""


class TakenTerminal:
    """A terminal in which a picture stands that the view will replace."""

    def __init__(self, terminal: int, screen: int) -> None:
        self.modes = termios.tcgetattr(terminal)
        """Those of before."""
        self.is_taken = False
        self._terminal, self._screen = terminal, screen

    def take(self, picture: str) -> None:
        """Show a picture; Ctrl-C ends the program as before. Raises OSError and termios.error."""
        quiet = termios.tcgetattr(self._terminal)
        quiet[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
        self.is_taken = True
        termios.tcsetattr(self._terminal, termios.TCSANOW, quiet)
        rest = (BEGIN + picture).encode()
        while rest:
            rest = rest[os.write(self._screen, rest) :]

    def hand_over(self) -> bool:
        """Give the modes back to who takes over; whether the screen is the alternate one, with a picture."""
        was_taken, self.is_taken = self.is_taken, False
        if was_taken:
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSANOW, self.modes)
        return was_taken

    def give_back(self) -> None:
        """Leave the terminal as it was, unless somebody has taken over."""
        if self.hand_over():
            with suppress(OSError):
                os.write(self._screen, _END.encode())


@contextmanager
def taken(terminal: int, screen: int) -> Iterator[TakenTerminal]:
    """Take a terminal, given the descriptors by which it is read and written, for as long as nobody takes over."""

    def ended(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    found = TakenTerminal(terminal, screen)
    before = {number: signal.signal(number, ended) for number in _ENDS}
    try:
        yield found
    finally:
        found.give_back()
        for number, handler in before.items():
            signal.signal(number, handler)
