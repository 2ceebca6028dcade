"""Opens SQLite files for writing. Creates missing ones, and renames files that are damaged or of another version."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from gpumon.common.errors import GpumonError
from gpumon.common.paths import make_private_dir, require_regular, require_regular_or_absent
from gpumon.common.text import clean

_DAMAGED = ".damaged-"
_OTHER_VERSION = ".other-version-"
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of a database's path: the file itself, and the files that SQLite keeps next to it."""


def require_regular_files(path: str) -> None:
    """Raise OSError if the database at `path`, or a file that SQLite keeps next to it, is not a regular file."""
    for suffix in SUFFIXES:
        require_regular_or_absent(path + suffix)


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether this error means that the file is damaged."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def damage_error(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return a SQLite error that reports a damaged schema. Used if Python cannot decode the schema."""
    return _corrupt(f"database disk image is malformed: {error.reason}")


def _corrupt(reason: str) -> sqlite3.DatabaseError:
    damage = sqlite3.DatabaseError(reason)
    damage.sqlite_errorcode, damage.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    return damage


def damaged_copies(path: str) -> list[str]:
    """Return the damaged files that were renamed from `path`, oldest first."""
    prefix = os.path.basename(path) + _DAMAGED
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return []
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return [f"{path}{_DAMAGED}{number}" for number in sorted(int(text) for text in numbers if text.isdecimal())]


def move_aside(path: str, ending: str = _DAMAGED) -> str:
    """Rename a database and SQLite's additional files. Return the new path.

    The new name is `path` with this ending and the first free number.
    """
    number = 1
    while os.path.lexists(f"{path}{ending}{number}"):
        number += 1
    new_path = f"{path}{ending}{number}"
    for suffix in SUFFIXES:
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, new_path + suffix)
    return new_path


_NETWORK_FILE_SYSTEMS = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
)
"""File systems on which SQLite's WAL mode is not safe, because machines do not share the memory that it maps."""


def is_on_network(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Return whether `path` is on a network file system."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    real_path = os.path.realpath(path) + "/"
    longest, file_system = -1, ""
    for fields in lines:
        if "-" in fields[5:-1]:
            mount_point = fields[4].replace("\\040", " ").rstrip("/") + "/"
            if real_path.startswith(mount_point) and len(mount_point) >= longest:
                longest, file_system = len(mount_point), fields[fields.index("-", 5) + 1]
    return file_system in _NETWORK_FILE_SYSTEMS


BUSY_TIMEOUT = 5.0
"""Maximum seconds to wait for another program that has locked the file."""


class OtherVersion(GpumonError):
    """Raised if another version of gpumon created the file."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of database: its tables, and texts about it in messages."""

    title: str
    version: int
    """Version of the file format, stored as `PRAGMA user_version`."""
    tables: str
    """SQL that creates the tables."""
    when_unwritable: str
    """End of a message. It says what happens while the file cannot be written."""
    when_refused: str
    """End of a message. It says what happens if another version of gpumon writes the file, too."""

    @property
    def table_names(self) -> frozenset[str]:
        """Names of the tables, in lower case."""
        return frozenset(re.findall(r"CREATE TABLE (\w+)", self.tables))


_NAME_LENGTH = 40
_PLAIN = ("create table ", "create index ", "create unique index ")
_OTHER_ENTRY = r"create (?:view|trigger|virtual table) [\"'`\[]?"
_COMPUTED = (
    "SELECT entry.name FROM sqlite_master AS entry JOIN pragma_table_xinfo(entry.name) AS part WHERE part.hidden != 0"
)


def require_plain_tables(connection: sqlite3.Connection, kind: FileKind) -> None:
    """Raise an error that reports damage if a view, trigger or generated column takes the place of a table of `kind`.

    In an untrusted file, these can compute rows without end.
    """
    for name, table, definition in connection.execute("SELECT name, tbl_name, sql FROM sqlite_master"):
        # The definition decides: older SQLite does not check that the other columns agree with it.
        text = str(definition).lower()
        if definition is None or text.startswith(_PLAIN):  # an automatic index has no definition
            continue
        names = {str(name).lower(), str(table).lower()}
        if names & kind.table_names or not re.match(rf"{_OTHER_ENTRY}{re.escape(str(name).lower())}\b", text):
            raise _corrupt(f"{clean(str(name), _NAME_LENGTH)} is not a plain table")
    for (name,) in connection.execute(_COMPUTED):
        if str(name).lower() in kind.table_names:
            raise _corrupt(f"{clean(str(name), _NAME_LENGTH)} has generated columns")


def open_to_write(
    path: str, kind: FileKind, *, shared: bool, uid: int, log: Callable[[str], object],
    is_first: bool = True, mounts: str = "/proc/self/mountinfo",
) -> sqlite3.Connection:  # fmt: skip
    """Open the file at `path` for writing, and create it if it is missing.

    `shared`: let other users read it. `uid`: user to whom it belongs. A damaged file is renamed, never deleted. A file
    of another version is renamed if this process opens it for the first time (`is_first`). Later, such a file means
    that a gpumon of another version is writing it, so OtherVersion is raised. Also raises OSError or sqlite3.Error.
    """
    directory = os.path.dirname(path)
    make_private_dir(directory, uid, shared=shared)
    try:
        return _connect(path, kind, shared, mounts)
    except OtherVersion as error:
        if not is_first:
            raise
        new_path = move_aside(path, _OTHER_VERSION)
        log(f"{error}: moved to {new_path}, and a new {kind.title} started")
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        new_path = move_aside(path)
        log(f"{path} is damaged ({error}): moved to {new_path}, and a new {kind.title} started")
    return _connect(path, kind, shared, mounts)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the `with` block in a transaction. It is committed at the end, or rolled back after an exception."""
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
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # one bad cell must not stop all writing
    try:
        # Check the version before setting the journal mode, which is written into the file.
        is_new = _version(path, connection, kind) == 0
        connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if is_on_network(path, mounts) else 'WAL'}").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if is_new:
            _create_tables(connection, kind)
    except UnicodeDecodeError as error:
        connection.close()
        raise damage_error(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _version(path: str, connection: sqlite3.Connection, kind: FileKind) -> int:
    """Return the version of the file, or 0 if it has no tables. Raises OtherVersion for another version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, kind.version):
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        raise OtherVersion(f"{path} has format {version}, but this gpumon writes format {kind.version}")
    require_plain_tables(connection, kind)
    return int(version)


def _create_tables(connection: sqlite3.Connection, kind: FileKind) -> None:
    """Create all tables in one transaction, unless another program has just created them."""
    with transaction(connection):
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in kind.tables.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {kind.version}")
