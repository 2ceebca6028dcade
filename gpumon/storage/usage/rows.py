"""Writes account sums into the history file, adding them to the sums that are already there."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gpumon.common.text import clean
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS
from gpumon.storage.usage.hours import AccountBook

_MAX_NAME_LENGTH = 100
"""Characters in the name of a user or a device."""


def _upsert_sums(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement that inserts a row, or adds its columns to the row with the same keys."""
    placeholders = ", ".join("?" * (len(keys) + len(columns)))
    additions = ", ".join(f"{column} = {column} + excluded.{column}" for column in columns)
    return (
        f"INSERT INTO {table} ({', '.join((*keys, *columns))}) VALUES ({placeholders})"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {additions}"
    )


_ADD_DEVICE_HOUR = _upsert_sums("device_hour", ("hour", "device"), DEVICE_COLUMNS)
_ADD_ACCOUNT = _upsert_sums("account", ("hour", "device", "user"), USER_COLUMNS)


def write_accounts(connection: sqlite3.Connection, book: AccountBook) -> None:
    """Add the sums of `book` to those in the file, within the open transaction. Raises sqlite3.Error."""
    connection.executemany(
        "INSERT OR REPLACE INTO device (uuid, number, name) VALUES (?, ?, ?)",
        [(uuid, device.index, clean(device.name, _MAX_NAME_LENGTH)) for uuid, device in book.names.items()],
    )
    connection.executemany(_ADD_DEVICE_HOUR, [(*key, *sums) for key, sums in book.devices.items()])
    connection.executemany(
        _ADD_ACCOUNT,
        [(key.hour, key.device, clean(key.user, _MAX_NAME_LENGTH), *sums) for key, sums in book.users.items()],
    )
