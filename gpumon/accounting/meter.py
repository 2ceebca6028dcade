"""Counters of use: a daemon's ticks summed up since it began, by the rules of accounts, with nothing by hour.

Each tick is counted once, when the next one has come; so a counter's growth between any two moments is exact, however
seldom somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from gpumon.accounting.account import DEVICE_COLUMNS
from gpumon.accounting.book import AccountBook, HourOfDevice, HourOfUser
from gpumon.accounting.totals import (
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
from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.holders import HeldDevice, HolderWatch
from gpumon.clock import SECOND
from gpumon.frame import NAN, Tick
from gpumon.history.gaps import is_gap
from gpumon.metrics import GPU_INDEX, Availability
from gpumon.ring.sums import SumNames, Sums, SumTimes

MOST_DEVICES = 160
"""Devices with sums; of more, those that are gone are forgotten."""
MOST_USERS = 256
"""Users on devices, counted by pair."""
MOST_XIDS = 64
_MOST_NAME = 100
_UTILIZATION = GPU_INDEX["gpu.utilization"]
_ANSWERS = (Availability.OK, Availability.ASLEEP)
_IDLE_HELD = (GpuState.ALLOCATED, GpuState.HELD)
_NOBODY: Mapping[str, int] = {}
_CODES = {state: float(code) for code, state in enumerate(GpuState)}


class UseMeter:
    """Sums since the daemon began, or since the one before it did; `since_ns`: ns since 1970, where nobody was."""

    def __init__(self, earlier: Sums | None, since_ns: int, room: int) -> None:
        """`room`: bytes of a record."""
        self.number = earlier.number if earlier else 0
        self._counted = (earlier.monotonic_ns, earlier.time_ns) if earlier else (-1, -1)
        """Of the newest tick in the sums: both clocks, as the first begins anew with the machine."""
        self._since_ns = earlier.since_ns if earlier else since_ns
        self._dropped = earlier.dropped if earlier else 0
        self._room, self._most_users = room, MOST_USERS
        self._holders = HolderWatch()
        self._book = AccountBook(lambda begin, end: ((0, (end - begin) / SECOND),))
        self._shares: dict[HourOfUser, list[float]] = {}
        """Of held time, which is whole for each holder: their even parts in it; then how long they hold it idle, and
        when they were first seen on it, seconds, CLOCK_MONOTONIC; NaN where that is not of this clock."""
        self._holding: dict[str, dict[str, int]] = {}
        """By UUID: its users now, and when each began to hold it, ns, CLOCK_MONOTONIC."""
        self._now: dict[str, list[float]] = {}
        """By UUID, in the order of `DeviceNow`."""
        self._xids: dict[tuple[str, int], list[float]] = {}
        self._refused: set[HourOfUser] = set()
        self._judged: Sequence[HeldDevice] = ()
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
        passed_ns = tick.monotonic_ns - self._monotonic_ns
        passed = passed_ns / SECOND
        by_clock = (tick.time_ns - self._time_ns) / SECOND
        if self._judged and not is_gap(passed, by_clock, tick.interval_ns / SECOND):
            for one in self._judged:
                value = one.sample.values[_UTILIZATION]
                if value >= 0.0 and one.sample.state is Availability.OK:  # not NaN, nor what a stale one said last
                    now = self._now[one.sample.device.uuid]
                    now[0] += value * passed
                    now[1] += passed
                if one.users and one.sample.state in _ANSWERS and one.state is not GpuState.DIVIDED:
                    self._share(one, passed, tick.monotonic_ns / SECOND)
        idle_since = self._holders.activity.idle_since
        for one in judged:
            uuid = one.sample.device.uuid
            known = self._now.get(uuid)
            if known is None:
                known = self._now[uuid] = list(DeviceNow())
                self._book.devices.setdefault(HourOfDevice(0, uuid), [0.0] * len(DEVICE_COLUMNS))
            since = idle_since(uuid)
            known[2], known[3] = since.seconds if since else NAN, _CODES[one.state]
            if one.users or uuid in self._holding:
                self._hold(one, known[2], tick.monotonic_ns)
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

    def _share(self, one: HeldDevice, seconds: float, now: float) -> None:
        part = seconds / len(one.users)
        for user in one.users:
            key = HourOfUser(0, one.sample.device.uuid, user)
            known = self._shares.get(key)
            if known is None:
                self._shares[key] = [part, NAN, now]
            else:
                known[0] += part

    def _hold(self, one: HeldDevice, idle: float, now_ns: int) -> None:
        """Note since when each holds a GPU, and for how long of its `idle` seconds they did: it may have been free."""
        uuid = one.sample.device.uuid
        before = self._holding.pop(uuid, _NOBODY)
        for user in before.keys() - one.users.keys():
            self._idle_of(uuid, user, NAN)
        if one.users:
            since = self._holding[uuid] = {user: before.get(user, now_ns) for user in one.users}
            for user, begun_ns in since.items():
                held = (now_ns - begun_ns) / SECOND
                self._idle_of(uuid, user, min(idle, held) if one.state in _IDLE_HELD and idle >= 0.0 else NAN)

    def _idle_of(self, uuid: str, user: str, seconds: float) -> None:
        row = self._shares.get(HourOfUser(0, uuid, user))
        if row is not None:
            row[1] = seconds

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
