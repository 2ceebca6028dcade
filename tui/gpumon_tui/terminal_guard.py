"""Restores the terminal when the view ends for any reason, and ends the view when the terminal goes away.

Textual restores the terminal only on a regular exit. A signal would kill the process first, and after a hang-up
Textual's reader would keep reading nothing, using a full core.
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
from gpumon.common.scratch import remove_scratch_directories

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
EXIT_GRACE = 1.5
"""Seconds allowed for a regular exit; after that the process is terminated.

Enough for a terminal that still accepts output.
"""
RESTORE = (
    "\x1b[?2004l\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l"  # pasting, resizes, mouse, focus
    "\x1b[<u\x1b[?1049l\x1b[?7h\x1b[?25h\x1b[0m"  # keyboard, alternate screen, wrapping, cursor, colors
    "\x1b[23;2t"  # previous title
)


def check_terminal() -> None:
    """Check that the output is a terminal with a movable cursor. Raises GpumonError."""
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


class TerminalGuard:
    """Ends the view on a signal or a hang-up; `end` is called once, with the exit code.

    `end` is called from a signal handler or from another thread.
    """

    def __init__(self, end: Callable[[int], object]) -> None:
        self._end = end
        self._ended = False
        self._terminal = sys.__stdin__.fileno() if sys.__stdin__ is not None else 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch signals and the terminal until the context is left."""
        modes = termios.tcgetattr(self._terminal)

        def force(code: int) -> None:
            _restore(self._terminal, modes)
            remove_scratch_directories()
            os._exit(code)

        def end_once(number: int, _: FrameType | None = None) -> None:
            if not self._ended:
                self._ended = True
                timer = Timer(EXIT_GRACE, force, (128 + number,))
                timer.daemon = True
                timer.start()
                self._end(128 + number)

        previous_handlers = {number: signal.signal(number, end_once) for number in END_SIGNALS}
        Thread(target=_wait_for_hangup, args=(self._terminal, end_once), name="gpumon-terminal", daemon=True).start()
        try:
            yield
        finally:
            # A closed terminal sends several signals. Further ones must not interrupt the exit; `EXIT_GRACE` limits it.
            for number, handler in previous_handlers.items():
                signal.signal(number, signal.SIG_IGN if self._ended else handler)


def suspend_job() -> None:
    """Stop this process with its whole job (such as a `make`), as Ctrl-Z does; returns when it is continued.

    Does nothing if there is no shell that could continue it.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.killpg(0, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_kill(main_thread().ident or 0, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def _wait_for_hangup(terminal: int, on_hangup: Callable[[int], None]) -> None:
    """Block until the terminal hangs up."""
    poller = select.poll()
    poller.register(terminal, 0)  # hang-ups and errors are always reported
    while not poller.poll():
        pass
    on_hangup(signal.SIGHUP)


def _restore(terminal: int, modes: list[object]) -> None:
    """Restore the terminal without ever blocking; stops if the terminal accepts no more output."""
    with suppress(OSError, termios.error):
        termios.tcsetattr(terminal, termios.TCSANOW, modes)  # type: ignore[arg-type]
    with suppress(OSError):
        fd = os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.write(fd, RESTORE.encode())
