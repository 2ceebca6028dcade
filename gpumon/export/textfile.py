"""Metrics as a file for node_exporter's textfile collector, replaced as a whole: nobody reads half of it.

Whoever keeps a file holds a lock on it, so that a second exporter neither writes it in turn nor removes it at its end.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gpumon.common.errors import GpumonError
from gpumon.export.scrape import Exporter

EVERY = 15.0
"""Seconds between two writes."""
_MODE = 0o644
"""Whatever the umask is: node_exporter is another user."""


class StopEvent(Protocol):
    """An event, such as that of `threading`."""

    def wait(self, timeout: float, /) -> bool:
        """Return whether it has come, after so many seconds at most."""


def write_textfile(exporter: Exporter, file: str) -> None:
    """Write the file once. Raises GpumonError with why that cannot be."""
    os.close(_written(exporter, file))


def keep_textfile(
    exporter: Exporter, file: str, stop: StopEvent, every: float = EVERY, say: Callable[[str], None] = lambda _: None
) -> None:
    """Write the file until `stop`, then remove it: what nobody writes any more must not look like now.

    Raises GpumonError where it cannot be written at first. What fails later is told to `say`, once, and tried again;
    meanwhile there is no file: to remove one takes no room on a full disk.
    """
    held, problem = _written(exporter, file), ""
    try:
        while not stop.wait(every):
            try:
                newer = _written(exporter, file, held)
            except GpumonError as error:
                if str(error) != problem:
                    say(str(error))
                problem = str(error)
                _remove(file, held)
                continue
            os.close(held)
            held = newer
            if problem:
                say(f"writes {file} again")
            problem = ""
    finally:
        _remove(file, held)
        os.close(held)


def _remove(file: str, held: int) -> None:
    """Remove the file if it is still the one of which we hold the descriptor."""
    with suppress(OSError):
        if os.path.samestat(os.stat(file), os.fstat(held)):
            os.unlink(file)


def _written(exporter: Exporter, file: str, held: int = -1) -> int:
    """Replace the file, of which we hold the descriptor `held`, or none; return the one of the new file, locked."""
    # Not `*.prom`: node_exporter would read this one, too.
    beside = f"{file}.{os.getpid()}"
    try:
        _refuse_another(file, held)
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, _MODE)
            with open(fd, "wb", closefd=False) as opened:
                opened.write(exporter.scrape().body)
            os.replace(beside, file)
        except BaseException:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise GpumonError(f"cannot write {file}: {error.strerror or error}") from error
    return fd


def _refuse_another(file: str, held: int) -> None:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # one that cannot be read is none of ours: they have mode 0644
    try:
        if held >= 0 and os.path.samestat(os.fstat(fd), os.fstat(held)):
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise GpumonError(f"another gpumon export keeps {file}: stop it, or pass another --textfile") from error
        is_replaced = os.fstat(fd).st_nlink == 0
    finally:
        os.close(fd)
    if is_replaced:  # between opening and locking: whoever did that holds the next one
        _refuse_another(file, held)
