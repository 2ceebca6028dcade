"""Prepares a training process to write its Python stacks, so that `gpumon hang` can show where it waits.

faulthandler writes the stacks of all threads when the process gets the signal SIGURG. This also works while a thread
holds the GIL or waits for a lock. The stacks go to an anonymous file in memory (memfd), which only processes of the
same user can open, by `/proc/<pid>/fd`. Its name in that directory shows readers that the process is prepared.

The program is never disturbed. By default, the kernel ignores SIGURG. So the signal does nothing if it arrives late,
or in a program that the process has started. If the program has a handler for the signal, nothing is prepared. If it
installs one later, or closes the file, no signal is sent. System calls that the signal interrupts are restarted.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

NAME = "gpumon-stacks"
"""Name of the file. `/proc/<pid>/fd` shows it as `/memfd:gpumon-stacks (deleted)`."""
SIGNAL: Any = getattr(signal, "SIGURG", None)
_file: tuple[int, int] | None = None
"""Descriptor and inode of the file, if this process, or the process from which it was forked, is prepared."""
_CHECK_EVERY = 1_000_000_000
_check_at = 0


def prepare() -> None:
    """Prepare this process, if that is possible. Does nothing if it is already prepared."""
    global _file
    if _file is not None or SIGNAL is None or not hasattr(os, "memfd_create") or _is_used():
        return
    try:
        import faulthandler
        import fcntl

        fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
        # A forked child shares the position in the file, and readers truncate the file.
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        _file = fd, os.fstat(fd).st_ino
        faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)
    except (ImportError, OSError, ValueError, RuntimeError, AttributeError):  # a system that does not permit it
        withdraw()


def check(now: int) -> None:
    """Stop offering stacks if the program has closed the file, or has installed a handler for the signal.

    Checks at most once a second. `now`: ns of CLOCK_MONOTONIC.
    """
    global _check_at
    if _file is not None and now >= _check_at:
        _check_at = now + _CHECK_EVERY
        if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
            withdraw()
        elif not _is_open(*_file):
            _unregister()


def withdraw() -> None:
    """Close the file, so that no reader sends the signal any more. A handler of the program is not changed."""
    global _file
    file, _file = _file, None
    if file is not None and _is_open(*file):
        os.close(file[0])


def _unregister() -> None:
    """Remove the handler, because its descriptor may now belong to another file of the program."""
    global _file
    import faulthandler

    _file = None
    faulthandler.unregister(SIGNAL)


def _is_open(fd: int, inode: int) -> bool:
    try:
        return os.fstat(fd).st_ino == inode
    except OSError:
        return False


def _is_used() -> bool:
    """Whether the program handles or ignores the signal, in Python or in C. Also True if that cannot be read."""
    pid = os.getpid()
    is_default = signal.getsignal(SIGNAL) is signal.SIG_DFL
    return not (is_default and has_handler(pid, SIGNAL) is False and has_handler(pid, SIGNAL, mask="SigIgn") is False)


def has_handler(pid: int, number: int, mask: str = "SigCgt", proc: str = "/proc") -> bool | None:
    """Return whether a process has a handler for a signal; None if that cannot be read.

    `mask`: name of the line in `/proc/<pid>/status`; "SigIgn" tells whether the process ignores the signal.
    """
    with suppress(OSError, ValueError), open(f"{proc}/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(mask.encode() + b":"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return None
