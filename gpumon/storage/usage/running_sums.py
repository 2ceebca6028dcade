"""Reads the running sums in a ring. They are totals for each device, for each user on a device, and of XID errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.ring.sums import Sums, SumTable, is_sum
from gpumon.storage.usage.account import Account, DeviceUse

DEVICES, USERS, XIDS, STATES = "devices", "users", "xids", "states"
"""Names of the tables in the ring's sums."""


class DeviceNow(NamedTuple):
    """Sums of the utilization of a device, and its current state. Both are updated at every tick."""

    utilized: float = 0.0
    """Utilization integrated over time, in seconds."""
    measured: float = 0.0
    """Seconds for which there is a utilization value."""
    idle: float = NAN
    """Seconds from the device's last work to the newest tick. NaN if the device is working, or if this cannot be
    determined."""
    state: float = NAN
    """Number of the device's state in the table `states`."""


class XidCount(NamedTuple):
    """Number of XID errors with one code on one device."""

    errors: float = 0.0
    last: float = NAN
    """Time of the last error, in seconds since 1970."""


class DeviceTotals(NamedTuple):
    """The sums of one device and its current state."""

    use: DeviceUse
    now: DeviceNow
    state: GpuState


class Totals(NamedTuple):
    """All running sums of a daemon."""

    monotonic_ns: int
    """Time of the newest counted tick, in ns of CLOCK_MONOTONIC."""
    since: float
    """Time at which all sums started at 0, in seconds since 1970."""
    dropped: int
    """Number of pairs of user and device whose sums were dropped because there was no space for the sums."""
    devices: Mapping[str, DeviceTotals]
    """Sums of each device by UUID."""
    users: Mapping[tuple[str, str], Account]
    """Sums of each user on a device by UUID and user name. The name is empty if the holder was not determined."""
    xids: Mapping[tuple[str, int], XidCount]
    """XID errors by UUID and code."""
    shares: Mapping[tuple[str, str], float] = {}
    """For each UUID and user, the seconds for which the user held the device. Time in which several users hold a device
    is divided evenly between them."""
    idle: Mapping[tuple[str, str], float] = {}
    """For each UUID and user, the seconds for which the user has held the idle device, up to the newest tick."""
    ages: Mapping[tuple[str, str], float] = {}
    """For each UUID and user, the seconds between the time at which the user was first seen on the device and the
    newest tick. There is no entry if the time is not available."""


DEVICE_TOTALS = (*DeviceUse._fields, *DeviceNow._fields)
_IDLE_NOW, _BEGUN = "idle_now", "begun"
USER_TOTALS = (*Account._fields[1:], "share", _IDLE_NOW, _BEGUN)
_MERGE: Mapping[str, Callable[[list[float]], float]] = {_IDLE_NOW: max, _BEGUN: min}
"""Functions that merge the columns that are not sums."""


def totals_from_sums(sums: Sums) -> Totals:
    """Return the sums of a ring as `Totals`. Implausible numbers count as 0."""
    none = SumTable((), {})
    devices, users, xids = (sums.tables.get(name, none) for name in (DEVICES, USERS, XIDS))
    names = {code[0]: key[0] for key, code in sums.tables.get(STATES, none).rows.items()}
    use_columns = len(DeviceUse._fields)
    read_device, read_user, read_xid = (
        _reader(table.columns, wanted)
        for table, wanted in ((devices, DEVICE_TOTALS), (users, USER_TOTALS), (xids, XidCount._fields))
    )
    user_rows = {(key[0], key[-1]): read_user(row) for key, row in users.rows.items()}
    device_totals, newest = {}, sums.monotonic_ns / SECOND
    for (uuid,), row in devices.rows.items():
        values = read_device(row)
        use, now = DeviceUse(*map(_sum, values[:use_columns])), DeviceNow(*values[use_columns:])
        now = now._replace(utilized=_sum(now.utilized), measured=_sum(now.measured))
        device_totals[uuid] = DeviceTotals(use, now, _state(names.get(now.state, "")))
    return Totals(
        monotonic_ns=sums.monotonic_ns,
        since=sums.since_ns / SECOND,
        dropped=sums.dropped,
        devices=device_totals,
        users={key: Account(key[1], *map(_sum, values[:-3])) for key, values in user_rows.items()},
        shares={key: _sum(values[-3]) for key, values in user_rows.items()},
        idle={key: values[-2] for key, values in user_rows.items() if is_sum(values[-2])},
        ages={key: newest - values[-1] for key, values in user_rows.items() if is_sum(values[-1])},
        xids={
            (key[0], int(key[-1])): XidCount(*read_xid(row))
            for key, row in xids.rows.items()
            if key[-1].isascii() and key[-1].isdigit()
        },
    )


def merge_rows(columns: Sequence[str], rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Merge the rows of several users who are displayed under the same name.

    A column in which no row has a value is NaN.
    """
    return tuple(
        _MERGE.get(column, sum)(known) if (known := [value for value in values if is_sum(value)]) else NAN
        for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    )


def _reader(columns: Sequence[str], wanted: Sequence[str]) -> Callable[[Sequence[float]], list[float]]:
    """Return a function that returns the `wanted` columns of a row. Columns that the ring does not have become NaN."""
    indexes = [columns.index(name) if name in columns else -1 for name in wanted]
    return lambda row: [row[index] if index >= 0 else NAN for index in indexes]


def _sum(value: float) -> float:
    return value if is_sum(value) else 0.0


def _state(name: str) -> GpuState:
    """Return the state with this name. A state of a later version becomes `UNKNOWN`."""
    return next((state for state in GpuState if state.value == name), GpuState.UNKNOWN)
