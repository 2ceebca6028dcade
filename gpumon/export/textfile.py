"""Writes the metrics to a file for the textfile collector of node_exporter. Each write replaces the file atomically.

The writer holds a lock on the file, so that no other exporter overwrites or removes it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gpumon.common.errors import GpumonError
from gpumon.export.scrape import Exporter

INTERVAL = 15.0
"""Seconds between two writes of the file."""
_MODE = 0o644
"""File mode. The umask does not apply, because node_exporter runs as another user."""


class StopEvent(Protocol):
    """An event that can be waited for, such as `threading.Event`."""

    def wait(self, timeout: float, /) -> bool:
        """Wait for at most `timeout` seconds. Return True if the event is set."""


def write_textfile(exporter: Exporter, file: str) -> None:
    """Write the file once. Raises GpumonError if that fails."""
    os.close(_replace(exporter, file))


def maintain_textfile(
    exporter: Exporter, file: str, stop: StopEvent, interval: float = INTERVAL,
    log: Callable[[str], None] = lambda _: None,
) -> None:  # fmt: skip
    """Write the file every `interval` seconds until `stop` is set, and then remove it.

    The file is removed because its values would otherwise look current. Raises GpumonError if the first write fails. If
    a later write fails, this is logged once, and the file is removed (which works even on a full disk). Writing is then
    tried again at each interval.
    """
    fd, problem = _replace(exporter, file), ""
    try:
        while not stop.wait(interval):
            try:
                new_fd = _replace(exporter, file, fd)
            except GpumonError as error:
                if str(error) != problem:
                    log(str(error))
                problem = str(error)
                _remove(file, fd)
                continue
            os.close(fd)
            fd = new_fd
            if problem:
                log(f"can write {file} again")
            problem = ""
    finally:
        _remove(file, fd)
        os.close(fd)


def _remove(file: str, fd: int) -> None:
    """Remove the file if the descriptor `fd` still refers to it."""
    with suppress(OSError):
        if os.path.samestat(os.stat(file), os.fstat(fd)):
            os.unlink(file)


def _replace(exporter: Exporter, file: str, current: int = -1) -> int:
    """Replace the file, and return a locked descriptor of the new file.

    `current`: our descriptor of the existing file, or -1 if there is no file.
    """
    temporary = f"{file}.{os.getpid()}"  # not `*.prom`, which node_exporter would read
    try:
        _check_lock(file, current)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, _MODE)
            with open(fd, "wb", closefd=False) as stream:
                stream.write(exporter.scrape())
            os.replace(temporary, file)
        except BaseException:
            os.close(fd)
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise GpumonError(f"cannot write {file}: {error.strerror or error}") from error
    return fd


def _check_lock(file: str, current: int) -> None:
    """Raise GpumonError if another exporter has locked the file. `current`: our descriptor of the file, or -1."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # a file without read permission was not written by an exporter: exporters use mode 0644
    try:
        if current >= 0 and os.path.samestat(os.fstat(fd), os.fstat(current)):
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise GpumonError(f"another gpumon export writes {file}: stop it, or pass another --textfile") from error
        is_replaced = os.fstat(fd).st_nlink == 0
    finally:
        os.close(fd)
    if is_replaced:  # another exporter replaced the file before we locked it, and may have locked the new file
        _check_lock(file, current)
