"""Sums of hours into the file of history: what it has already grows by them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gpumon.common.text import clean
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS
from gpumon.storage.usage.hours import AccountBook

_MOST_NAME = 100
"""Characters of a name of a user or a device."""


def _adding(table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    places = ", ".join("?" * (len(keys) + len(columns)))
    grown = ", ".join(f"{column} = {column} + excluded.{column}" for column in columns)
    return (
        f"INSERT INTO {table} ({', '.join((*keys, *columns))}) VALUES ({places})"
        f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {grown}"
    )


_DEVICE = _adding("device_hour", ("hour", "device"), DEVICE_COLUMNS)

_USER = _adding("account", ("hour", "device", "user"), USER_COLUMNS)


def write_accounts(connection: sqlite3.Connection, book: AccountBook) -> None:
    """Add the sums of `book` to the open transaction. Raises sqlite3.Error."""
    connection.executemany(
        "INSERT OR REPLACE INTO device (uuid, number, name) VALUES (?, ?, ?)",
        [(uuid, device.index, clean(device.name, _MOST_NAME)) for uuid, device in book.names.items()],
    )
    connection.executemany(_DEVICE, [(*key, *sums) for key, sums in book.devices.items()])
    connection.executemany(
        _USER, [(key.hour, key.device, clean(key.user, _MOST_NAME), *sums) for key, sums in book.users.items()]
    )
