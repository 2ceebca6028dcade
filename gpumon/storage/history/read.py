"""The file of kept history open to read: of a version that this gpumon knows, or with one line that says why not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.storage.history.schema import VERSION
from gpumon.storage.sqlite.read import describe_error, open_to_read
from gpumon.storage.sqlite.write import OtherVersion, is_damage


class OpenFile(NamedTuple):
    """A connection that only reads."""

    connection: sqlite3.Connection
    has_tables: bool
    """False while the file is being made."""


def open_file(path: str, *, any_thread: bool = False, timeout: float | None = None) -> OpenFile:
    """Return the file at `path`, which the caller closes; `any_thread` and `patience`: as of `open_to_read`.

    Raises sqlite3.Error, and OtherVersion for one of another version.
    """
    connection, version = open_to_read(path, any_thread=any_thread, timeout=timeout)
    if version not in (0, VERSION):
        connection.close()
        raise OtherVersion(
            f"{path} is of version {version}, this gpumon reads version {VERSION}: use the same version as its daemon"
        )
    return OpenFile(connection, version == VERSION)


@contextmanager
def reading(path: str) -> Iterator[OpenFile]:
    """Yield the file at `path`. Raises GpumonError, with what to do, also for what is found wrong within."""
    try:
        found = open_file(path)
        with closing(found.connection):
            yield found
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:  # a damaged file may give anything
        raise GpumonError(why_unreadable(path, error)) from error


def why_unreadable(path: str, error: Exception) -> str:
    """Return why a file cannot be read, and what to do."""
    if os.path.isdir(path):
        return f"{path} is a directory: move it away, and the daemon makes a history there"
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return f"{path} cannot be read: {describe_error(error, path)}"
    if not os.access(path, os.R_OK):
        return f"{path} cannot be read: permission denied"
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return f"{path} is damaged ({error}): the daemon moves it aside and begins a new history"
    return f"{path} cannot be read: {describe_error(error, path)}"
