"""Making the file of a board: whole and locked before it has its name.

The board is held by a POSIX lock, which the kernel drops when the process dies *or closes any
descriptor of that file*. So nothing in this process may open a board of its own again.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import NamedTuple

from gpumon.procfs import boot_id, start_time
from gpumon.run_about import About, encode_about
from gpumon.tags import wire
from gpumon.tags.description import Description, encode

_names: set[str] = set()
"""Every board that this process made."""


class BoardFile(NamedTuple):
    """A board that was just made, with its header and the first version of its description."""

    fd: int
    """Held open: closing it drops the lock."""
    mapped: mmap.mmap
    path: str


def supported() -> bool:
    """Whether boards can be made on this system."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return os.path.exists("/proc/self/stat")


def make_board(
    directory: str, description: Description, monotonic: Callable[[], int], now: Callable[[], int]
) -> BoardFile:
    """Make a board of this process in `directory`. Raises OSError, or BoardError for a description that is too long."""
    import fcntl  # Windows has none

    from gpumon.tags.sweep import sweep

    uid, pid = os.geteuid(), os.getpid()
    name = f"tag.{uid}.{pid}.{os.urandom(4).hex()}"
    _names.add(name)  # before the file exists: another thread may be sweeping
    sweep(directory, uid, _names, now())
    path, unfinished = f"{directory}/{name}", f"{directory}/.{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unfinished, flags, 0o600)
    try:
        # All of it now: a store into a page that no longer fits would kill the process (SIGBUS).
        os.posix_fallocate(fd, 0, wire.SIZE)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mapped = mmap.mmap(fd, wire.SIZE)
        mapped[: wire.HEADER.size] = wire.pack_header(_own_header(pid, monotonic(), now()))
        write_description(mapped, 1, description)
        os.fchmod(fd, 0o644)
        os.rename(unfinished, path)
    except BaseException:
        try:
            os.unlink(unfinished)
        finally:
            os.close(fd)
        raise
    return BoardFile(fd, mapped, path)


def write_description(mapped: mmap.mmap, version: int, description: Description) -> None:
    """Write `description` where its version lies. Raises BoardError when it is too long."""
    text = encode(description)
    offset, header = wire.TEXTS[version & 1], wire.DESCRIPTIONS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire.TEXT_HEADER.size] = wire.pack_text_header(version, text)


def write_about(mapped: mmap.mmap, version: int, about: About) -> About:
    """Write the particulars of the run where their version lies; gives as much of them as had room."""
    text, kept = encode_about(about)
    offset, header = wire.ABOUT_TEXTS[version & 1], wire.ABOUTS[version & 1]
    mapped[offset : offset + len(text)] = text
    mapped[header : header + wire.TEXT_HEADER.size] = wire.pack_text_header(version, text)
    return kept


def _own_header(pid: int, monotonic_ns: int, now: int) -> wire.BoardHeader:
    started, boot = start_time(), boot_id()
    if not started or not any(boot):
        raise OSError("/proc does not give the start time of this process, or the boot id")
    return wire.BoardHeader(
        size=wire.SIZE,
        pid=pid,
        parent=os.getppid(),
        started=started,
        pid_namespace=os.stat("/proc/self/ns/pid").st_ino,
        time_namespace=os.stat("/proc/self/ns/time").st_ino if os.path.exists("/proc/self/ns/time") else 0,
        boot_id=boot,
        monotonic_ns=monotonic_ns,
        time_ns=now,
    )
