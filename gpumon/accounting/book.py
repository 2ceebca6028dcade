"""Ticks into the sums of each hour, by device and by user.

What a tick found holds until the next one, if the two follow each other (`is_gap`); else nothing is known of the time
between, and nothing is counted. A stretch that goes over the end of an hour is split there.

Who holds a GPU holds it the whole time, alone or not. Its busy time and its energy are divided by the kernel time of
each user's processes; where the driver does not tell it of every holder, they are the device's, and nobody's part is
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.holders import HeldDevice
from gpumon.clock import SECOND
from gpumon.frame import NAN, Device, Tick
from gpumon.history.gaps import is_gap
from gpumon.metrics import GPU_INDEX, Availability
from gpumon.vendors import PARTS

HOUR = 3600 * SECOND
"""ns in an hour."""
_ENERGY, _POWER = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power"]
_ANSWERS = (Availability.OK, Availability.ASLEEP)
_UNJUDGED = (GpuState.UNKNOWN, GpuState.ASLEEP)

DEVICE_COLUMNS = (
    "observed", "identified", "judged", "held", "busy", "idle_held", "metered", "energy", "free", "free_energy",
)  # fmt: skip
"""Sums of a device in an hour: seconds, and joules of energies."""
USER_COLUMNS = ("held", "judged", "busy", "idle_held", "metered", "energy")
"""Sums of a user on a device in an hour."""


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


class _Holding(NamedTuple):
    """A device as a tick found it, which holds until the next."""

    of: HeldDevice
    parts: Sequence[tuple[str, float]]
    """Users, and the part of each in busy time and energy; NaN where that is not known."""
    energy: float
    """That its counter had; NaN where there is none, or it is that of more than this device."""
    power: float


class AccountBook:
    """Sums that nobody has taken yet."""

    def __init__(self) -> None:
        self.devices: dict[HourOfDevice, list[float]] = {}
        self.users: dict[HourOfUser, list[float]] = {}
        self.names: dict[str, Device] = {}
        self._before: list[_Holding] = []
        self._time_ns = self._monotonic_ns = 0

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Take a tick and its GPUs; they come in order."""
        passed_ns, by_clock = tick.monotonic_ns - self._monotonic_ns, tick.time_ns - self._time_ns
        holdings = [_holding(one) for one in judged if one.sample.state in _ANSWERS]
        if self._before and not is_gap(passed_ns / SECOND, by_clock / SECOND, tick.interval_ns / SECOND):
            counters = {one.of.sample.device.uuid: one.energy for one in holdings}
            # Hours are those of the clock as it is now; a little that it was set falls into this stretch.
            for hour, seconds in _by_hour(tick.time_ns - passed_ns, tick.time_ns):
                for one in self._before:
                    counter = counters.get(one.of.sample.device.uuid, NAN)
                    self._count(hour, one, seconds, seconds * SECOND / passed_ns, counter)
        for held in judged:
            if held.sample.device.uuid not in self.names:
                self.names[held.sample.device.uuid] = held.sample.device
        self._before, self._time_ns, self._monotonic_ns = holdings, tick.time_ns, tick.monotonic_ns

    def take(self) -> AccountBook:
        """Return the sums so far, and begin again with none."""
        taken = AccountBook()
        taken.devices, taken.users, taken.names = self.devices, self.users, self.names
        self.devices, self.users, self.names = {}, {}, {}
        return taken

    def give_back(self, taken: AccountBook) -> None:
        """Add sums that could not be written."""
        self.names = {**taken.names, **self.names}
        _add_all(self.devices, taken.devices)
        _add_all(self.users, taken.users)

    def _count(self, hour: int, one: _Holding, seconds: float, share: float, counter: float) -> None:
        """`one` held for `seconds`, a `share` of the time until the counter of energy was at `counter`."""
        grown = counter - one.energy
        joules = grown * share if grown >= 0 else one.power * seconds
        held, state, uuid = one.of.held, one.of.state, one.of.sample.device.uuid
        judged, busy, idle = state not in _UNJUDGED, state is GpuState.BUSY, state is GpuState.HELD
        key = HourOfDevice(hour, uuid)
        sums = self.devices.get(key)
        if sums is None:
            sums = self.devices[key] = [0.0] * len(DEVICE_COLUMNS)
        sums[0] += seconds
        if one.of.is_identified:
            sums[1] += seconds
        if judged:
            sums[2] += seconds
        if held:
            sums[3] += seconds
        if busy:
            sums[4] += seconds
        elif idle:
            sums[5] += seconds
        # NaN is not itself; in place, because this is done for each device at each tick.
        metered = joules == joules
        if metered:
            sums[6] += seconds
            sums[7] += joules
        if held is False:
            sums[8] += seconds
            if metered:
                sums[9] += joules
        for user, part in one.parts:
            of_user = HourOfUser(hour, uuid, user)
            account = self.users.get(of_user)
            if account is None:
                account = self.users[of_user] = [0.0] * len(USER_COLUMNS)
            account[0] += seconds
            known = part == part
            if judged and (known or not busy):
                account[1] += seconds
                if busy:
                    account[2] += seconds * part
                elif idle:
                    account[3] += seconds
            if metered and known:
                account[4] += seconds
                account[5] += joules * part


def _add_all(mine: dict[_Key, list[float]], its: dict[_Key, list[float]]) -> None:
    for key, sums in its.items():
        known = mine.get(key)
        mine[key] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]


def _holding(one: HeldDevice) -> _Holding:
    sample = one.sample
    parts = _parts(one) if one.users else ()
    # The counter and the power of a MIG instance are those of the whole GPU.
    if sample.state is not Availability.OK or sample.device.uuid.startswith(PARTS):
        return _Holding(one, parts, NAN, NAN)
    return _Holding(one, parts, sample.values[_ENERGY], sample.values[_POWER])


def _parts(one: HeldDevice) -> Sequence[tuple[str, float]]:
    """The users of a device, and the part of each."""
    users = one.users
    if not one.is_identified:
        return [(user, NAN) for user in users]
    if len(users) == 1:
        return [(user, 1.0) for user in users]
    whole = sum(users.values())
    return [(user, share / whole if whole > 0 else NAN) for user, share in users.items()]


def _by_hour(begin: int, end: int) -> Iterator[tuple[int, float]]:
    """The hours that a stretch of time (ns since 1970) lies in, and its seconds in each."""
    while begin < end:
        hour = begin // HOUR
        until = min(end, (hour + 1) * HOUR)
        yield hour, (until - begin) / SECOND
        begin = until
