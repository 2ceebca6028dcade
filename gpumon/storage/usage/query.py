"""Reads accounts from the history file, and sums them by user, group, device or hour."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

from gpumon.common.config import UserGroups
from gpumon.common.privacy import current_policy
from gpumon.storage.history.read import read_tables
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.sqlite.cells import REAL, typed_rows
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS, Account, DeviceUse

_Key = TypeVar("_Key")
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class HourUse:
    """Usage of a device in one hour, in total and by user."""

    begin: float
    """Start of the hour, in seconds since 1970."""
    device: str
    """UUID of the GPU."""
    use: DeviceUse
    accounts: Sequence[Account]
    """Sorted by held seconds, descending."""


@dataclass(frozen=True, slots=True)
class StoredDevice:
    """A device that has accounts in the history file."""

    uuid: str
    number: int = -1
    """Last index of the GPU; -1 if not recorded."""
    name: str = ""
    first: float = inf
    """Start of the device's first hour in the file, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoredAccounts:
    """The accounts of a window of time, as read from the history file."""

    hours: Sequence[HourUse]
    """Sorted by time, then by device."""
    devices: Sequence[StoredDevice]
    """Devices with accounts in these hours, sorted by number."""


def read_accounts(path: str, begin: float = -inf, end: float = inf, device: str = "") -> StoredAccounts:
    """Return the accounts of the hours that start at or after `begin` and before `end` (s since 1970).

    `device`: UUID of a GPU; empty for all GPUs. Raises GpumonError if the file cannot be read.
    """
    return read_tables(path, lambda db: _read(db, begin, end, device), StoredAccounts((), ()))


def read_users(path: str, begin: float, end: float) -> list[str]:
    """Return the names of the users who held a GPU between two times (s since 1970), sorted. Raises GpumonError."""
    query, window = "SELECT DISTINCT user FROM account WHERE hour >= ? AND hour < ?", (begin / HOUR, end / HOUR)
    users: list[str] = read_tables(
        path, lambda db: [user for (user,) in typed_rows(db.execute(query, window), str)], []
    )
    people = current_policy()
    return sorted({people.name(user) for user in users} - {""})


def _read(connection: sqlite3.Connection, begin: float, end: float, uuid: str) -> StoredAccounts:
    window: tuple[float | str, ...] = (begin / HOUR, end / HOUR, *([uuid] if uuid else []))
    where = "hour >= ? AND hour < ?" + (" AND device = ?" if uuid else "")
    accounts: dict[tuple[int, str], list[Account]] = {}
    people = current_policy()
    rows = connection.execute(
        f"SELECT hour, device, user, {', '.join(USER_COLUMNS)} FROM account WHERE {where} ORDER BY held DESC, user",
        window,
    )
    for hour, device, user, *sums in typed_rows(rows, int, str, str, *[REAL] * len(USER_COLUMNS)):
        accounts.setdefault((hour, device), []).append(Account(people.name(user), *sums))
    rows = connection.execute(
        f"SELECT hour, device, {', '.join(DEVICE_COLUMNS)} FROM device_hour WHERE {where} ORDER BY hour, device", window
    )
    hours = [
        HourUse(hour * HOUR, device, DeviceUse(*sums), accounts.get((hour, device), ()))
        for hour, device, *sums in typed_rows(rows, int, str, *[REAL] * len(DEVICE_COLUMNS))
    ]
    rows = connection.execute(
        "SELECT uuid, number, name, first FROM (SELECT device, min(hour) AS first FROM device_hour GROUP BY device)"
        " JOIN device ON uuid = device"
    )
    stored = {
        uuid: StoredDevice(uuid, number, name, first * HOUR)
        for uuid, number, name, first in typed_rows(rows, str, int, str, int)
    }
    devices = [stored.get(uuid, StoredDevice(uuid)) for uuid in {hour.device: None for hour in hours}]
    return StoredAccounts(hours, sorted(devices, key=lambda device: (device.number, device.uuid)))


def by_user(hours: Iterable[HourUse]) -> list[Account]:
    """Return one account per user, summed over all hours and devices.

    The account with the longest held time comes first.
    """
    accounts: dict[str, list[Account]] = {}
    for hour in hours:
        for account in hour.accounts:
            accounts.setdefault(account.user, []).append(account)
    summed = [Account(user, *_sums(parts)[1:]) for user, parts in accounts.items()]
    return sorted(summed, key=lambda account: (-account.held, account.user))


def total(hours: Iterable[HourUse]) -> DeviceUse:
    """Return the usage summed over all hours and devices."""
    return DeviceUse(*_sums([hour.use for hour in hours]))


def unattributed(use: DeviceUse, accounts: Iterable[Account]) -> Account:
    """Return the usage that is not included in any user's account, because the holders or their shares were not
    determined.

    `use` is the usage of the devices, `accounts` are the accounts of the same hours. `held` of the result is the time
    in which the holders were not determined.
    """
    every = list(accounts)
    named = [account for account in every if account.user]
    held = sum(account.held for account in every if not account.user)
    busy = sum(account.busy for account in named)
    energy = sum(account.energy for account in named) + use.free_energy
    return Account("", held, busy=_remainder(use.busy, busy), energy=_remainder(use.energy, energy))


def group_hours(hours: Iterable[HourUse], key: Callable[[HourUse], _Key]) -> Iterator[tuple[_Key, list[HourUse]]]:
    """Group hours by the result of `key`, such as their device or day.

    Yields each key with its hours, in the order in which the keys first appear.
    """
    groups: dict[_Key, list[HourUse]] = {}
    for hour in hours:
        groups.setdefault(key(hour), []).append(hour)
    yield from groups.items()


def _remainder(whole: float, part: float) -> float:
    """Return `whole - part`, or 0 if the difference is negative or only a rounding error."""
    difference = whole - part
    return difference if difference > _ROUNDING * whole else 0.0


def _sums(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the sum of each column. For columns of text, the sum is 0."""
    return [0.0 if isinstance(column[0], str) else sum(column) for column in zip(*rows, strict=True)]


def by_group(stored: StoredAccounts, groups: UserGroups) -> StoredAccounts:
    """Return the accounts with each user replaced by the user's group. Users without a group are kept.

    If two members of a group share a GPU, each of them holds it, so the account of the group has the sum of both times.
    """
    return replace(stored, hours=[replace(hour, accounts=_merge(hour.accounts, groups)) for hour in stored.hours])


def _merge(accounts: Sequence[Account], groups: UserGroups) -> list[Account]:
    members: dict[str, list[Account]] = {}
    for account in accounts:
        members.setdefault(groups.name(account.user) if account.user else "", []).append(account)
    return [Account(name, *_sums(parts)[1:]) for name, parts in members.items()]
