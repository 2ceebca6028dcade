"""Sums of usage: `DeviceUse` for a device, and `Account` for one user on a device.

The history file has a column for each field. `write_accounts` adds sums to those in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon.storage.sqlite.cells import clean_name

if TYPE_CHECKING:  # views that only read accounts do not import these
    import sqlite3

    from gpumon.storage.usage.hours import AccountBook


class Account(NamedTuple):
    """Usage of a device by one user, summed over some hours. `energy` is in joules, all other sums are in seconds."""

    user: str
    """Name of the user; empty if the holder could not be determined."""
    held: float = 0.0
    """Time in which the user had processes or runs on the device."""
    judged: float = 0.0
    """Part of `held` for which `busy` and `idle_held` were determined."""
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Part of `held` for which `energy` was determined."""
    energy: float = 0.0
    """Energy, including short times between two counter readings in which the device did not answer. No other
    sum includes these times.
    """


class DeviceUse(NamedTuple):
    """Usage of a device, summed over some hours.

    `energy` and `free_energy` are in joules, all other sums are in seconds.
    """

    observed: float = 0.0
    """Time in which the device answered and was not divided by MIG. There is no data for the rest of the time."""
    identified: float = 0.0
    """Part of `observed` in which all holders were determined."""
    judged: float = 0.0
    """Part of `observed` in which it was determined whether the device was busy."""
    held: float = 0.0
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Time for which `energy` was determined. It may include time in which MIG divided the device."""
    energy: float = 0.0
    """Energy, including short times between two counter readings in which the device did not answer."""
    free: float = 0.0
    """Time in which certainly no process held the device."""
    free_energy: float = 0.0
    """Part of `energy` that was used in the `free` time."""


DEVICE_COLUMNS = DeviceUse._fields
"""Columns with sums in the table `device_hour`."""
USER_COLUMNS = Account._fields[1:]
"""Columns with sums in the table `account`."""


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
        [(uuid, device.index, clean_name(device.name)) for uuid, device in book.names.items()],
    )
    connection.executemany(_ADD_DEVICE_HOUR, [(*key, *sums) for key, sums in book.devices.items()])
    connection.executemany(
        _ADD_ACCOUNT,
        [(key.hour, key.device, clean_name(key.user), *sums) for key, sums in book.users.items()],
    )
