"""Keys are waited for, not looked for.

Textual's thread of keys wakes up ten times a second to see whether it is to end and whether an escape stands alone;
of what the view costs a second, that was a tenth. Here it is woken up instead.
"""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from typing import Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.messages import TerminalSupportsSynchronizedOutput

LOOK = 100
"""Milliseconds between looks while a sequence has begun that may be a key by itself."""
_PIECE = 4096
_ANSWERS = frozenset(b"\x1b[?2026;%d$y" % mode for mode in (1, 2, 3, 4))
"""Answers of a terminal that knows synchronized output; to take one apart cost as much as to draw a row."""


class WaitingDriver(LinuxDriver):
    """Textual's driver with another thread of keys."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._woken, self._wakes = os.pipe()

    def disable_input(self) -> None:
        """End the thread, as before the terminal is given back."""
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._wakes, b"\0")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Hand on what comes from the terminal until the thread is to end."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        poller.register(self.fileno, select.POLLIN)
        while True:
            has_begun = getattr(parser, "_timeout_time", LOOK) is not None
            ready = [descriptor for descriptor, _ in poller.poll(LOOK if has_begun else None)]
            if self._woken in ready:
                os.read(self._woken, _PIECE)
                return
            data = self._read() if ready else None
            if data in _ANSWERS and not has_begun:
                self.process_message(TerminalSupportsSynchronizedOutput())  # each frame is followed by the question
            elif data == b"":
                poller.unregister(self.fileno)  # the terminal is gone; `guard` ends the view
            elif data:
                for message in parser.feed(decode(data)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def _read(self) -> bytes:
        """Bytes that have come; none of a terminal that is gone."""
        try:
            return os.read(self.fileno, _PIECE)
        except OSError:
            return b""
