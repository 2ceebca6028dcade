"""`UseMeter` computes the running sums that a daemon publishes. They follow the rules of accounts but are not divided
into hours.

The time after a tick is counted when the next tick arrives. So the growth of a sum between two readings by a client is
exact, regardless of the time between the readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_ANSWERS = (Availability.OK, Availability.ASLEEP)
_IDLE_HELD = (GpuState.ALLOCATED, GpuState.HELD)
_CODES = {state: float(code) for code, state in enumerate(GpuState)}


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
        self._held: dict[UserHourKey, int] = {}
        """For each current holder of a device: the time since which the user holds it (ns, CLOCK_MONOTONIC)."""
        self._now: dict[str, list[float]] = {}
        """Values of `DeviceNow` by device UUID, in the order of its fields."""
        self._xids: dict[tuple[str, int], list[float]] = {}
        self._uncounted: set[UserHourKey] = set()
        """Current holders whose sums were dropped because there was no space for the sums."""
        self._judged: Sequence[HeldDevice] = ()
        """The devices in the last tick."""
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
        passed = (tick.monotonic_ns - self._monotonic_ns) / SECOND
        by_clock = (tick.time_ns - self._time_ns) / SECOND
        if self._judged and not is_gap(passed, by_clock, tick.interval_ns / SECOND):
            for gpu in self._judged:
                self._count(gpu, passed, tick.monotonic_ns)
        for gpu in judged:
            uuid = gpu.sample.device.uuid
            if uuid not in self._now:
                self._now[uuid] = list(DeviceNow())
                self._book.devices.setdefault(DeviceHourKey(0, uuid), [0.0] * len(DEVICE_COLUMNS))
            self._now[uuid][2:] = gpu.idle.seconds if gpu.idle else NAN, _CODES[gpu.state]
        self._update_holders(judged, tick.monotonic_ns)
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

    def _count(self, gpu: HeldDevice, passed: float, now_ns: int) -> None:
        """Count `passed` seconds, up to `now_ns` (CLOCK_MONOTONIC), in which the device was in the state of `gpu`."""
        sample, uuid = gpu.sample, gpu.sample.device.uuid
        # The values of a device that does not answer are old.
        utilization = sample.values[_UTILIZATION] if sample.state is Availability.OK else NAN
        if utilization >= 0.0:  # not NaN
            self._now[uuid][0] += utilization * passed
            self._now[uuid][1] += passed
        if sample.state in _ANSWERS and gpu.state is not GpuState.DIVIDED:
            for user in gpu.users:
                row = self._shares.setdefault(UserHourKey(0, uuid, user), [0.0, NAN, now_ns / SECOND])
                row[0] += passed / len(gpu.users)

    def _update_holders(self, judged: Sequence[HeldDevice], now_ns: int) -> None:
        """Update the current holders, and for how long each has held an idle device.

        This time may be shorter than the idle time of the device, because a holder may have come later.
        """
        previous, self._held = self._held, {}
        for gpu in judged:
            idle = gpu.idle.seconds if gpu.idle and gpu.state in _IDLE_HELD else NAN
            for user in gpu.users:
                key = UserHourKey(0, gpu.sample.device.uuid, user)
                since_ns = self._held[key] = previous.get(key, now_ns)
                if key in self._shares:
                    self._shares[key][1] = min(idle, (now_ns - since_ns) / SECOND)
        for key in previous.keys() - self._held.keys():
            if key in self._shares:
                self._shares[key][1] = NAN

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

    def _evict(self) -> None:
        """Evict sums until the limits are met.

        Sums of absent devices and of users who hold no GPU are evicted first, oldest first.
        """
        present = {gpu.sample.device.uuid for gpu in self._judged}
        book, held = self._book, self._held.keys()
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
