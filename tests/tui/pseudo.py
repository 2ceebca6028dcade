"""A pseudo terminal with a program in it, for tests of how the program leaves a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any

from tests.programs import PATIENCE

MODES = {"alternate screen": "?1049", "mouse": "?1003", "pasting": "?2004", "focus": "?1004"}


class Pseudo:
    """A program that has a terminal of its own; with `controlling`, a closed terminal sends it SIGHUP."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], *, controlling: bool = True, term: str = "xterm-256color"
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, pack("HHHH", 30, 100, 0, 0))
        self._slave = slave
        self.before = self.modes()

        def take() -> None:
            if controlling:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.program: subprocess.Popen[bytes] = subprocess.Popen(
            words, env={**env, "TERM": term}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=take,
        )  # fmt: skip
        self.output = ""
        self._decoder = getincrementaldecoder("utf-8")("replace")  # a read may end within a character

    def modes(self) -> list[Any]:
        """The settings of the terminal, as `stty` knows them."""
        return termios.tcgetattr(self._slave)

    def read(self, seconds: float = 0.2) -> str:
        """What comes within some time, until there is none."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                self.output += self._decoder.decode(os.read(self.master, 65536))
            except OSError:  # nobody has the terminal any more
                break
        return self.output

    def until(self, text: str, seconds: float = PATIENCE) -> None:
        """Read until a text has come."""
        end = time.monotonic() + seconds
        while text not in self.read(0.1):
            assert time.monotonic() < end, f"{text!r} did not come: {self.output[-2000:]}"

    def hang_up(self) -> None:
        """Close the terminal, as a window or a connection does."""
        os.close(self._slave)
        os.close(self.master)
        self._slave = self.master = -1

    def ended(self, seconds: float = PATIENCE) -> int:
        """The exit code of the program, which ends within some time."""
        end = time.monotonic() + seconds
        while self.program.poll() is None:
            assert time.monotonic() < end, "it goes on"
            if self.master >= 0:
                self.read(0.05)
            else:
                time.sleep(0.05)
        if self.master >= 0:
            self.read()
        return self.program.returncode

    def left_behind(self) -> list[str]:
        """What the program switched on in the terminal and left so."""
        on = [name for name, mode in MODES.items() if f"[{mode}h" in self.output.rpartition(f"[{mode}l")[2]]
        if "[?25l" in self.output.rpartition("[?25h")[2]:
            on.append("hidden cursor")
        if self.modes() != self.before:
            on.append("modes")
        return on

    def close(self) -> None:
        """End the program, whatever it does."""
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        for fd in (self.master, self._slave):
            if fd >= 0:
                os.close(fd)
