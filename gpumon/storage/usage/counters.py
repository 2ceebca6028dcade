"""Counters of use: a daemon's ticks summed up since it began, by the rules of accounts, with nothing by hour.

Each tick is counted once, when the next one has come; so a counter's growth between any two moments is exact, however
seldom somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.holders import HeldDevice, HolderWatch
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.ring.sums import SumNames, Sums, SumTimes
from gpumon.storage.history.grid import is_gap
from gpumon.storage.usage.account import DEVICE_COLUMNS
from gpumon.storage.usage.hours import AccountBook, HourOfDevice, HourOfUser
from gpumon.storage.usage.totals import (
    DEVICE_TOTALS,
    DEVICES,
    STATES,
    USER_TOTALS,
    USERS,
    XIDS,
    DeviceNow,
    XidCount,
    totals_of,
)

MOST_DEVICES = 160
"""Devices with sums; of more, those that are gone are forgotten."""
MOST_USERS = 256
"""Users on devices, counted by pair."""
MOST_XIDS = 64
_MOST_NAME = 100
_UTILIZATION = GPU_INDEX["gpu.utilization"]
# For each device at each tick; to look a member up in its class takes longer than all else that is done with it.
_OK, _DIVIDED = Availability.OK, GpuState.DIVIDED
_ANSWERS = (Availability.OK, Availability.ASLEEP)
_IDLE_HELD = (GpuState.ALLOCATED, GpuState.HELD)
_CODES = {state: float(code) for code, state in enumerate(GpuState)}


class _Holders:
    """Those who hold a device now."""

    __slots__ = ("are_counted", "begun_ns", "is_idle", "rows", "users", "uuid")

    def __init__(
        self, uuid: str, users: Mapping[str, float], begun_ns: Sequence[int], rows: Sequence[list[float]]
    ) -> None:
        self.uuid = uuid
        self.users = users
        self.begun_ns = begun_ns
        """When each began to hold it: ns, CLOCK_MONOTONIC."""
        self.rows = rows
        """By user, as in `UseMeter`."""
        self.are_counted = False
        """Whether all of them have their rows among those that are counted."""
        self.is_idle = True
        """Whether the rows may say so."""


class UseMeter:
    """Sums since the daemon began, or since the one before it did; `since_ns`: ns since 1970, where nobody was."""

    def __init__(self, earlier: Sums | None, since_ns: int, room: int, holders: HolderWatch | None = None) -> None:
        """`room`: bytes of a record; `holders` judges the ticks."""
        self.number = earlier.number if earlier else 0
        self._counted = (earlier.monotonic_ns, earlier.time_ns) if earlier else (-1, -1)
        """Of the newest tick in the sums: both clocks, as the first begins anew with the machine."""
        self._since_ns = earlier.since_ns if earlier else since_ns
        self._dropped = earlier.dropped if earlier else 0
        self._room, self._most_users = room, MOST_USERS
        self._holders = holders or HolderWatch()
        self._book = AccountBook(lambda begin, end: ((0, (end - begin) / SECOND),))
        self._shares: dict[HourOfUser, list[float]] = {}
        """Of held time, which is whole for each holder: their even parts in it; then how long they hold it idle, and
        when they were first seen on it, seconds, CLOCK_MONOTONIC; NaN where that is not of this clock."""
        self._holding: dict[str, _Holders] = {}
        """By UUID, where anybody holds it."""
        self._now: dict[str, list[float]] = {}
        """By UUID, in the order of `DeviceNow`."""
        self._xids: dict[tuple[str, int], list[float]] = {}
        self._refused: set[HourOfUser] = set()
        self._judged: Sequence[HeldDevice] = ()
        self._before: list[tuple[float, list[float], _Holders | None]] = []
        """Of the last tick, by device: its utilization, NaN where not known; its row in `_now`; who share it."""
        self._time_ns = self._monotonic_ns = 0
        self._named = (-1, -1, -1)
        self._names = SumNames({})
        self._rows: list[list[float]] = []
        if earlier is not None:
            self._resume(earlier)

    def add(self, tick: Tick) -> bool:
        """Take a tick; they come in order. Return whether it counts: what the sums that it began with have does not.

        A simulation tells each daemon that begins what was before.
        """
        judged = self._holders.judged(tick)
        counted_ns, counted_time_ns = self._counted
        if tick.monotonic_ns <= counted_ns and tick.time_ns <= counted_time_ns:
            return False
        if tick.monotonic_ns < counted_ns:  # the machine was started anew
            for row in self._shares.values():
                row[2] = NAN
        self._counted = (-1, -1)
        self._book.add(tick, judged)
        self._book.settle()
        passed_ns = tick.monotonic_ns - self._monotonic_ns
        passed = passed_ns / SECOND
        by_clock = (tick.time_ns - self._time_ns) / SECOND
        nows, holding, monotonic_ns = self._now, self._holding, tick.monotonic_ns
        if self._before and not is_gap(passed, by_clock, tick.interval_ns / SECOND):
            for value, known, holders in self._before:
                if value >= 0.0:  # not NaN
                    known[0] += value * passed
                    known[1] += passed
                if holders is not None:
                    if not holders.are_counted:
                        self._count_in(holders, monotonic_ns)
                    rows = holders.rows
                    part = passed / len(rows)
                    for row in rows:
                        row[0] += part
        before = self._before = []
        for one in judged:
            sample, idle = one.sample, one.idle
            uuid, state = sample.device.uuid, sample.state
            now = nows.get(uuid)
            if now is None:
                now = nows[uuid] = list(DeviceNow())
                self._book.devices.setdefault(HourOfDevice(0, uuid), [0.0] * len(DEVICE_COLUMNS))
            now[2], now[3] = idle.seconds if idle else NAN, _CODES[one.state]
            holders = holding.get(uuid)
            # Of holders who are as before, and of whom nobody says that they are idle, there is nothing to note.
            if one.users if holders is None else (idle or holders.is_idle or holders.users is not one.users):
                holders = self._hold(uuid, one, now[2], monotonic_ns)
            is_shared = one.users and state in _ANSWERS and one.state is not _DIVIDED
            # Of a stale one, what it said last is not of now.
            value = sample.values[_UTILIZATION] if state is _OK else NAN
            before.append((value, now, holders if is_shared else None))
        for xid in tick.xids:
            count = self._xids.setdefault((xid.uuid, xid.code), list(XidCount()))
            count[0], count[1] = count[0] + 1, xid.time_ns / SECOND
        self._judged, self._time_ns, self._monotonic_ns = judged, tick.time_ns, tick.monotonic_ns
        self.number += 1
        if self._named != (len(self._now), len(self._book.users), len(self._xids)):
            self._name()
        return True

    def record(self) -> tuple[int, SumNames, SumTimes, Iterable[Iterable[float]]]:
        """Return number, names, times and rows of the record as it is now."""
        return (
            self.number,
            self._names,
            SumTimes(self._monotonic_ns, self._time_ns, self._since_ns, self._dropped),
            self._rows,
        )

    def _count_in(self, holders: _Holders, now_ns: int) -> None:
        """Count holders from now on: who is new has a row from `now_ns` on (CLOCK_MONOTONIC)."""
        holders.are_counted = True
        for user, row in zip(holders.users, holders.rows, strict=True):
            key = HourOfUser(0, holders.uuid, user)
            if key not in self._shares:
                self._shares[key], row[2] = row, now_ns / SECOND

    def _hold(self, uuid: str, one: HeldDevice, idle: float, now_ns: int) -> _Holders:
        """Note since when each holds a GPU, and for how long of its `idle` seconds they did: it may have been free.

        Return the holders.
        """
        holders = self._holding.get(uuid)
        if holders is None or holders.users is not one.users:
            holders = self._change(uuid, holders, one.users, now_ns)
        if idle >= 0.0 and one.state in _IDLE_HELD:
            holders.is_idle = True
            for row, begun_ns in zip(holders.rows, holders.begun_ns, strict=True):
                row[1] = min(idle, (now_ns - begun_ns) / SECOND)
        elif holders.is_idle:
            holders.is_idle = False
            for row in holders.rows:
                row[1] = NAN
        return holders

    def _change(self, uuid: str, before: _Holders | None, users: Mapping[str, float], now_ns: int) -> _Holders:
        """Let `users` hold a GPU from now on; who held it before goes on."""
        held = dict(zip(before.users, before.begun_ns, strict=True)) if before else {}
        for user in held.keys() - users.keys():
            self._row(uuid, user)[1] = NAN
        rows = [self._row(uuid, user) for user in users]
        holders = _Holders(uuid, users, [held.get(user, now_ns) for user in users], rows)
        if users:
            self._holding[uuid] = holders
        else:
            self._holding.pop(uuid, None)
        return holders

    def _row(self, uuid: str, user: str) -> list[float]:
        """The row of a holder; a new one for whom nothing is counted."""
        return self._shares.get(HourOfUser(0, uuid, user)) or [0.0, NAN, NAN]

    def _resume(self, earlier: Sums) -> None:
        """Go on from the sums of the daemon before."""
        known = totals_of(earlier)
        for uuid, device in known.devices.items():
            self._book.devices[HourOfDevice(0, uuid)] = list(device.use)
            self._now[uuid] = list(device.now._replace(idle=NAN, state=_CODES[GpuState.UNKNOWN]))
        for (uuid, user), account in known.users.items():
            self._book.users[HourOfUser(0, uuid, user)] = list(account[1:])
            begun = earlier.monotonic_ns / SECOND - known.ages.get((uuid, user), NAN)
            self._shares[HourOfUser(0, uuid, user)] = [known.shares.get((uuid, user), 0.0), NAN, begun]
        for key, count in known.xids.items():
            self._xids[key] = list(count)

    def _name(self) -> None:
        """Pack the names anew, after what has no room was forgotten."""
        while True:
            self._forget()
            devices, users = self._book.devices, self._book.users
            pairs = {key: sums for key, sums in users.items() if key.device in self._now}
            self._names = SumNames(
                {
                    DEVICES: (DEVICE_TOTALS, [(uuid,) for uuid in self._now]),
                    USERS: (USER_TOTALS, [(key.device, key.user[:_MOST_NAME]) for key in pairs]),
                    XIDS: (XidCount._fields, [(uuid, str(code)) for uuid, code in self._xids]),
                    STATES: (("code",), [(state.value,) for state in _CODES]),
                }
            )
            if self._names.size <= self._room or self._most_users < 1:
                break
            self._most_users = len(users) * 3 // 4
        seen = self._monotonic_ns / SECOND
        of_devices = ((devices[HourOfDevice(0, uuid)], now) for uuid, now in self._now.items())
        of_users = ((sums, self._shares.setdefault(key, [0.0, NAN, seen])) for key, sums in pairs.items())
        self._rows = [
            *chain.from_iterable(of_devices), *chain.from_iterable(of_users), *self._xids.values(),
            list(_CODES.values()),
        ]  # fmt: skip
        self._named = (len(self._now), len(users), len(self._xids))
        for uuid, holders in self._holding.items():  # some may be among those that were forgotten
            holders.rows, holders.are_counted = [self._row(uuid, user) for user in holders.users], False

    def _forget(self) -> None:
        """Forget devices that are gone and users who hold nothing, those first that came first."""
        here = {one.sample.device.uuid for one in self._judged}
        held = {HourOfUser(0, one.sample.device.uuid, user) for one in self._judged for user in one.users}
        book = self._book
        gone = [uuid for uuid in self._now if uuid not in here][: max(0, len(self._now) - MOST_DEVICES)]
        users = [key for key in book.users if key.device in gone]
        over = max(0, len(book.users) - len(users) - self._most_users)
        idle = [key for key in book.users if key.device not in gone and key not in held]
        busy = [key for key in reversed(book.users) if key.device not in gone and key in held]
        unheard = (idle + busy)[:over]
        self._dropped += len(set(unheard) - self._refused)
        self._refused = (self._refused | set(unheard)) & held
        book.drop([HourOfDevice(0, uuid) for uuid in gone], [*users, *unheard])
        for user in (*users, *unheard):
            self._shares.pop(user, None)
        for uuid in gone:
            del self._now[uuid]
        for key in list(self._xids)[: max(0, len(self._xids) - MOST_XIDS)]:
            del self._xids[key]
