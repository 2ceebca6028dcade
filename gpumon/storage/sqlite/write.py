"""A connection that writes: the file is made, or moved aside where it is damaged or of another version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.paths import make_private_dir, require_regular, require_regular_or_absent

_DAMAGED = ".damaged-"
_OTHER_VERSION = ".other-version-"
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Behind the path of a file: itself, and what SQLite keeps beside it."""


def require_regular_files(path: str) -> None:
    """Raise OSError where the file at `path`, or one that SQLite keeps beside it, is there and no regular file."""
    for suffix in SUFFIXES:
        require_regular_or_absent(path + suffix)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def unreadable(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return the damage that Python meets before SQLite can name it: a damaged schema in an error message."""
    found = sqlite3.DatabaseError(f"database disk image is malformed: {error.reason}")
    found.sqlite_errorcode, found.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    return found


def moved_aside(path: str) -> list[str]:
    """Return the damaged files that once had this path, oldest first."""
    begin = os.path.basename(path) + _DAMAGED
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return []
    numbers = (name.removeprefix(begin) for name in names if name.startswith(begin))
    return [f"{path}{_DAMAGED}{number}" for number in sorted(int(one) for one in numbers if one.isdecimal())]


def move_aside(path: str, ending: str = _DAMAGED) -> str:
    """Rename a file and what SQLite keeps beside it to the first name with this ending that is free."""
    number = 1
    while os.path.lexists(f"{path}{ending}{number}"):
        number += 1
    aside = f"{path}{ending}{number}"
    for suffix in SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, aside + suffix)
    return aside


_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
)
"""File systems whose memory is not shared between machines, so that SQLite's WAL is not safe on them."""


def on_network(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether `path` lies on a file system of another machine."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    place = os.path.realpath(path) + "/"
    best, kind = -1, ""
    for fields in lines:
        if "-" in fields[5:-1]:
            point = fields[4].replace("\\040", " ").rstrip("/") + "/"
            if place.startswith(point) and len(point) >= best:
                best, kind = len(point), fields[fields.index("-", 5) + 1]
    return kind in _NETWORK


BUSY = 5.0
"""Seconds to wait for another program that has the file locked."""


class OtherVersion(GpumonError):
    """The tables of the file are those of another version of gpumon."""


class FileKind(NamedTuple):
    """A kind of file: what it is, for people, and its tables."""

    what: str
    version: int
    """`PRAGMA user_version`."""
    tables: str
    """SQL that makes them."""
    meanwhile: str
    """Half a sentence for people: how it goes on while the file cannot be written."""
    refused: str
    """Half a sentence for people: the loss where another version of gpumon writes the file, too."""


def open_to_write(
    path: str, kind: FileKind, *, shared: bool, uid: int, log: Callable[[str], object],
    is_first: bool = True, mounts: str = "/proc/self/mountinfo",
) -> sqlite3.Connection:  # fmt: skip
    """A connection to the file at `path`, which is made when it is missing.

    `shared`: others may read it. A damaged file is moved aside and never deleted. So is one of another version when
    this program opens it for the first time (`is_first`); later, a program of that version writes it as well.
    Raises OtherVersion, OSError or sqlite3.Error.
    """
    directory = os.path.dirname(path)
    make_private_dir(directory, uid, shared=shared)
    try:
        return _connect(path, kind, shared, mounts)
    except OtherVersion as error:
        if not is_first:
            raise
        aside = move_aside(path, _OTHER_VERSION)
        log(f"{error}: moved to {aside}, and a new {kind.what} started")
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        aside = move_aside(path)
        log(f"{path} is damaged ({error}): moved to {aside}, and a new {kind.what} started")
    return _connect(path, kind, shared, mounts)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything within is written as a whole or, when anything is raised, not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _connect(path: str, kind: FileKind, shared: bool, mounts: str) -> sqlite3.Connection:
    require_regular_files(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o644 if shared else 0o600)
    try:
        require_regular(fd, path)
        if os.fstat(fd).st_size == 0:
            os.fchmod(fd, 0o644 if shared else 0o600)
    finally:
        os.close(fd)
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # one bad cell must not stop all writing
    try:
        # Only once the file is known to be ours: a mode is written into it.
        is_new = _version(path, connection, kind) == 0
        connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(path, mounts) else 'WAL'}").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if is_new:
            _make(connection, kind)
    except UnicodeDecodeError as error:
        connection.close()
        raise unreadable(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _version(path: str, connection: sqlite3.Connection, kind: FileKind) -> int:
    """The version of the file; 0 of one without tables."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version not in (0, kind.version):
        raise OtherVersion(f"{path} is of version {version}, this gpumon writes version {kind.version}")
    return int(version)


def _make(connection: sqlite3.Connection, kind: FileKind) -> None:
    """Make all tables or none, unless another program has just made them."""
    with transaction(connection):
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in kind.tables.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {kind.version}")
