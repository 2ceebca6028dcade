"""Opens the history file for reading. Error messages say why it cannot be read and what to do.

`read_tables` is how accounts, events and processes are read: all tables in the same state, or an empty result.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, TypeVar

from gpumon.common.errors import GpumonError
from gpumon.storage.history.schema import HISTORY_FILE, VERSION
from gpumon.storage.sqlite.read import describe_error, open_to_read
from gpumon.storage.sqlite.write import OtherVersion, is_damage

T = TypeVar("T")


class OpenFile(NamedTuple):
    """A read-only connection to the history file."""

    connection: sqlite3.Connection
    has_tables: bool
    """False while the file is being created."""


def open_file(path: str, *, any_thread: bool = False, timeout: float | None = None) -> OpenFile:
    """Open the file at `path`; the caller must close it. `any_thread` and `timeout` are passed to `open_to_read`.

    Raises sqlite3.Error, OSError, or OtherVersion if another version of gpumon wrote the file.
    """
    connection, version = open_to_read(path, HISTORY_FILE, any_thread=any_thread, timeout=timeout)
    if version not in (0, VERSION):
        connection.close()
        raise OtherVersion(
            f"{path} has format {version}, but this gpumon reads format {VERSION}: "
            "use the gpumon version of the daemon that writes it"
        )
    return OpenFile(connection, version == VERSION)


@contextmanager
def reading(path: str) -> Iterator[OpenFile]:
    """Open the file at `path` for a `with` statement.

    If it cannot be opened, or reading fails inside the `with` block, raises GpumonError with a message that says what
    to do.
    """
    try:
        file = open_file(path)
        with closing(file.connection):
            yield file
    except UnicodeEncodeError:  # an argument of the command, not the file
        raise
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:  # a damaged file can cause any of these
        raise GpumonError(explain_unreadable(path, error)) from error


def read_tables(path: str, read: Callable[[sqlite3.Connection], T], empty: T) -> T:
    """Return the result of `read`, which sees all tables of the file at `path` in the same state.

    Returns `empty` while the file is being created. Raises GpumonError if the file cannot be read.
    """
    with reading(path) as file:
        if not file.has_tables:
            return empty
        file.connection.execute("BEGIN")
        return read(file.connection)


def read_or_explain(path: str, read: Callable[[sqlite3.Connection], T], empty: T) -> tuple[T, str]:
    """Return the result of `read_tables`, and the reason if the file cannot be read.

    This is for answers that also contain the newest frames. An empty `path` stands for no file.
    """
    try:
        return (read_tables(path, read, empty) if path else empty), ""
    except GpumonError as error:
        return empty, str(error)


def explain_unreadable(path: str, error: Exception) -> str:
    """Return a message that says why the file cannot be read and what to do.

    `error`: the exception that was raised when the file was read.
    """
    if os.path.isdir(path):
        return f"{path} is a directory: move it away; the daemon then creates a history file"
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return f"{path} cannot be read: {describe_error(error, path)}"
    if not os.access(path, os.R_OK):
        return f"{path} cannot be read: permission denied"
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return f"{path} is damaged ({error}): the daemon moves it aside and begins a new history"
    return f"{path} cannot be read: {describe_error(error, path)}"
