"""`UseMeter` computes the running sums that a daemon publishes. They follow the rules of accounts but are not divided
into hours.

The time after a tick is counted when the next tick arrives. So the growth of a sum between two readings by a client is
exact, regardless of the time between the readings.
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
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.usage.account import DEVICE_COLUMNS
from gpumon.storage.usage.hours import AccountBook, DeviceHourKey, UserHourKey
from gpumon.storage.usage.running_sums import (
    DEVICE_TOTALS,
    DEVICES,
    STATES,
    USER_TOTALS,
    USERS,
    XIDS,
    DeviceNow,
    XidCount,
    totals_from_sums,
)

MAX_DEVICES = 160
"""Number of devices with sums. If there are more, absent devices are evicted."""
MAX_USERS = 256
"""Maximum number of pairs of user and device."""
MAX_XIDS = 64
_MAX_NAME_LENGTH = 100
_UTILIZATION = GPU_INDEX["gpu.utilization"]
# Module constants, because looking up enum members for each device at each tick costs more than using them.
_OK, _DIVIDED = Availability.OK, GpuState.DIVIDED
_ANSWERS = (Availability.OK, Availability.ASLEEP)
_IDLE_HELD = (GpuState.ALLOCATED, GpuState.HELD)
_CODES = {state: float(code) for code, state in enumerate(GpuState)}


class _Holders:
    """Current holders of a device."""

    __slots__ = ("are_counted", "begun_ns", "is_idle", "rows", "users", "uuid")

    def __init__(
        self, uuid: str, users: Mapping[str, float], begun_ns: Sequence[int], rows: Sequence[list[float]]
    ) -> None:
        self.uuid = uuid
        self.users = users
        self.begun_ns = begun_ns
        """Time at which each user started to hold the device, in ns of CLOCK_MONOTONIC."""
        self.rows = rows
        """Row of each user. The values of a row are described at `UseMeter._shares`."""
        self.are_counted = False
        """Whether the rows of all holders are in `UseMeter._shares`."""
        self.is_idle = True
        """Whether any of the rows may contain an idle time."""


class UseMeter:
    """The running sums of a daemon. They continue the sums of the previous daemon, or start at 0 if there is none.

    `earlier`: sums of the previous daemon; None if there are none. `since_ns`: time at which sums start if there are no
    earlier sums (ns since 1970). `room`: bytes available for names. `holders`: determines who holds which GPU at a
    tick.
    """

    def __init__(self, earlier: Sums | None, since_ns: int, room: int, holders: HolderWatch | None = None) -> None:
        """Create the sums. See the class for the arguments."""
        self.number = earlier.number if earlier else 0
        self._counted = (earlier.monotonic_ns, earlier.time_ns) if earlier else (-1, -1)
        """Time of the newest tick in the earlier sums, by CLOCK_MONOTONIC and by the wall clock (ns). Both are needed,
        because CLOCK_MONOTONIC restarts when the machine reboots."""
        self._since_ns = earlier.since_ns if earlier else since_ns
        self._dropped = earlier.dropped if earlier else 0
        self._room, self._max_users = room, MAX_USERS
        self._holders = holders or HolderWatch()
        self._book = AccountBook(lambda begin, end: ((0, (end - begin) / SECOND),))
        self._shares: dict[UserHourKey, list[float]] = {}
        """Three values per user and device. The first is the held seconds, divided evenly between simultaneous holders.
        The second is the seconds for which the user has held the idle device. The third is the time at which the user
        was first seen on the device (s, CLOCK_MONOTONIC), or NaN if that was before a reboot of the machine."""
        self._holders_by_device: dict[str, _Holders] = {}
        """Current holders by device UUID. Only devices with holders are included."""
        self._now: dict[str, list[float]] = {}
        """Values of `DeviceNow` by device UUID, in the order of its fields."""
        self._xids: dict[tuple[str, int], list[float]] = {}
        self._uncounted: set[UserHourKey] = set()
        """Current holders whose sums were dropped because there was no space for the sums."""
        self._judged: Sequence[HeldDevice] = ()
        self._previous: list[tuple[float, list[float], _Holders | None]] = []
        """For each device in the last tick: utilization (NaN if not available), row in `_now`, and holders."""
        self._time_ns = self._monotonic_ns = 0
        self._named_counts = (-1, -1, -1)
        """Numbers of devices, users and XIDs when the names were last packed."""
        self._names = SumNames({})
        self._rows: list[list[float]] = []
        if earlier is not None:
            self._resume(earlier)

    def add(self, tick: Tick) -> bool:
        """Add the next tick. Return False, and do not add it, if the sums of the previous daemon already contain it.

        This happens in a simulation, because it repeats past ticks for each daemon that starts.
        """
        judged = self._holders.judged(tick)
        counted_ns, counted_time_ns = self._counted
        if tick.monotonic_ns <= counted_ns and tick.time_ns <= counted_time_ns:
            return False
        if tick.monotonic_ns < counted_ns:  # the machine was rebooted
            for row in self._shares.values():
                row[2] = NAN
        self._counted = (-1, -1)
        self._book.add(tick, judged)
        self._book.flush()
        passed_ns = tick.monotonic_ns - self._monotonic_ns
        passed = passed_ns / SECOND
        by_clock = (tick.time_ns - self._time_ns) / SECOND
        device_rows, holders_by_device, monotonic_ns = self._now, self._holders_by_device, tick.monotonic_ns
        if self._previous and not is_gap(passed, by_clock, tick.interval_ns / SECOND):
            for value, device_row, holders in self._previous:
                if value >= 0.0:  # not NaN
                    device_row[0] += value * passed
                    device_row[1] += passed
                if holders is not None:
                    if not holders.are_counted:
                        self._count_holders(holders, monotonic_ns)
                    rows = holders.rows
                    share = passed / len(rows)
                    for row in rows:
                        row[0] += share
        previous = self._previous = []
        for gpu in judged:
            sample, idle = gpu.sample, gpu.idle
            uuid, state = sample.device.uuid, sample.state
            current = device_rows.get(uuid)
            if current is None:
                current = device_rows[uuid] = list(DeviceNow())
                self._book.devices.setdefault(DeviceHourKey(0, uuid), [0.0] * len(DEVICE_COLUMNS))
            current[2], current[3] = idle.seconds if idle else NAN, _CODES[gpu.state]
            holders = holders_by_device.get(uuid)
            # Unchanged holders of a device that is not idle need no update.
            if gpu.users if holders is None else (idle or holders.is_idle or holders.users is not gpu.users):
                holders = self._update_holders(uuid, gpu, current[2], monotonic_ns)
            is_shared = gpu.users and state in _ANSWERS and gpu.state is not _DIVIDED
            value = sample.values[_UTILIZATION] if state is _OK else NAN  # the values of a stale device are old
            previous.append((value, current, holders if is_shared else None))
        for xid in tick.xids:
            count = self._xids.setdefault((xid.uuid, xid.code), list(XidCount()))
            count[0], count[1] = count[0] + 1, xid.time_ns / SECOND
        self._judged, self._time_ns, self._monotonic_ns = judged, tick.time_ns, tick.monotonic_ns
        self.number += 1
        if self._named_counts != (len(self._now), len(self._book.users), len(self._xids)):
            self._pack_names()
        return True

    def record(self) -> tuple[int, SumNames, SumTimes, Iterable[Iterable[float]]]:
        """Return the number, names, times and rows to publish in the ring."""
        return (
            self.number,
            self._names,
            SumTimes(self._monotonic_ns, self._time_ns, self._since_ns, self._dropped),
            self._rows,
        )

    def _count_holders(self, holders: _Holders, now_ns: int) -> None:
        """Add the rows of new holders to `_shares`. They were first seen at `now_ns` (CLOCK_MONOTONIC)."""
        holders.are_counted = True
        for user, row in zip(holders.users, holders.rows, strict=True):
            key = UserHourKey(0, holders.uuid, user)
            if key not in self._shares:
                self._shares[key], row[2] = row, now_ns / SECOND

    def _update_holders(self, uuid: str, gpu: HeldDevice, idle: float, now_ns: int) -> _Holders:
        """Update the holders of a GPU and the time for which each has held the idle GPU, and return the holders.

        `idle`: seconds for which the GPU has been idle. The time of a holder may be shorter, because a holder may have
        come after the GPU became idle.
        """
        holders = self._holders_by_device.get(uuid)
        if holders is None or holders.users is not gpu.users:
            holders = self._replace_holders(uuid, holders, gpu.users, now_ns)
        if idle >= 0.0 and gpu.state in _IDLE_HELD:
            holders.is_idle = True
            for row, begun_ns in zip(holders.rows, holders.begun_ns, strict=True):
                row[1] = min(idle, (now_ns - begun_ns) / SECOND)
        elif holders.is_idle:
            holders.is_idle = False
            for row in holders.rows:
                row[1] = NAN
        return holders

    def _replace_holders(
        self, uuid: str, previous: _Holders | None, users: Mapping[str, float], now_ns: int
    ) -> _Holders:  # fmt: skip
        """Set the holders of a GPU. The start time of users who already held it does not change."""
        begun_ns = dict(zip(previous.users, previous.begun_ns, strict=True)) if previous else {}
        for user in begun_ns.keys() - users.keys():
            self._row(uuid, user)[1] = NAN
        rows = [self._row(uuid, user) for user in users]
        holders = _Holders(uuid, users, [begun_ns.get(user, now_ns) for user in users], rows)
        if users:
            self._holders_by_device[uuid] = holders
        else:
            self._holders_by_device.pop(uuid, None)
        return holders

    def _row(self, uuid: str, user: str) -> list[float]:
        """Return the row of a holder in `_shares`, or a new row that is not in `_shares` yet."""
        return self._shares.get(UserHourKey(0, uuid, user)) or [0.0, NAN, NAN]

    def _resume(self, earlier: Sums) -> None:
        """Continue the sums of the previous daemon."""
        totals = totals_from_sums(earlier)
        for uuid, device in totals.devices.items():
            self._book.devices[DeviceHourKey(0, uuid)] = list(device.use)
            self._now[uuid] = list(device.now._replace(idle=NAN, state=_CODES[GpuState.UNKNOWN]))
        for (uuid, user), account in totals.users.items():
            self._book.users[UserHourKey(0, uuid, user)] = list(account[1:])
            begun = earlier.monotonic_ns / SECOND - totals.ages.get((uuid, user), NAN)
            self._shares[UserHourKey(0, uuid, user)] = [totals.shares.get((uuid, user), 0.0), NAN, begun]
        for key, count in totals.xids.items():
            self._xids[key] = list(count)

    def _pack_names(self) -> None:
        """Evict the sums that do not fit, and pack the names for the ring again."""
        while True:
            self._evict()
            devices, users = self._book.devices, self._book.users
            pairs = {key: sums for key, sums in users.items() if key.device in self._now}
            self._names = SumNames(
                {
                    DEVICES: (DEVICE_TOTALS, [(uuid,) for uuid in self._now]),
                    USERS: (USER_TOTALS, [(key.device, key.user[:_MAX_NAME_LENGTH]) for key in pairs]),
                    XIDS: (XidCount._fields, [(uuid, str(code)) for uuid, code in self._xids]),
                    STATES: (("code",), [(state.value,) for state in _CODES]),
                }
            )
            if self._names.size <= self._room or self._max_users < 1:
                break
            self._max_users = len(users) * 3 // 4
        now = self._monotonic_ns / SECOND
        device_rows = ((devices[DeviceHourKey(0, uuid)], row) for uuid, row in self._now.items())
        user_rows = ((sums, self._shares.setdefault(key, [0.0, NAN, now])) for key, sums in pairs.items())
        self._rows = [
            *chain.from_iterable(device_rows), *chain.from_iterable(user_rows), *self._xids.values(),
            list(_CODES.values()),
        ]  # fmt: skip
        self._named_counts = (len(self._now), len(users), len(self._xids))
        for uuid, holders in self._holders_by_device.items():  # some rows may have been evicted
            holders.rows, holders.are_counted = [self._row(uuid, user) for user in holders.users], False

    def _evict(self) -> None:
        """Evict sums until the limits are met.

        Sums of absent devices and of users who hold no GPU are evicted first, oldest first.
        """
        present = {gpu.sample.device.uuid for gpu in self._judged}
        held = {UserHourKey(0, gpu.sample.device.uuid, user) for gpu in self._judged for user in gpu.users}
        book = self._book
        gone = [uuid for uuid in self._now if uuid not in present][: max(0, len(self._now) - MAX_DEVICES)]
        users = [key for key in book.users if key.device in gone]
        excess = max(0, len(book.users) - len(users) - self._max_users)
        idle = [key for key in book.users if key.device not in gone and key not in held]
        busy = [key for key in reversed(book.users) if key.device not in gone and key in held]
        evicted = (idle + busy)[:excess]
        self._dropped += len(set(evicted) - self._uncounted)
        self._uncounted = (self._uncounted | set(evicted)) & held
        book.discard([DeviceHourKey(0, uuid) for uuid in gone], [*users, *evicted])
        for user in (*users, *evicted):
            self._shares.pop(user, None)
        for uuid in gone:
            del self._now[uuid]
        for key in list(self._xids)[: max(0, len(self._xids) - MAX_XIDS)]:
            del self._xids[key]
