"""The terminal outlives the view: it is given back whatever ends the view, and when it goes, the view ends.

Textual gives the terminal back when it ends by itself. A signal would end the process before that, and on
a terminal that is gone Textual's reader would read nothing for ever, with all of a core.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread, Timer, main_thread
from types import FrameType

from gpumon.common.errors import GpumonError
from gpumon.common.program import program

ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
GRACE = 1.5
"""Seconds for an orderly end, as on a terminal that takes in what it is sent; then the process ends as it is."""
RESTORE = (
    "\x1b[?2004l\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l"  # pasting, sizes, mouse, focus
    "\x1b[<u\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0m"  # keyboard, alternate screen, wrapping, cursor, colors
    "\x1b[23;2t"  # the title of before
)


def check() -> None:
    """Refuse what is no terminal, or has no cursor. Raises GpumonError."""
    streams = sys.__stdin__, sys.__stdout__
    if not all(stream is not None and stream.isatty() for stream in streams):
        raise GpumonError(f"the terminal view requires a terminal: use '{program()} status' in a script or a pipe")
    if os.environ.get("TERM") == "dumb":
        raise GpumonError(
            f"the terminal view requires cursor control, but TERM is 'dumb': use '{program()} top', "
            f"or '{program()} status' for one look"
        )
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # where the view draws; `sys.stderr` stays what it is


class Guard:
    """Ends the view on a signal and on a terminal that is gone; `end` is called once, with the exit code.

    `end` is called from a signal handler or from another thread.
    """

    def __init__(self, end: Callable[[int], object]) -> None:
        self._end = end
        self._ended = False
        self._terminal = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for as long as the view has the terminal."""
        modes = termios.tcgetattr(self._terminal)

        def force(code: int) -> None:
            _restore(self._terminal, modes)
            os._exit(code)

        def ended(number: int, _: FrameType | None = None) -> None:
            if not self._ended:
                self._ended = True
                timer = Timer(GRACE, force, (128 + number,))
                timer.daemon = True
                timer.start()
                self._end(128 + number)

        before = {number: signal.signal(number, ended) for number in ENDS}
        Thread(target=_until_gone, args=(self._terminal, ended), name="gpumon-terminal", daemon=True).start()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def stop() -> None:
    """Stop this process as Ctrl-Z does elsewhere, with all of its job, such as a `make`; returns when it goes on.

    Without a shell that could let it go on, nothing happens.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.killpg(0, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_kill(main_thread().ident or 0, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def _until_gone(terminal: int, ended: Callable[[int], None]) -> None:
    """Wait, at no cost, for the terminal to hang up."""
    poller = select.poll()
    poller.register(terminal, 0)  # hang-ups and errors are always told
    while not poller.poll():
        pass
    ended(signal.SIGHUP)


def _restore(terminal: int, modes: list[object]) -> None:
    """Give the terminal back as far as it takes anything in; never waits for it."""
    with suppress(OSError, termios.error):
        termios.tcsetattr(terminal, termios.TCSANOW, modes)  # type: ignore[arg-type]
    with suppress(OSError):
        own = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(own, RESTORE.encode())
