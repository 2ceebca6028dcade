"""`AccountBook` sums the usage of each device, and of each user on a device, by hour.

The state at a tick is valid until the next tick, unless there is a gap between the two ticks (`is_gap`). Time in a gap
does not count. A span of time that crosses the end of an hour is split at this point.

Held time counts in full for each holder, even if several users hold the GPU at the same time. Busy time and energy are
divided between the holders by the kernel time of their processes. If the driver does not report the kernel time of
every holder, busy time and energy count only for the device, and no user gets a share. Energy is the growth of the
counter between two readings (`energy_meter`). If a GPU did not answer for a short time, the energy of this time counts
for the holders if they are the same before and after it.

A GPU that is divided by MIG is neither held nor free; only its instances are. For the GPU itself, only energy and the
time in which energy was measured are counted. If there is no data on the activity of an instance, only its holders are
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import add
from typing import NamedTuple, TypeVar

from gpumon.analysis.gpu_state import GpuState, work_share
from gpumon.analysis.holders import HeldDevice
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS
from gpumon.model.frame import Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.vendors import PARTS
from gpumon.storage.history.buckets import is_gap, max_interval
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.energy_meter import EnergyMeter

_HOUR = HOUR * SECOND
_ENERGY, _POWER, _LIMIT = (GPU_INDEX[f"gpu.{name}"] for name in ("energy", "power", "power_limit"))
# Module constants, because looking up enum members for each device at each tick costs more than using them.
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP
_UNJUDGED = (GpuState.UNKNOWN, GpuState.ASLEEP)
_Key = TypeVar("_Key")


class DeviceHourKey(NamedTuple):
    """Identifies the sums of a device in one hour."""

    hour: int
    """Hours since 1970, UTC."""
    device: str
    """UUID of the GPU."""


class UserHourKey(NamedTuple):
    """Identifies the sums of a user on a device in one hour."""

    hour: int
    device: str
    user: str


class _EnergyPart(NamedTuple):
    """Describes how the energy of a span of time is divided between users."""

    hour: int
    observed: bool
    """Whether the device answered during the span."""
    free: float
    """1 if no process held the device, else 0."""
    users: tuple[tuple[str, float], ...]
    """For each user, the name and the share (0 to 1), which is NaN if it could not be determined."""


class AccountBook:
    """Sums that are not written yet.

    `divide`: function that splits a span of time (ns since 1970) into hours, by default `by_hour`.
    """

    def __init__(self, divide: Callable[[int, int], Sequence[tuple[int, float]]] | None = None) -> None:
        self._divide_time = divide or by_hour
        self.devices: dict[DeviceHourKey, list[float]] = {}
        """Sums in the order of `DEVICE_COLUMNS`."""
        self.users: dict[UserHourKey, list[float]] = {}
        """Sums in the order of `USER_COLUMNS`."""
        self.names: dict[str, Device] = {}
        self._meters: dict[str, EnergyMeter[_EnergyPart]] = {}
        """Energy meters by UUID. Only whole GPUs have one: a MIG instance has the counter and power of its GPU."""
        self._answered: dict[str, HeldDevice] = {}
        """Last state of each device that currently does not answer, by UUID."""
        self._previous: dict[str, HeldDevice] = {}
        """Devices in the previous tick, by UUID."""
        self._time_ns = self._monotonic_ns = 0

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Add the next tick. `judged` contains the holders and the state of each GPU at this tick."""
        passed_ns, by_clock = tick.monotonic_ns - self._monotonic_ns, tick.time_ns - self._time_ns
        now = {gpu.sample.device.uuid: gpu for gpu in judged}
        for uuid, gpu in now.items():
            self.names.setdefault(uuid, gpu.sample.device)
        interval = tick.interval_ns / SECOND
        if self._previous and not is_gap(passed_ns / SECOND, by_clock / SECOND, interval):
            # The hour is taken from the current wall clock. A small correction of the clock affects only this span.
            end_ns = self._monotonic_ns
            for hour, seconds in self._divide_time(tick.time_ns - passed_ns, tick.time_ns):
                begin_ns, end_ns = end_ns, min(end_ns + round(seconds * SECOND), tick.monotonic_ns)
                for uuid, gpu in self._previous.items():
                    self._count(hour, uuid, gpu, seconds)
                    self._await_energy(hour, uuid, gpu, begin_ns, end_ns)
        else:
            self._reset_meters()
        self._read_counters(now, tick, max(FOLLOWS, max_interval(interval)))
        self._previous, self._time_ns, self._monotonic_ns = now, tick.time_ns, tick.monotonic_ns

    def drain(self) -> AccountBook:
        """Return a new book with the sums so far, and reset the sums of this book to 0."""
        book = AccountBook()
        book.devices, book.users, book.names = self.devices, self.users, self.names
        self.devices, self.users, self.names = {}, {}, {}
        return book

    def restore(self, book: AccountBook) -> None:
        """Put back sums that were returned by `drain` but could not be written."""
        self.names = {**book.names, **self.names}
        for device, sums in book.devices.items():
            _add_sums(self.devices, device, sums)
        for user, sums in book.users.items():
            _add_sums(self.users, user, sums)

    def discard(self, devices: Sequence[DeviceHourKey], users: Sequence[UserHourKey]) -> None:
        """Delete these sums. Later usage of the same devices and users is counted from 0."""
        for device in devices:
            self.devices.pop(device, None)
        for user in users:
            self.users.pop(user, None)

    def _count(self, hour: int, uuid: str, gpu: HeldDevice, seconds: float) -> None:
        """Count `seconds` in the state of `gpu`. Does not count energy."""
        if gpu.sample.state is not _OK and gpu.sample.state is not _ASLEEP:
            return
        device, state = DeviceHourKey(hour, uuid), gpu.state
        if state is GpuState.DIVIDED:
            _add_sums(self.devices, device, DeviceUse())
            return
        is_judged = state not in _UNJUDGED
        if state is GpuState.ALLOCATED and uuid.startswith(PARTS):
            is_judged = is_known(work_share(gpu.sample))
        busy, idle = state is GpuState.BUSY, state is GpuState.HELD
        use = DeviceUse(
            observed=seconds,
            identified=seconds * gpu.is_identified,
            judged=seconds * is_judged,
            held=seconds * (gpu.held is True),
            busy=seconds * busy,
            idle_held=seconds * idle,
            free=seconds * (gpu.held is False),
        )
        _add_sums(self.devices, device, use)
        for user, share in _user_shares(gpu):
            judged = is_judged and (is_known(share) or not busy)
            account = Account(
                user,
                held=seconds,
                judged=seconds * judged,
                busy=seconds * share if busy and is_known(share) else 0.0,
                idle_held=seconds * (judged and idle),
            )
            _add_sums(self.users, UserHourKey(hour, uuid, user), account[1:])

    def _await_energy(self, hour: int, uuid: str, gpu: HeldDevice, begin_ns: int, end_ns: int) -> None:
        """Let the energy from `begin_ns` to `end_ns` (CLOCK_MONOTONIC) be counted when a later reading determines it.

        If the GPU does not answer, this is possible if a reading follows soon. The energy then counts for its last
        holders.
        """
        meter = self._meters.get(uuid)
        if meter is None:
            return
        if gpu.sample.state is _OK:
            part = _energy_part(hour, gpu, observed=True)
            meter.add_span(part, begin_ns, end_ns, gpu.sample.values[_POWER])
        elif (answered := self._answered.get(uuid)) is not None and meter.at_ns:
            meter.add_span(_energy_part(hour, answered, observed=False), begin_ns, end_ns, NAN)

    def _read_counters(self, now: Mapping[str, HeldDevice], tick: Tick, follows: float) -> None:
        """Read the energy counters of a tick. Readings that are more than `follows` seconds apart are not compared."""
        meters, answered, follows_ns = self._meters, self._answered, round(follows * SECOND)
        for uuid, gpu in now.items():
            sample = gpu.sample
            state = sample.state
            meter = meters.get(uuid)
            if state is _OK:
                if meter is None:
                    if uuid.startswith(PARTS):  # a MIG instance only has the counter of its GPU
                        continue
                    meter = meters[uuid] = EnergyMeter(partial(self._book_energy, uuid))
                if answered and (last := answered.pop(uuid, None)) is not None and not _has_same_holders(last, gpu):
                    meter.replace_parts(_without_owner)
                stamp_ns = sample.counters_monotonic_ns or sample.monotonic_ns or tick.monotonic_ns
                energy, limit = sample.values[_ENERGY], sample.values[_LIMIT]
                meter.read(energy, stamp_ns, tick.monotonic_ns, limit, follows_ns)
            elif meter is not None and state is _ASLEEP:
                meter.reset()
                answered.pop(uuid, None)
            elif meter is not None:
                if tick.monotonic_ns - meter.at_ns > follows_ns:
                    meter.reset()  # there was no answer for too long
                if (last := self._previous.get(uuid)) is not None and last.sample.state is _OK:
                    answered[uuid] = last
        for uuid in meters.keys() - now.keys():
            meters.pop(uuid).reset()
            answered.pop(uuid, None)

    def _reset_meters(self) -> None:
        """Reset all energy meters, because counters are not compared across a gap."""
        for meter in self._meters.values():
            meter.reset()
        self._answered = {}

    def _book_energy(self, uuid: str, part: _EnergyPart, seconds: float, joules: float) -> None:
        """Add the energy of a span. `seconds`: length of the span. `joules`: energy of the span."""
        metered = seconds if part.observed else 0.0
        use = DeviceUse(metered=metered, energy=joules, free_energy=part.free * joules)
        _add_sums(self.devices, DeviceHourKey(part.hour, uuid), use)
        for user, share in part.users:
            known = is_known(share)
            account = Account(user, metered=metered * known, energy=share * joules if known else 0.0)
            _add_sums(self.users, UserHourKey(part.hour, uuid, user), account[1:])


def _add_sums(target: dict[_Key, list[float]], key: _Key, added: Sequence[float]) -> None:
    sums = target.setdefault(key, [0.0] * len(added))
    sums[:] = map(add, sums, added)  # in place, because `UseMeter` publishes this list


def _energy_part(hour: int, gpu: HeldDevice, *, observed: bool) -> _EnergyPart:
    if gpu.state is GpuState.DIVIDED:
        return _EnergyPart(hour, observed, 0.0, ())
    return _EnergyPart(hour, observed, float(gpu.held is False), tuple(_user_shares(gpu)))


def _without_owner(part: _EnergyPart) -> _EnergyPart:
    """Return the part without its users if the device did not answer during the span; else the unchanged part."""
    return part if part.observed else _EnergyPart(part.hour, False, 0.0, ())


def _has_same_holders(before: HeldDevice, gpu: HeldDevice) -> bool:
    """Return whether a GPU has the same holders before and after a time without an answer."""
    return before.held == gpu.held and before.users.keys() == gpu.users.keys() and before.state is not GpuState.DIVIDED


def _user_shares(gpu: HeldDevice) -> Sequence[tuple[str, float]]:
    """Return each user of a device with the user's share of the device's kernel time (0 to 1); NaN if not available."""
    users = gpu.users
    if not gpu.is_identified:
        return [(user, NAN) for user in users]
    if len(users) == 1:
        return [(user, 1.0) for user in users]
    whole = sum(users.values())
    return [(user, share / whole if whole > 0 else NAN) for user, share in users.items()]


def by_hour(begin: int, end: int) -> list[tuple[int, float]]:
    """Divide a span of time (ns since 1970) into hours, and return pairs of hour (since 1970) and seconds within it."""
    hours = []
    while begin < end:
        hour = begin // _HOUR
        until = min(end, (hour + 1) * _HOUR)
        hours.append((hour, (until - begin) / SECOND))
        begin = until
    return hours
