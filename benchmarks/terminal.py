"""A terminal of 160x50 that reads everything, answers what a terminal answers, and counts.

The drawing is read by this process, so a program's CPU has none of the terminal's own.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from benchmarks.stage import Place
from benchmarks.usage import ROOT

COLUMNS, LINES = 160, 50
_ANSWERS = (
    (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),  # synchronized output: known; asked behind each frame by gpumon
    (b"\x1b[?2048$p", b"\x1b[?2048;0$y"),  # resize events in band: not known
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[c", b"\x1b[?62;22c"),
)
_REFRESH, _PAUSE = 1.5, 0.15
"""Seconds within which a program draws anew, and for which it is quiet behind that."""
_FRAME_PAUSE = 0.01
"""Seconds without a byte that end a frame."""
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78]|P[^\x1b]*\x1b\\)")

Complete = Callable[[str], bool]
"""Tells from the text drawn so far whether the first frame is whole."""


def plain(stream: bytes) -> str:
    """The written text, each escape sequence as one space."""
    return _ESCAPES.sub(b" ", stream).decode("utf-8", "replace")


class Terminal:
    """One program in a terminal."""

    def __init__(self, command: Sequence[str], place: Place, complete: Complete | None = None) -> None:
        self.received = 0
        self.first_frame: float | None = None
        """Seconds from the start to the first whole frame."""
        self.complete = Event()
        self._came = Event()
        """Set by each byte that comes."""
        self._last = 0.0
        """When the last byte came."""
        self._complete = complete
        self._text = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=place.env, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def press(self, key: bytes, timeout: float = 5.0, *, whole: bool = False) -> float:
        """Write a key once the program is quiet; return the seconds until it sends something, `timeout` at most.

        With `whole`, until the end of the first frame: the last byte before a pause.
        """
        self._quiet()
        self._came.clear()
        begun = time.perf_counter()
        os.write(self._master, key)
        self._came.wait(timeout)
        answered = time.perf_counter() - begun
        if whole:
            while self._came.is_set() and answered < timeout:
                answered = self._last - begun
                self._came.clear()
                self._came.wait(_FRAME_PAUSE)
        return answered

    def _quiet(self) -> None:
        """Wait for the end of a refresh, so that the next one is not taken for an answer."""
        self._came.clear()
        self._came.wait(_REFRESH)
        while self._came.is_set():
            self._came.clear()
            self._came.wait(_PAUSE)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(timeout=5)
        os.close(self._master)

    def shown(self) -> str:
        """The text of the beginning, for messages."""
        return plain(self._text[-4000:])

    def _read(self) -> None:
        tail = b""
        while True:
            try:
                piece = os.read(self._master, 1 << 16)
            except OSError:  # EIO: the program has ended
                return
            if not piece:
                return
            self.received += len(piece)
            self._last = time.perf_counter()
            self._came.set()
            # A question cut in two by a read is found with the end of the piece before.
            joined = tail + piece
            for question, answer in _ANSWERS:
                for _ in range(joined.count(question) - tail.count(question)):
                    os.write(self._master, answer)
            tail = joined[-8:]
            if self._complete is not None and self.first_frame is None:
                self._text += piece
                if self._complete(plain(self._text)):
                    self.first_frame = time.perf_counter() - self._begun
                    self.complete.set()


@contextmanager
def in_terminal(command: Sequence[str], place: Place, complete: Complete | None = None) -> Iterator[Terminal]:
    """A program in a terminal, for the length of a block, in which it must not end."""
    terminal = Terminal(command, place, complete)
    try:
        yield terminal
        if terminal.process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended by itself: {terminal.shown()}")
    finally:
        terminal.close()
