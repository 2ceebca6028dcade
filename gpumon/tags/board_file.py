"""Making the file of a board: whole and locked before it has its name.

The board is held by a POSIX lock, which the kernel drops when the process dies *or closes any
descriptor of that file*. So nothing in this process may open a board of its own again.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.procfs import boot_id, start_time
from gpumon.model.run import About, encode_about
from gpumon.tags import wire
from gpumon.tags.description import Description, encode

Inode = tuple[int, int]
"""A file: its device, and its number there."""
_UNKNOWN = -2
"""A descriptor that another thread took meanwhile."""
_names: set[str] = set()
"""Every board that this process made."""


class BoardFile(NamedTuple):
    """A board that was just made, with its header and the first version of its description."""

    fd: int
    """Held open: closing it drops the lock."""
    mapped_fd: int
    """The descriptor that the mapping has for itself, and closes with itself; -1 where it has none."""
    mapped: mmap.mmap
    path: str
    place: Inode


def is_open(fd: int, place: Inode) -> bool:
    """Whether `fd` is still a descriptor of the file at `place`: another library may have closed it."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == place


def is_there(path: str, place: Inode) -> bool:
    """Whether `path` is still a name of the file at `place`; also where that cannot be found out."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return (found.st_dev, found.st_ino) == place


def supported() -> bool:
    """Whether boards can be made on this system. Raises what keeps Python from loading a module that is there."""
    try:
        import fcntl  # noqa: F401
    except ModuleNotFoundError:
        return False
    return os.path.exists("/proc/self/stat")


def make_board(
    directory: str,
    description: Description,
    monotonic: Callable[[], int],
    now: Callable[[], int],
    before: tuple[str, mmap.mmap] | None = None,
) -> BoardFile:
    """Make a board of this process in `directory`; `before`: the name and content of the one that it replaces.

    Raises OSError, or BoardError for a description that is too long.
    """
    import fcntl  # Windows has none

    from gpumon.tags.sweep import sweep

    uid, pid = os.geteuid(), os.getpid()
    name = before[0] if before else f"tag.{uid}.{pid}.{os.urandom(4).hex()}"
    _names.add(name)  # before the file exists: another thread may be sweeping
    sweep(directory, uid, _names, now())
    path, unfinished = f"{directory}/{name}", f"{directory}/.{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unfinished, flags, 0o600)
    try:
        # All of it now: a store into a page that no longer fits would kill the process (SIGBUS).
        os.posix_fallocate(fd, 0, wire.SIZE)
        found = os.fstat(fd)
        place = (found.st_dev, found.st_ino)
        mapped, mapped_fd = _map(fd, place)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # last: closing any descriptor of the file would drop it
        if before:
            mapped[:] = before[1][:]
        else:
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
    return BoardFile(fd, mapped_fd, mapped, path, place)


def lock_again(file: BoardFile) -> BoardFile:
    """The board with its lock, which is lost with any descriptor of it that something else closes. Raises OSError."""
    import fcntl

    fd = file.fd
    if not is_open(fd, file.place):
        fd = os.open(file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with suppress(BlockingIOError):  # another process has locked it: that is none of ours
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    is_kept = file.mapped_fd < 0 or is_open(file.mapped_fd, file.place)
    return file._replace(fd=fd, mapped_fd=file.mapped_fd if is_kept else _UNKNOWN)


def _map(fd: int, place: Inode) -> tuple[mmap.mmap, int]:
    """Map the board, and find out which descriptor the mapping duplicates for itself: the lowest that is free."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, wire.SIZE, trackfd=False), -1
    lowest = os.dup(fd)
    os.close(lowest)
    mapped = mmap.mmap(fd, wire.SIZE)
    return mapped, lowest if is_open(lowest, place) else _UNKNOWN


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
