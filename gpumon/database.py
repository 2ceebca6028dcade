"""SQLite files of the state directory: made, brought to this version, moved aside where damaged, and read by others."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from gpumon.errors import GpumonError
from gpumon.paths import make_private_dir

BUSY = 5.0
"""Seconds to wait for another program that has the file locked."""
_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
)
"""File systems whose memory is not shared between machines, so that SQLite's WAL is not safe on them."""
_WAIT = 5.0
"""Seconds to wait for a writer that holds the file for itself, as while it is made."""
_CLOSED_TO_US = ("SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY", "SQLITE_READONLY_CANTINIT")
_SUFFIXES = ("", "-wal", "-shm", "-journal")


class NewerFile(GpumonError):
    """The file was written by a later gpumon."""


class FileKind(NamedTuple):
    """A kind of file: what it is, for people, and how its tables came about."""

    what: str
    migrations: Sequence[str]
    """`migrations[n]` leads from version n (`PRAGMA user_version`) to n + 1."""


def open_to_write(
    path: str, kind: FileKind, *, shared: bool, uid: int, log: Callable[[str], object],
    mounts: str = "/proc/self/mountinfo",
) -> sqlite3.Connection:  # fmt: skip
    """A connection to the file at `path`, which is made when it is missing.

    `shared`: others may read it. A damaged file is moved aside and never deleted. Raises NewerFile,
    OSError or sqlite3.Error.
    """
    directory = os.path.dirname(path)
    make_private_dir(directory, uid, shared=shared)
    try:
        return _connect(path, kind.migrations, shared, mounts)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        aside = move_aside(path)
        log(f"{path} is damaged ({error}): moved to {aside}, and a new {kind.what} started")
        return _connect(path, kind.migrations, shared, mounts)


def open_to_read(path: str, *, any_thread: bool = False) -> tuple[sqlite3.Connection, int]:
    """A connection that only reads and has read something, and the version of the file; 0 of one that is being made.

    `any_thread`: the caller sees to it that only one uses it at a time. Raises sqlite3.Error.
    """
    try:
        return _connect_to_read(path, "mode=ro", any_thread)
    except sqlite3.Error as error:
        # Without a writer there is no index of the write-ahead log, and here we may not make one: but then the file
        # stands still.
        if error.sqlite_errorname not in _CLOSED_TO_US or os.path.exists(f"{path}-shm"):
            raise
        return _connect_to_read(path, "immutable=1", any_thread)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def move_aside(path: str) -> str:
    """Rename a file and what SQLite keeps beside it to the first name that is free."""
    number = 1
    while os.path.lexists(f"{path}.damaged-{number}"):
        number += 1
    aside = f"{path}.damaged-{number}"
    for suffix in _SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, aside + suffix)
    return aside


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


def _connect(path: str, migrations: Sequence[str], shared: bool, mounts: str) -> sqlite3.Connection:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644 if shared else 0o600)
    try:
        if os.fstat(fd).st_size == 0:
            os.fchmod(fd, 0o644 if shared else 0o600)
    finally:
        os.close(fd)
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    try:
        # Only once the file is known to be ours: a mode is written into it.
        found = _version(path, connection, len(migrations))
        connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(path, mounts) else 'WAL'}").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        for version in range(found, len(migrations)):
            _migrate(connection, version, migrations[version])
    except BaseException:
        connection.close()
        raise
    return connection


def _version(path: str, connection: sqlite3.Connection, newest: int) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if found > newest:
        raise NewerFile(f"{path} is of version {found}, this gpumon writes version {newest}: update gpumon")
    return int(found)


def _migrate(connection: sqlite3.Connection, version: int, script: str) -> None:
    """One version further, as a whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute("PRAGMA user_version").fetchone() == (version,):
            for statement in script.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _connect_to_read(path: str, how: str, any_thread: bool) -> tuple[sqlite3.Connection, int]:
    uri = f"file:{quote(os.path.abspath(path))}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=_WAIT, check_same_thread=not any_thread)
    try:
        connection.isolation_level = None  # transactions begin and end where we say
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection, version
