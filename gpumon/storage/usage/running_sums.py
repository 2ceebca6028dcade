"""Reads the running sums in a ring: totals of each device, of each user on a device, and of XID errors."""

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
    """Sums over the utilization of a device, and its current state; both are updated at every tick."""

    utilized: float = 0.0
    """Utilization integrated over time: seconds."""
    measured: float = 0.0
    """Seconds in which utilization is known."""
    idle: float = NAN
    """Seconds since it last did any work, up to the newest tick; NaN if it works or this is unknown."""
    state: float = NAN
    """Number of its state in the table of states."""


class XidCount(NamedTuple):
    """How many XID errors with one code a device has had."""

    errors: float = 0.0
    last: float = NAN
    """Time of the last error: seconds since 1970."""


class DeviceTotals(NamedTuple):
    """The sums of one device and its current state."""

    use: DeviceUse
    now: DeviceNow
    state: GpuState


class Totals(NamedTuple):
    """All running sums of a daemon."""

    monotonic_ns: int
    """Time of the newest counted tick: ns, CLOCK_MONOTONIC."""
    since: float
    """When all sums were 0: seconds since 1970."""
    dropped: int
    """Number of users on a device whose sums did not fit."""
    devices: Mapping[str, DeviceTotals]
    """By UUID."""
    users: Mapping[tuple[str, str], Account]
    """By UUID and user; the name is empty for an unknown holder."""
    xids: Mapping[tuple[str, int], XidCount]
    """By UUID and code."""
    shares: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds of held time, each moment divided evenly between the users who share the device."""
    idle: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds for which the user has held the idle device, up to the newest tick."""
    ages: Mapping[tuple[str, str], float] = {}
    """By UUID and user: seconds from the first sight of the user on the device to the newest tick, if known."""


DEVICE_TOTALS = (*DeviceUse._fields, *DeviceNow._fields)
_IDLE_NOW, _BEGUN = "idle_now", "begun"
USER_TOTALS = (*Account._fields[1:], "share", _IDLE_NOW, _BEGUN)
_MERGE: Mapping[str, Callable[[list[float]], float]] = {_IDLE_NOW: max, _BEGUN: min}
"""How to merge the columns that are not sums."""


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
    """Merge the rows of several users who are displayed under the same name; NaN where no row has a value."""
    return tuple(
        _MERGE.get(column, sum)(known) if (known := [value for value in values if is_sum(value)]) else NAN
        for column, values in zip(columns, zip(*rows, strict=True), strict=True)
    )


def _reader(columns: Sequence[str], wanted: Sequence[str]) -> Callable[[Sequence[float]], list[float]]:
    """Return a function that picks the `wanted` columns of a row; NaN for columns that another version lacks."""
    indexes = [columns.index(name) if name in columns else -1 for name in wanted]
    return lambda row: [row[index] if index >= 0 else NAN for index in indexes]


def _sum(value: float) -> float:
    return value if is_sum(value) else 0.0


def _state(name: str) -> GpuState:
    """Return the state with this name; unknown for a state of a later version."""
    return next((state for state in GpuState if state.value == name), GpuState.UNKNOWN)
