"""Ticks into the sums of each hour, by device and by user.

What a tick found holds until the next one, if the two follow each other (`is_gap`); else nothing is known of the time
between, and nothing is counted. A stretch that goes over the end of an hour is split there.

Who holds a GPU holds it the whole time, alone or not. Its busy time and its energy are divided by the kernel time of
each user's processes; where the driver does not tell it of every holder, they are the device's, and nobody's part is
known.

A GPU that MIG divides is neither held nor free: its instances are. Its own are the energy, and the time in which that
was measured. Of an instance of which nobody knows whether it works, only who holds it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from gpumon.accounting.account import DEVICE_COLUMNS, USER_COLUMNS
from gpumon.analysis.gpu_state import GpuState, working
from gpumon.analysis.holders import HeldDevice
from gpumon.clock import SECOND
from gpumon.frame import NAN, Device, Tick
from gpumon.history.gaps import is_gap
from gpumon.history.tiers import HOUR
from gpumon.metrics import GPU_INDEX, Availability
from gpumon.missing import is_known
from gpumon.vendors import PARTS

_HOUR = HOUR * SECOND
_ENERGY, _POWER = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power"]
# For each device at each tick; to look a member up in its class takes longer than all else that is done with it.
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP
_BUSY, _HELD, _ALLOCATED, _DIVIDED = GpuState.BUSY, GpuState.HELD, GpuState.ALLOCATED, GpuState.DIVIDED
_UNJUDGED = (GpuState.UNKNOWN, GpuState.ASLEEP)

_Key = TypeVar("_Key")


class HourOfDevice(NamedTuple):
    """The key of a device's sums."""

    hour: int
    """Since 1970, UTC."""
    device: str
    """UUID."""


class HourOfUser(NamedTuple):
    """The key of a user's sums on a device."""

    hour: int
    device: str
    user: str


class _DeviceHour:
    """The sums of a device, and of its users, in the hour that goes on."""

    __slots__ = ("accounts", "is_identified", "is_whole", "shares", "sums", "users")

    def __init__(self, sums: list[float], is_whole: bool) -> None:
        self.sums = sums
        """In the order of `DEVICE_COLUMNS`."""
        self.accounts: dict[str, list[float]] = {}
        """The sums of each user, in the order of `USER_COLUMNS`."""
        self.is_whole = is_whole
        """Whether its counter and its power are its own: those of a MIG instance are the whole GPU's."""
        self.users: Mapping[str, float] | None = None
        self.is_identified = False
        self.shares: Sequence[tuple[list[float], float]] = ()
        """Of these users: the sums of each, and the part of each in busy time and energy; NaN where it is not known."""


class AccountBook:
    """Sums that nobody has taken yet. `divide` splits a stretch of time (ns since 1970) by hour; see `by_hour`."""

    def __init__(self, divide: Callable[[int, int], Sequence[tuple[int, float]]] | None = None) -> None:
        self._divide_time = divide or by_hour
        self.devices: dict[HourOfDevice, list[float]] = {}
        self.users: dict[HourOfUser, list[float]] = {}
        self.names: dict[str, Device] = {}
        self._hour = 0
        self._open: dict[str, _DeviceHour] = {}
        """Of this hour, by UUID."""
        self._before: list[HeldDevice] = []
        """The devices that answered, as the last tick found them; it holds until the next."""
        self._time_ns = self._monotonic_ns = 0

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Take a tick and its GPUs; they come in order."""
        passed_ns, by_clock = tick.monotonic_ns - self._monotonic_ns, tick.time_ns - self._time_ns
        names, answers, counters = self.names, [], {}
        for one in judged:
            sample = one.sample
            uuid, state = sample.device.uuid, sample.state
            if uuid not in names:
                names[uuid] = sample.device
            if state is _OK:
                answers.append(one)
                counters[uuid] = sample.values[_ENERGY]
            elif state is _ASLEEP:
                answers.append(one)
                counters[uuid] = NAN
        if self._before and not is_gap(passed_ns / SECOND, by_clock / SECOND, tick.interval_ns / SECOND):
            # Hours are those of the clock as it is now; a little that it was set falls into this stretch.
            for hour, seconds in self._divide_time(tick.time_ns - passed_ns, tick.time_ns):
                if hour != self._hour:
                    self._hour, self._open = hour, {}
                share = seconds * SECOND / passed_ns
                for one in self._before:
                    self._count(one, seconds, share, counters.get(one.sample.device.uuid, NAN))
        self._before, self._time_ns, self._monotonic_ns = answers, tick.time_ns, tick.monotonic_ns

    def take(self) -> AccountBook:
        """Return the sums so far, and begin again with none."""
        taken = AccountBook()
        taken.devices, taken.users, taken.names = self.devices, self.users, self.names
        self.devices, self.users, self.names = {}, {}, {}
        self._open = {}
        return taken

    def give_back(self, taken: AccountBook) -> None:
        """Add sums that could not be written."""
        self.names = {**taken.names, **self.names}
        _add_all(self.devices, taken.devices)
        _add_all(self.users, taken.users)
        self._open = {}

    def drop(self, devices: Sequence[HourOfDevice], users: Sequence[HourOfUser]) -> None:
        """Forget sums; what comes of these begins at 0."""
        for device in devices:
            self.devices.pop(device, None)
        for user in users:
            self.users.pop(user, None)
        self._open = {}

    def _count(self, one: HeldDevice, seconds: float, share: float, counter: float) -> None:
        """`one` held for `seconds`, a `share` of the time until the counter of energy was at `counter`."""
        sample, state, held, users, _, is_identified, *_ = one
        device = self._open.get(sample.device.uuid)
        if device is None:
            device = self._begin(sample.device.uuid)
        if users is not device.users or is_identified is not device.is_identified:
            self._divide(device, one)
        joules = NAN
        if device.is_whole and sample.state is _OK:
            grown = counter - sample.values[_ENERGY]
            joules = grown * share if grown >= 0 else sample.values[_POWER] * seconds
        # NaN is not itself; in place, because this is done for each device at each tick.
        metered = joules == joules
        busy, idle = state is _BUSY, state is _HELD
        judged = busy or idle or state not in _UNJUDGED
        sums = device.sums
        if not device.is_whole and state is _ALLOCATED:
            judged = is_known(working(sample))
        elif state is _DIVIDED:
            if metered:
                sums[6] += seconds
                sums[7] += joules
            return
        sums[0] += seconds
        if is_identified:
            sums[1] += seconds
        if judged:
            sums[2] += seconds
        if held:
            sums[3] += seconds
        if busy:
            sums[4] += seconds
        elif idle:
            sums[5] += seconds
        if metered:
            sums[6] += seconds
            sums[7] += joules
        if held is False:
            sums[8] += seconds
            if metered:
                sums[9] += joules
        for account, part in device.shares:
            account[0] += seconds
            if part == part:
                if busy:
                    account[2] += seconds * part
                if metered:
                    account[4] += seconds
                    account[5] += joules * part
            elif busy:
                continue
            if judged:
                account[1] += seconds
                if idle:
                    account[3] += seconds

    def _begin(self, uuid: str) -> _DeviceHour:
        sums = self.devices.setdefault(HourOfDevice(self._hour, uuid), [0.0] * len(DEVICE_COLUMNS))
        device = self._open[uuid] = _DeviceHour(sums, is_whole=not uuid.startswith(PARTS))
        return device

    def _divide(self, device: _DeviceHour, one: HeldDevice) -> None:
        """Divide what `device` does from here on among the users of `one`."""
        device.users, device.is_identified, accounts = one.users, one.is_identified, device.accounts
        for user in one.users:
            if user not in accounts:
                key = HourOfUser(self._hour, one.sample.device.uuid, user)
                accounts[user] = self.users.setdefault(key, [0.0] * len(USER_COLUMNS))
        device.shares = [(accounts[user], part) for user, part in _parts(one)]


def _add_all(mine: dict[_Key, list[float]], its: dict[_Key, list[float]]) -> None:
    for key, sums in its.items():
        known = mine.get(key)
        mine[key] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]


def _parts(one: HeldDevice) -> Sequence[tuple[str, float]]:
    """The users of a device, and the part of each."""
    users = one.users
    if not one.is_identified:
        return [(user, NAN) for user in users]
    if len(users) == 1:
        return [(user, 1.0) for user in users]
    whole = sum(users.values())
    return [(user, share / whole if whole > 0 else NAN) for user, share in users.items()]


def by_hour(begin: int, end: int) -> list[tuple[int, float]]:
    """The hours that a stretch of time (ns since 1970) lies in, and its seconds in each."""
    found = []
    while begin < end:
        hour = begin // _HOUR
        until = min(end, (hour + 1) * _HOUR)
        found.append((hour, (until - begin) / SECOND))
        begin = until
    return found
