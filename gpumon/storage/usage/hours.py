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
from operator import add, itemgetter, mul
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
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS, Account, DeviceUse
from gpumon.storage.usage.energy_meter import EnergyMeter

_HOUR = HOUR * SECOND

_ENERGY, _POWER, _LIMIT = (GPU_INDEX[f"gpu.{name}"] for name in ("energy", "power", "power_limit"))

# Module constants, because looking up enum members for each device at each tick costs more than using them.
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP

_BUSY, _HELD, _ALLOCATED, _DIVIDED = GpuState.BUSY, GpuState.HELD, GpuState.ALLOCATED, GpuState.DIVIDED

_facts = itemgetter(*(HeldDevice._fields.index(name) for name in ("state", "held", "users", "is_identified")))

_DIVIDED_WEIGHTS = DeviceUse(metered=1.0, energy=1.0)

_UNJUDGED = (GpuState.UNKNOWN, GpuState.ASLEEP)

_METERED, _JOULES, _FREE_JOULES = map(DEVICE_COLUMNS.index, ("metered", "energy", "free_energy"))

_USER_METERED, _USER_JOULES = map(USER_COLUMNS.index, ("metered", "energy"))

_MEASURES = {"metered": 1, "energy": 2, "free_energy": 2}
"""For each column, the value of a span that it sums: 1 for the metered seconds, 2 for the energy. The other columns sum
the length of the span."""

_device_values = itemgetter(*(_MEASURES.get(name, 0) for name in DEVICE_COLUMNS))

_user_values = itemgetter(*(_MEASURES.get(name, 0) for name in USER_COLUMNS))

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
    users: Sequence[tuple[str, float, float]]
    """For each user: the name, 1 if the share could be determined (else 0), and the share (0 to 1)."""


_NO_PART = _EnergyPart(0, False, 0.0, ())


class _DeviceHour:
    """Sums of a device and its users in the current hour, and the current span of time, in which the state is
    constant."""

    __slots__ = (
        "accounts",
        "facts",
        "is_whole",
        "joules",
        "metered",
        "part",
        "seconds",
        "shares",
        "sums",
        "unanswered",
        "weights",
    )  # fmt: skip

    def __init__(self, sums: list[float], is_whole: bool) -> None:
        self.sums = sums
        """Sums of the device in the order of `DEVICE_COLUMNS`, without the current span."""
        self.accounts: dict[str, list[float]] = {}
        """The sums of each user, in the order of `USER_COLUMNS`."""
        self.is_whole = is_whole
        """Whether this is a whole GPU. The energy counter and power of a MIG instance belong to its GPU."""
        self.facts: tuple[object, ...] = ()
        """State of the device in the span, which is constant (`_facts`)."""
        self.seconds = self.metered = self.joules = 0.0
        """Values of the span so far: its length in seconds, the seconds for which energy was determined, and the energy
        in joules."""
        self.part = self.unanswered = _NO_PART
        """How the energy is divided, in the span and in times without an answer within it."""
        self.weights: Sequence[float] = ()
        """For each column, the factor with which the span is added to the column."""
        self.shares: Sequence[tuple[list[float], Sequence[float]]] = ()
        """Sums of each user, and the factors with which the span is added to these sums."""

    def flush(self) -> None:
        """Add the span to the sums, and start a new span with the same state."""
        span = self.seconds, self.metered, self.joules
        if not any(span):
            return
        self.seconds = self.metered = self.joules = 0.0
        sums = self.sums
        sums[:] = map(add, sums, map(mul, self.weights, _device_values(span)))
        for account, weights in self.shares:
            account[:] = map(add, account, map(mul, weights, _user_values(span)))


class AccountBook:
    """Sums that are not written yet.

    `divide`: function that splits a span of time (ns since 1970) into hours, by default `by_hour`.
    """

    def __init__(self, divide: Callable[[int, int], Sequence[tuple[int, float]]] | None = None) -> None:
        self._divide_time = divide or by_hour
        self.devices: dict[DeviceHourKey, list[float]] = {}
        self.users: dict[UserHourKey, list[float]] = {}
        self.names: dict[str, Device] = {}
        self._hour = 0
        self._open: dict[str, _DeviceHour] = {}
        """Devices with sums in the current hour, by UUID."""
        self._meters: dict[str, EnergyMeter[_EnergyPart]] = {}
        """Energy meters by UUID. Only whole GPUs have one."""
        self._answered: dict[str, HeldDevice] = {}
        """Last state of each device that currently does not answer, by UUID."""
        self._previous: dict[str, HeldDevice] = {}
        """Devices in the previous tick, by UUID."""
        self._time_ns = self._monotonic_ns = 0

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Add the next tick. `judged` contains the holders and the state of each GPU at this tick."""
        passed_ns, by_clock = tick.monotonic_ns - self._monotonic_ns, tick.time_ns - self._time_ns
        now = {gpu.sample.device.uuid: gpu for gpu in judged}
        names = self.names
        if not now.keys() <= names.keys():
            names.update({uuid: gpu.sample.device for uuid, gpu in now.items() if uuid not in names})
        interval = tick.interval_ns / SECOND
        if self._previous and not is_gap(passed_ns / SECOND, by_clock / SECOND, interval):
            # The hour is taken from the current wall clock. A small correction of the clock affects only this span.
            end_ns = self._monotonic_ns
            for hour, seconds in self._divide_time(tick.time_ns - passed_ns, tick.time_ns):
                if hour != self._hour:
                    self._close()
                    self._hour = hour
                begin_ns, end_ns = end_ns, min(end_ns + round(seconds * SECOND), tick.monotonic_ns)
                for uuid, gpu in self._previous.items():
                    state = gpu.sample.state
                    if state is _OK or state is _ASLEEP:
                        after = now.get(uuid) if end_ns == tick.monotonic_ns else None
                        self._count(uuid, gpu, seconds, begin_ns, end_ns, after)
                    elif (answered := self._answered.get(uuid)) is not None:
                        self._add_unanswered(uuid, answered, begin_ns, end_ns)
        else:
            self._reset_meters()
        self._read_counters(now, tick, max(FOLLOWS, max_interval(interval)))
        self._previous, self._time_ns, self._monotonic_ns = now, tick.time_ns, tick.monotonic_ns

    def flush(self) -> None:
        """Add the time up to the last tick to `devices` and `users`.

        Until this is called, the sums may lack this time.
        """
        for device in self._open.values():
            device.flush()

    def drain(self) -> AccountBook:
        """Return a new book with the sums so far, and reset the sums of this book to 0."""
        self._close()
        book = AccountBook()
        book.devices, book.users, book.names = self.devices, self.users, self.names
        self.devices, self.users, self.names = {}, {}, {}
        return book

    def restore(self, book: AccountBook) -> None:
        """Put back sums that were returned by `drain` but could not be written."""
        self._close()
        self.names = {**book.names, **self.names}
        _add_sums(self.devices, book.devices)
        _add_sums(self.users, book.users)

    def discard(self, devices: Sequence[DeviceHourKey], users: Sequence[UserHourKey]) -> None:
        """Delete these sums. Later usage of the same devices and users is counted from 0."""
        self._close()
        for device in devices:
            self.devices.pop(device, None)
        for user in users:
            self.users.pop(user, None)

    def _close(self) -> None:
        """Flush the sums of the current hour, and release them. If they are needed again, `_begin` looks them up."""
        self.flush()
        self._open = {}

    def _count(
        self, uuid: str, gpu: HeldDevice, seconds: float, begin_ns: int, end_ns: int, after: HeldDevice | None
    ) -> None:
        """Count `seconds` in the state of `gpu`, from `begin_ns` to `end_ns` (CLOCK_MONOTONIC).

        `after` is the device in the tick at `end_ns`, if there is one.
        """
        device = self._open.get(uuid) or self._begin(uuid)
        if device.facts != _facts(gpu) or not device.is_whole:
            self._start_stretch(device, uuid, gpu)
        device.seconds += seconds
        if device.is_whole and gpu.sample.state is _OK:
            meter = self._meters[uuid]
            if after is not None and after.sample.state is _OK:
                values, stamp_ns = after.sample.values, after.sample.counters_monotonic_ns
                joules = meter.read_adjacent(values[_ENERGY], stamp_ns, begin_ns, end_ns, values[_LIMIT])
                if joules == joules:  # NaN != NaN; no call of is_known, because this runs for each device and tick
                    device.metered += seconds
                    device.joules += joules
                    return
            meter.add_stretch(device.part, begin_ns, end_ns, gpu.sample.values[_POWER])

    def _add_unanswered(self, uuid: str, answered: HeldDevice, begin_ns: int, end_ns: int) -> None:
        """Add time without an answer, from `begin_ns` to `end_ns` (CLOCK_MONOTONIC).

        The energy of this time can be determined if a counter reading follows soon.
        """
        device = self._open.get(uuid) or self._begin(uuid)
        if device.unanswered is _NO_PART:
            device.unanswered = _energy_part(self._hour, answered, observed=False)
        meter = self._meters[uuid]
        if meter.at_ns:
            meter.add_stretch(device.unanswered, begin_ns, end_ns, NAN)

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
                values, stamp_ns = sample.values, sample.counters_monotonic_ns
                if stamp_ns == meter.stamp_ns and meter.at_ns == tick.monotonic_ns:
                    continue  # usually, the counter was already read in `_count`
                stamp_ns = stamp_ns or sample.monotonic_ns or tick.monotonic_ns
                meter.read(values[_ENERGY], stamp_ns, tick.monotonic_ns, values[_LIMIT], follows_ns)
            elif meter is not None and state is _ASLEEP:
                meter.reset()
                answered.pop(uuid, None)
            elif meter is not None:
                if tick.monotonic_ns - meter.at_ns > follows_ns:
                    meter.reset()  # there was there was no answer for too long
                if (last := self._previous.get(uuid)) is not None and last.sample.state is _OK:
                    answered[uuid] = last
        if not meters.keys() <= now.keys():
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
        device = self._open.get(uuid)
        if device is not None and device.part is part:  # the usual case
            device.metered += seconds
            device.joules += joules
            return
        hour, observed, free, users = part
        sums = self.devices.setdefault(DeviceHourKey(hour, uuid), [0.0] * len(DEVICE_COLUMNS))
        sums[_METERED] += seconds if observed else 0.0
        sums[_JOULES] += joules
        sums[_FREE_JOULES] += free * joules
        for user, is_share_known, share in users:
            account = self.users.setdefault(UserHourKey(hour, uuid, user), [0.0] * len(USER_COLUMNS))
            account[_USER_METERED] += is_share_known * seconds if observed else 0.0
            account[_USER_JOULES] += share * joules

    def _begin(self, uuid: str) -> _DeviceHour:
        sums = self.devices.setdefault(DeviceHourKey(self._hour, uuid), [0.0] * len(DEVICE_COLUMNS))
        device = self._open[uuid] = _DeviceHour(sums, is_whole=not uuid.startswith(PARTS))
        return device

    def _start_stretch(self, device: _DeviceHour, uuid: str, gpu: HeldDevice) -> None:
        """End the current span of `device`, and start a span with the state of `gpu`."""
        device.flush()
        device.facts, state, held = _facts(gpu), gpu.state, gpu.held
        if device.is_whole:
            device.part, device.unanswered = _energy_part(self._hour, gpu, observed=True), _NO_PART
        if state is _DIVIDED:
            device.weights, device.shares = _DIVIDED_WEIGHTS, ()
            return
        is_judged = state not in _UNJUDGED
        if not device.is_whole and state is _ALLOCATED:
            is_judged = is_known(work_share(gpu.sample))
        busy, idle, free = state is _BUSY, state is _HELD, held is False
        device.weights = DeviceUse(
            observed=1.0,
            identified=float(gpu.is_identified),
            judged=float(is_judged),
            held=float(held is True),
            busy=float(busy),
            idle_held=float(idle),
            metered=1.0,
            energy=1.0,
            free=float(free),
            free_energy=float(free),
        )
        shares = []
        for user, share in _user_shares(gpu):
            known = is_known(share)
            judged = is_judged and (known or not busy)
            factor = share if known else 0.0
            weights = Account(
                user,
                held=1.0,
                judged=float(judged),
                busy=factor * busy,
                idle_held=float(judged and idle),
                metered=float(known),
                energy=factor,
            )
            shares.append((self._account(device, uuid, user), weights[1:]))
        device.shares = shares

    def _account(self, device: _DeviceHour, uuid: str, user: str) -> list[float]:
        account = device.accounts.get(user)
        if account is None:
            key = UserHourKey(self._hour, uuid, user)
            account = device.accounts[user] = self.users.setdefault(key, [0.0] * len(USER_COLUMNS))
        return account


def _add_sums(target: dict[_Key, list[float]], added: dict[_Key, list[float]]) -> None:
    for key, sums in added.items():
        current = target.get(key)
        target[key] = sums if current is None else [a + b for a, b in zip(current, sums, strict=True)]


def _energy_part(hour: int, gpu: HeldDevice, *, observed: bool) -> _EnergyPart:
    if gpu.state is _DIVIDED:
        return _EnergyPart(hour, observed, 0.0, ())
    users = [(user, float(is_known(share)), share if is_known(share) else 0.0) for user, share in _user_shares(gpu)]
    return _EnergyPart(hour, observed, float(gpu.held is False), users)


def _without_owner(part: _EnergyPart) -> _EnergyPart:
    """Return the part without its users if the device did not answer during the span; else the unchanged part."""
    return part if part.observed else _EnergyPart(part.hour, False, 0.0, ())


def _has_same_holders(before: HeldDevice, gpu: HeldDevice) -> bool:
    """Return whether a GPU has the same holders before and after a time without an answer."""
    return before.held == gpu.held and before.users.keys() == gpu.users.keys() and before.state is not _DIVIDED


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
