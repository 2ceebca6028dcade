"""Temporary directories of views. If a view is killed, the next view that starts removes its directory.

A view holds a lock on its directory. The kernel releases the lock when the process ends, even if the process is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpumon.common.errors import GpumonError
from gpumon.common.paths import LEDGER

_NAME = re.compile(r"gpumon-(?:tui|web)-[0-9a-f]{16}", re.ASCII)
_MIN_AGE = 60.0
"""A directory without a lock is removed only if it is at least this many seconds old. The owner of a younger directory
may be about to lock it."""
_REMOVALS = 10
"""Number of times that the removal of a directory is tried."""
_in_use: set[str] = set()


@contextmanager
def scratch_directory(view: str) -> Iterator[str]:
    """Yield a new directory for the ledger of a view (`tui` or `web`), and remove it when the context is left.

    The directory is also removed if the process is ended by a signal for which there is no other handler. Directories
    that killed views of this user left behind are removed first. Raises GpumonError if no directory can be created.
    """
    try:
        parent = tempfile.gettempdir()
    except OSError as error:  # gettempdir tries to write to each candidate
        raise GpumonError("no temporary directory can be written to: set TMPDIR to another directory") from error
    _remove_abandoned(parent)
    _handle_signals()
    path = f"{parent}/gpumon-{view}-{secrets.token_hex(8)}"
    _in_use.add(path)
    fd = None
    try:
        try:
            os.mkdir(path, 0o700)  # within `try`, because Ctrl-C may raise KeyboardInterrupt at any time
        except OSError as error:
            raise GpumonError(f"cannot create {path}: {error.strerror}: set TMPDIR to another directory") from error
        fd = _open_locked(path)
        yield path
    finally:
        _remove(path)
        _in_use.discard(path)
        if fd is not None:
            os.close(fd)


def remove_scratch_directories() -> None:
    """Remove the directories in use. Called when the process is about to end without leaving their contexts."""
    for path in [*_in_use]:
        _remove(path)


def _handle_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    """End the process by the signal, as if there were no handler.

    An exception might be swallowed, as in a destructor.
    """
    remove_scratch_directories()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _remove_abandoned(parent: str) -> None:
    """Remove the directories that views of this user left behind."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and _is_own_and_old(entry) and (fd := _open_locked(entry.path)) is not None:
                _remove(entry.path)
                os.close(fd)


def _is_own_and_old(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        is_directory = entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
    return is_directory and status.st_uid == os.geteuid() and time.time() - status.st_mtime > _MIN_AGE


def _open_locked(path: str) -> int | None:
    """Open and lock a directory, and return its descriptor.

    None after an error, or if another process holds the lock.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(path: str) -> None:
    """Remove a directory with its ledgers. If it contains any other file, keep it, because no view created it.

    A thread of this process may be writing its ledger, and create a file after the directory was listed.
    """
    for _ in range(_REMOVALS):
        with suppress(OSError):
            for name in os.listdir(path):
                if name.startswith(LEDGER):
                    with suppress(OSError):
                        os.unlink(f"{path}/{name}")
            os.rmdir(path)
            return
