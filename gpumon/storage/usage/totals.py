"""Totals since the sums began, as a ring has them: of each device, of each user on a device, and of XID errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.ring.sums import Sums, SumTable, is_sum
from gpumon.storage.usage.account import Account, DeviceUse

DEVICES, USERS, XIDS, STATES = "devices", "users", "xids", "states"
"""Tables of a record."""


class DeviceNow(NamedTuple):
    """Figures of a device that only who sees each tick has: sums, then how it is now."""

    utilized: float = 0.0
    """Its utilization, summed up over time: seconds."""
    measured: float = 0.0
    """Seconds for which that is known."""
    idle: float = NAN
    """Seconds for which it has done nothing, up to the newest tick; NaN where it works, or nobody knows."""
    state: float = NAN
    """Number of its state in the table of states."""


class XidCount(NamedTuple):
    """XID errors of a code on a device."""

    errors: float = 0.0
    last: float = NAN
    """Seconds since 1970."""


class DeviceTotals(NamedTuple):
    """Sums of a device, and how it is."""

    use: DeviceUse
    now: DeviceNow
    state: GpuState


class Totals(NamedTuple):
    """Sums of a daemon, typed."""

    monotonic_ns: int
    """ns, CLOCK_MONOTONIC: of the newest tick in it."""
    since: float
    """Seconds since 1970: when all was 0."""
    dropped: int
    """Users on a device that had no room."""
    devices: Mapping[str, DeviceTotals]
    """By UUID."""
    users: Mapping[tuple[str, str], Account]
    """By UUID and user; an empty name is a holder whom nobody knows."""
    xids: Mapping[tuple[str, int], XidCount]
    """By UUID and code."""
    shares: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds of the device's held time, divided evenly among those who held it at once."""
    idle: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds for which they have held the device and it did nothing, up to the newest tick."""
    ages: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds from when they were first seen on it to the newest tick, where that is known."""


DEVICE_TOTALS = (*DeviceUse._fields, *DeviceNow._fields)
_IDLE_NOW, _BEGUN = "idle_now", "begun"
USER_TOTALS = (*Account._fields[1:], "share", _IDLE_NOW, _BEGUN)
_OF_SEVERAL: Mapping[str, Callable[[list[float]], float]] = {_IDLE_NOW: max, _BEGUN: min}
"""Columns that are no sums: the longest, and the first."""


def totals_of(sums: Sums) -> Totals:
    """Return the sums of a record by what they are of; a number that can be no sum counts as 0."""
    none = SumTable((), {})
    devices, users, xids = (sums.tables.get(name, none) for name in (DEVICES, USERS, XIDS))
    names = {code[0]: key[0] for key, code in sums.tables.get(STATES, none).rows.items()}
    parts = len(DeviceUse._fields)
    use_of, user_of, xid_of = (
        _reader(table.columns, wanted)
        for table, wanted in ((devices, DEVICE_TOTALS), (users, USER_TOTALS), (xids, XidCount._fields))
    )
    of_users = {(key[0], key[-1]): user_of(row) for key, row in users.rows.items()}
    of_devices, newest = {}, sums.monotonic_ns / SECOND
    for (uuid,), row in devices.rows.items():
        values = use_of(row)
        use, now = DeviceUse(*map(_sum, values[:parts])), DeviceNow(*values[parts:])
        now = now._replace(utilized=_sum(now.utilized), measured=_sum(now.measured))
        of_devices[uuid] = DeviceTotals(use, now, _state(names.get(now.state, "")))
    return Totals(
        monotonic_ns=sums.monotonic_ns,
        since=sums.since_ns / SECOND,
        dropped=sums.dropped,
        devices=of_devices,
        users={key: Account(key[1], *map(_sum, values[:-3])) for key, values in of_users.items()},
        shares={key: _sum(values[-3]) for key, values in of_users.items()},
        idle={key: values[-2] for key, values in of_users.items() if is_sum(values[-2])},
        ages={key: newest - values[-1] for key, values in of_users.items() if is_sum(values[-1])},
        xids={
            (key[0], int(key[-1])): XidCount(*xid_of(row))
            for key, row in xids.rows.items()
            if key[-1].isascii() and key[-1].isdigit()
        },
    )


def together(columns: Sequence[str], rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return the row of several users who are called the same."""
    return tuple(
        _OF_SEVERAL.get(column, sum)(known) if (known := [value for value in values if is_sum(value)]) else NAN
        for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    )


def _reader(columns: Sequence[str], wanted: Sequence[str]) -> Callable[[Sequence[float]], list[float]]:
    """Return what finds the values of the `wanted` columns in a row; NaN for one that another version does not have."""
    places = [columns.index(name) if name in columns else -1 for name in wanted]
    return lambda row: [row[place] if place >= 0 else NAN for place in places]


def _sum(value: float) -> float:
    return value if is_sum(value) else 0.0


def _state(name: str) -> GpuState:
    """The state of this name; unknown for one of a later version."""
    return next((state for state in GpuState if state.value == name), GpuState.UNKNOWN)
