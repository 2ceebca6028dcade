"""Temporary directories of views, which do not outlive a view that is killed for longer than until the next one starts.

A view holds a lock on its directory. The kernel releases it when the process ends, however that happens.
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
"""Minimum age in seconds of a directory without a lock that is removed. A younger one may be about to be locked."""
_in_use: set[str] = set()


@contextmanager
def scratch_directory(view: str) -> Iterator[str]:
    """Yield a new directory for the ledger of a view (`tui` or `web`), and remove it when the context is left.

    It is also removed if a signal ends the process that nothing else handles. Directories of this user's views that
    were killed are removed first. Raises GpumonError if no directory can be created.
    """
    try:
        parent = tempfile.gettempdir()
    except OSError as error:  # it tries to write to each
        raise GpumonError("no temporary directory has room or may be written to: set TMPDIR to one") from error
    _remove_abandoned(parent)
    _handle_signals()
    path = f"{parent}/gpumon-{view}-{secrets.token_hex(8)}"
    _in_use.add(path)
    fd = None
    try:
        try:
            os.mkdir(path, 0o700)  # in here, because Ctrl-C may raise KeyboardInterrupt at any time
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
    """Remove the directories that are in use, for a process that is about to end without leaving their contexts."""
    for path in [*_in_use]:
        _remove(path)


def _handle_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    """End the process by the signal, as without a handler. An exception could be lost, for example in a destructor."""
    remove_scratch_directories()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _remove_abandoned(parent: str) -> None:
    """Remove the directories of this user's views that have ended without removing them."""
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
    """Open and lock a directory, and return its descriptor; None if another process has locked it, or on any error."""
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
    """Remove a directory with its ledgers. A directory with anything else in it stays, because it is not a view's."""
    with suppress(OSError):
        for name in os.listdir(path):
            if name.startswith(LEDGER):
                with suppress(OSError):
                    os.unlink(f"{path}/{name}")
        os.rmdir(path)
