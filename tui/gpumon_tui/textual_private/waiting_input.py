"""Keyboard input that blocks instead of polling.

Textual's key thread wakes up ten times a second to check whether it should stop and whether an escape is a key of its
own; this took a tenth of the view's CPU time when idle. Here the thread is woken up only when needed.
"""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from typing import Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.messages import TerminalSupportsSynchronizedOutput

POLL_MS = 100
"""Polling interval in milliseconds while an unfinished escape sequence may be a key of its own."""
_CHUNK = 4096
_ANSWERS = frozenset(b"\x1b[?2026;%d$y" % mode for mode in (1, 2, 3, 4))
"""Answers of terminals that know synchronized output; parsing one cost as much as drawing a row."""


class WaitingDriver(LinuxDriver):
    """Textual's driver with a different key thread."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._wake_read, self._wake_write = os.pipe()

    def disable_input(self) -> None:
        """Stop the key thread, before the terminal is restored."""
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._wake_write, b"\0")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Forward terminal input until the thread is stopped."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        poller.register(self.fileno, select.POLLIN)
        while True:
            has_begun = getattr(parser, "_timeout_time", POLL_MS) is not None
            ready = [descriptor for descriptor, _ in poller.poll(POLL_MS if has_begun else None)]
            if self._wake_read in ready:
                os.read(self._wake_read, _CHUNK)
                return
            data = self._read() if ready else None
            if data in _ANSWERS and not has_begun:
                self.process_message(TerminalSupportsSynchronizedOutput())  # the query follows each frame
            elif data == b"":
                poller.unregister(self.fileno)  # the terminal is gone; `terminal_guard` ends the view
            elif data:
                for message in parser.feed(decode(data)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def _read(self) -> bytes:
        """Return the available bytes; empty if the terminal is gone."""
        try:
            return os.read(self.fileno, _CHUNK)
        except OSError:
            return b""
