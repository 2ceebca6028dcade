"""A real terminal, tmux, with a program in it: its screen, keys and mouse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from tests.programs import PATIENCE, until

ESCAPE = "\x1b[27u"
"""The key, in a way that makes no other one of it with the letter behind it."""


_numbers = count()


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, tmux: str, directory: Path, env: Mapping[str, str], words: list[str], size: str) -> None:
        columns, rows = size.split("x")
        # A socket for each: the server before may be ending still, and would take the new window with it.
        self._tmux = [tmux, "-u", "-S", str(directory / f"tmux-{next(_numbers)}"), "-f", os.devnull]
        self._env = {**env, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        self("new-session", "-d", "-x", columns, "-y", rows, *words)

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], env=self._env, capture_output=True, text=True, check=False)
        return done.stdout

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        self("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type letters as they are."""
        self("send-keys", "-l", text)

    def send(self, sequence: str) -> None:
        """Send what a terminal would, byte by byte."""
        self("send-keys", "-H", *(f"{byte:02x}" for byte in sequence.encode()))

    def click(self, column: int, row: int) -> None:
        """Press and let go the left button; columns and rows count from 0."""
        self.send(f"\x1b[<0;{column + 1};{row + 1}M\x1b[<0;{column + 1};{row + 1}m")

    def click_on(self, text: str, which: int = 0) -> None:
        """Click on the first letter of a text on screen."""
        found = [(row, line.index(text)) for row, line in enumerate(self.screen().splitlines()) if text in line]
        row, column = found[which]
        self.click(column, row)

    def wheel(self, column: int, row: int, down: bool = True) -> None:
        """Turn the wheel one notch."""
        self.send(f"\x1b[<{65 if down else 64};{column + 1};{row + 1}M")

    def drag(self, column: int, row: int, to: int) -> None:
        """Drag from one column to another with the left button."""
        step = 1 if to > column else -1
        moves = "".join(f"\x1b[<32;{at + 1};{row + 1}M" for at in range(column + step, to + step, step))
        self.send(f"\x1b[<0;{column + 1};{row + 1}M{moves}\x1b[<0;{to + 1};{row + 1}m")

    def resize(self, columns: int, rows: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(rows))

    def is_over(self) -> bool:
        return "no server" in (done := self._list()) or not done.strip()

    def _list(self) -> str:
        done = subprocess.run([*self._tmux, "ls"], env=self._env, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def close(self) -> None:
        self("kill-server")


def shown(terminal: Terminal, *texts: str, timeout: float = PATIENCE) -> str:
    """The screen, once all of these are on it."""

    def look() -> str | None:
        screen = terminal.screen()
        return screen if all(text in screen for text in texts) else None

    try:
        return until(look, timeout)
    except AssertionError:
        raise AssertionError(f"{texts} did not all come on screen:\n{terminal.screen()}") from None
