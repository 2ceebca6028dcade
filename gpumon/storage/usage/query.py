"""Accounts as they are read: of any window, added up by user, by device or by hour."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

from gpumon.common.config import UserGroups
from gpumon.common.privacy import current_policy
from gpumon.storage.history.read import reading
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.sqlite.cells import REAL, typed_rows
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS, Account, DeviceUse

_Key = TypeVar("_Key")
_ROUNDING = 1e-9


class HourUse(NamedTuple):
    """An hour of a device."""

    begin: float
    """Seconds since 1970."""
    device: str
    """UUID."""
    use: DeviceUse
    accounts: Sequence[Account]
    """By held seconds, the most first."""


class KnownDevice(NamedTuple):
    """A device as people call it."""

    uuid: str
    number: int = -1
    """That it had last; -1 where it is not known."""
    name: str = ""
    first: float = inf
    """When the first hour begins that the file has of it, s since 1970."""


class KeptAccounts(NamedTuple):
    """Accounts of a window."""

    hours: Sequence[HourUse]
    """By time, then by device."""
    devices: Sequence[KnownDevice]
    """Those that appear in them, by number."""


def read_accounts(path: str, begin: float = -inf, end: float = inf, device: str = "") -> KeptAccounts:
    """Return the hours that begin from `begin` until before `end` (s since 1970), of all GPUs or of one (a UUID).

    Raises GpumonError.
    """
    with reading(path) as file:
        return _read(file.connection, begin, end, device) if file.has_tables else KeptAccounts((), ())


def read_users(path: str, begin: float, end: float) -> list[str]:
    """Return the names of those who held a GPU in hours of this window, by name. Raises GpumonError."""
    asked = "SELECT DISTINCT user FROM account WHERE hour >= ? AND hour < ?"
    with reading(path) as file:
        rows = file.connection.execute(asked, (begin / HOUR, end / HOUR)) if file.has_tables else ()
        users = [user for (user,) in typed_rows(rows, str)]
    people = current_policy()
    return sorted({people.name(user) for user in users} - {""})


def _read(connection: sqlite3.Connection, begin: float, end: float, only: str) -> KeptAccounts:
    window: tuple[float | str, ...] = (begin / HOUR, end / HOUR, *([only] if only else []))
    where = "hour >= ? AND hour < ?" + (" AND device = ?" if only else "")
    accounts: dict[tuple[int, str], list[Account]] = {}
    people = current_policy()
    connection.execute("BEGIN")  # both tables as they are at one moment
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
    known = {
        uuid: KnownDevice(uuid, number, name, first * HOUR)
        for uuid, number, name, first in typed_rows(rows, str, int, str, int)
    }
    devices = [known.get(uuid, KnownDevice(uuid)) for uuid in {hour.device: None for hour in hours}]
    return KeptAccounts(hours, sorted(devices, key=lambda one: (one.number, one.uuid)))


def by_user(hours: Iterable[HourUse]) -> list[Account]:
    """Return the account of each user over some hours and all their devices, the most held seconds first."""
    found: dict[str, list[Account]] = {}
    for hour in hours:
        for account in hour.accounts:
            found.setdefault(account.user, []).append(account)
    summed = [Account(user, *_sums(parts)[1:]) for user, parts in found.items()]
    return sorted(summed, key=lambda one: (-one.held, one.user))


def total(hours: Iterable[HourUse]) -> DeviceUse:
    """Return the use of all devices over some hours."""
    return DeviceUse(*_sums([hour.use for hour in hours]))


def rest_of(use: DeviceUse, accounts: Iterable[Account]) -> Account:
    """Return what is in no named user's account though somebody held the GPU: holders or their parts are not known.

    `held` are the seconds of holders who are not known.
    """
    every = list(accounts)
    known = [account for account in every if account.user]
    held = sum(account.held for account in every if not account.user)
    busy, energy = sum(one.busy for one in known), sum(one.energy for one in known) + use.free_energy
    return Account("", held, busy=_above(use.busy - busy, use.busy), energy=_above(use.energy - energy, use.energy))


def grouped(hours: Iterable[HourUse], key: Callable[[HourUse], _Key]) -> Iterator[tuple[_Key, list[HourUse]]]:
    """Yield hours by a key, such as their device, or the day that they lie in; in the order in which keys appear."""
    found: dict[_Key, list[HourUse]] = {}
    for hour in hours:
        found.setdefault(key(hour), []).append(hour)
    yield from found.items()


def _above(difference: float, of: float) -> float:
    """A difference of sums, without what is only rounding."""
    return difference if difference > _ROUNDING * of else 0.0


def _sums(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The sum of each column; texts are left out."""
    return [0.0 if isinstance(column[0], str) else sum(column) for column in zip(*rows, strict=True)]


def by_group(kept: KeptAccounts, groups: UserGroups) -> KeptAccounts:
    """Return accounts with the group in the place of each known user.

    Where two of a group share a GPU, each of them holds it: the group has the time of both.
    """
    return kept._replace(hours=[hour._replace(accounts=_added_up(hour.accounts, groups)) for hour in kept.hours])


def _added_up(accounts: Sequence[Account], groups: UserGroups) -> list[Account]:
    found: dict[str, list[Account]] = {}
    for one in accounts:
        found.setdefault(groups.name(one.user) if one.user else "", []).append(one)
    return [
        Account(name, *(sum(column) for column in zip(*(one[1:] for one in members), strict=True)))
        for name, members in found.items()
    ]
