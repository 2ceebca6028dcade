"""A connection that writes: the file is made, brought to this version, or moved aside where it is damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.paths import make_private_dir, require_regular
from gpumon.database.damage import is_damage, move_aside, require_regular_files, unreadable
from gpumon.database.network import on_network

BUSY = 5.0
"""Seconds to wait for another program that has the file locked."""


class NewerFile(GpumonError):
    """The file was written by a later gpumon."""


class FileKind(NamedTuple):
    """A kind of file: what it is, for people, and how its tables came about."""

    what: str
    migrations: Sequence[str]
    """`migrations[n]` leads from version n (`PRAGMA user_version`) to n + 1."""
    meanwhile: str
    """Half a sentence for people: how it goes on while the file cannot be written."""
    refused: str
    """Half a sentence for people: the loss where a later gpumon wrote the file."""


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


def _connect(path: str, migrations: Sequence[str], shared: bool, mounts: str) -> sqlite3.Connection:
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
        found = _version(path, connection, len(migrations))
        connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(path, mounts) else 'WAL'}").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        for version in range(found, len(migrations)):
            _migrate(connection, version, migrations[version])
    except UnicodeDecodeError as error:
        connection.close()
        raise unreadable(error) from error
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
    with transaction(connection):
        if connection.execute("PRAGMA user_version").fetchone() == (version,):
            for statement in script.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
