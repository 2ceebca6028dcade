"""Ticks into the sums of each hour, by device and by user.

What a tick found holds until the next one, if the two follow each other (`is_gap`); else nothing is known of the time
between, and nothing is counted. A stretch that goes over the end of an hour is split there.

Who holds a GPU holds it the whole time, alone or not. Its busy time and its energy are divided by the kernel time of
each user's processes; where the driver does not tell it of every holder, they are the device's, and nobody's part is
known. Energy is known between two readings of the counter, by their own times (`energy_meter`): also that of a moment
in which a GPU did not answer, which is of those who held it before and after.

A GPU that MIG divides is neither held nor free: its instances are. Its own are the energy, and the time in which that
was measured. Of an instance of which nobody knows whether it works, only who holds it is counted.
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
from gpumon.storage.history.grid import is_gap, longest
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.account import DEVICE_COLUMNS, USER_COLUMNS
from gpumon.storage.usage.energy_meter import EnergyMeter

_HOUR = HOUR * SECOND

_ENERGY, _POWER, _LIMIT = (GPU_INDEX[f"gpu.{name}"] for name in ("energy", "power", "power_limit"))

# For each device at each tick; to look a member up in its class takes longer than all else that is done with it.
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP

_BUSY, _HELD, _ALLOCATED, _DIVIDED = GpuState.BUSY, GpuState.HELD, GpuState.ALLOCATED, GpuState.DIVIDED

_KIND = itemgetter(*(HeldDevice._fields.index(name) for name in ("state", "held", "users", "is_identified")))

_OF_DIVIDED = tuple(float(name in ("metered", "energy")) for name in DEVICE_COLUMNS)

_UNJUDGED = (GpuState.UNKNOWN, GpuState.ASLEEP)

_METERED, _JOULES, _FREE_JOULES = map(DEVICE_COLUMNS.index, ("metered", "energy", "free_energy"))

_USER_METERED, _USER_JOULES = map(USER_COLUMNS.index, ("metered", "energy"))

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


class _EnergyPart(NamedTuple):
    """Owners of the energy of a stretch."""

    hour: int
    observed: bool
    """Whether it answered meanwhile."""
    free: float
    """1 where nobody held it, else 0."""
    users: Sequence[tuple[str, float, float]]
    """Each, 1 where their part is known, else 0, and the part."""


_NOBODYS = _EnergyPart(0, False, 0.0, ())


class _DeviceHour:
    """The sums of a device, and of its users, in the hour that goes on; and a stretch in which it has not changed."""

    __slots__ = (
        "accounts", "is_whole", "joules", "kind", "metered", "part", "seconds", "shares", "sums", "unanswered",
        "weights",
    )  # fmt: skip

    def __init__(self, sums: list[float], is_whole: bool) -> None:
        self.sums = sums
        """In the order of `DEVICE_COLUMNS`, up to the stretch that goes on."""
        self.accounts: dict[str, list[float]] = {}
        """The sums of each user, in the order of `USER_COLUMNS`."""
        self.is_whole = is_whole
        """Whether its counter and its power are its own: those of a MIG instance are the whole GPU's."""
        self.kind: tuple[object, ...] = ()
        """Facts that do not change in the stretch, as `_KIND` gives them."""
        self.seconds = self.metered = self.joules = 0.0
        """Of the stretch: its length, that of it in which energy is known, and the energy."""
        self.part = self.unanswered = _NOBODYS
        """Owners of its energy, and of that of a moment in it without an answer."""
        self.weights: Sequence[float] = ()
        """By column, the part of the stretch's own amount."""
        self.shares: Sequence[tuple[list[float], Sequence[float]]] = ()
        """Of its users: the sums of each, and the same for them."""

    def settle(self) -> None:
        """Put the stretch into the sums, and begin another one that is like it."""
        seconds, metered, joules = self.seconds, self.metered, self.joules
        if not (seconds or metered or joules):
            return
        self.seconds = self.metered = self.joules = 0.0
        sums = self.sums
        own = (seconds, seconds, seconds, seconds, seconds, seconds, metered, joules, seconds, joules)
        sums[:] = map(add, sums, map(mul, self.weights, own))
        of_user = (seconds, seconds, seconds, seconds, metered, joules)
        for account, weights in self.shares:
            account[:] = map(add, account, map(mul, weights, of_user))


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
        self._meters: dict[str, EnergyMeter[_EnergyPart]] = {}
        """By UUID, of those whose energy is their own."""
        self._answered: dict[str, HeldDevice] = {}
        """As they answered last, of those that do not now."""
        self._before: dict[str, HeldDevice] = {}
        """The devices by UUID, as the last tick found them; of those that answered it holds until the next."""
        self._time_ns = self._monotonic_ns = 0

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Take a tick and its GPUs; they come in order."""
        passed_ns, by_clock = tick.monotonic_ns - self._monotonic_ns, tick.time_ns - self._time_ns
        now = {one.sample.device.uuid: one for one in judged}
        names = self.names
        if not now.keys() <= names.keys():
            names.update({uuid: one.sample.device for uuid, one in now.items() if uuid not in names})
        interval = tick.interval_ns / SECOND
        if self._before and not is_gap(passed_ns / SECOND, by_clock / SECOND, interval):
            # Hours are those of the clock as it is now; a little that it was set falls into this stretch.
            end_ns = self._monotonic_ns
            for hour, seconds in self._divide_time(tick.time_ns - passed_ns, tick.time_ns):
                if hour != self._hour:
                    self._close()
                    self._hour = hour
                begin_ns, end_ns = end_ns, min(end_ns + round(seconds * SECOND), tick.monotonic_ns)
                for uuid, one in self._before.items():
                    state = one.sample.state
                    if state is _OK or state is _ASLEEP:
                        after = now.get(uuid) if end_ns == tick.monotonic_ns else None
                        self._count(uuid, one, seconds, begin_ns, end_ns, after)
                    elif (answered := self._answered.get(uuid)) is not None:
                        self._wait(uuid, answered, begin_ns, end_ns)
        else:
            self._forget()
        self._read(now, tick, max(FOLLOWS, longest(interval)))
        self._before, self._time_ns, self._monotonic_ns = now, tick.time_ns, tick.monotonic_ns

    def settle(self) -> None:
        """Put all that was counted into `devices` and `users`; until then they lack what goes on unchanged."""
        for device in self._open.values():
            device.settle()

    def take(self) -> AccountBook:
        """Return the sums so far, and begin again with none."""
        self._close()
        taken = AccountBook()
        taken.devices, taken.users, taken.names = self.devices, self.users, self.names
        self.devices, self.users, self.names = {}, {}, {}
        return taken

    def give_back(self, taken: AccountBook) -> None:
        """Add sums that could not be written."""
        self._close()
        self.names = {**taken.names, **self.names}
        _add_all(self.devices, taken.devices)
        _add_all(self.users, taken.users)

    def drop(self, devices: Sequence[HourOfDevice], users: Sequence[HourOfUser]) -> None:
        """Forget sums; what comes of these begins at 0."""
        self._close()
        for device in devices:
            self.devices.pop(device, None)
        for user in users:
            self.users.pop(user, None)

    def _close(self) -> None:
        """Let the hour's sums be: what comes is counted in others, or in these after a look for them."""
        self.settle()
        self._open = {}

    def _count(
        self, uuid: str, one: HeldDevice, seconds: float, begin_ns: int, end_ns: int, after: HeldDevice | None
    ) -> None:
        """`one` held for `seconds`, from `begin_ns` to `end_ns` (CLOCK_MONOTONIC); a tick then finds `after`."""
        device = self._open.get(uuid) or self._begin(uuid)
        if device.kind != _KIND(one) or not device.is_whole:
            self._turn(device, uuid, one)
        device.seconds += seconds
        if device.is_whole and one.sample.state is _OK:
            meter = self._meters[uuid]
            if after is not None and after.sample.state is _OK:
                values, stamp_ns = after.sample.values, after.sample.counters_monotonic_ns
                joules = meter.goes_on(values[_ENERGY], stamp_ns, begin_ns, end_ns, values[_LIMIT])
                if joules == joules:  # NaN is not itself; in place, because it is done for each device and tick
                    device.metered += seconds
                    device.joules += joules
                    return
            meter.hold(device.part, begin_ns, end_ns, one.sample.values[_POWER])

    def _wait(self, uuid: str, answered: HeldDevice, begin_ns: int, end_ns: int) -> None:
        """A GPU said nothing from `begin_ns` to `end_ns`: its counter will tell the energy, if it comes back soon."""
        device = self._open.get(uuid) or self._begin(uuid)
        if device.unanswered is _NOBODYS:
            device.unanswered = _energy_part(self._hour, answered, observed=False)
        meter = self._meters[uuid]
        if meter.at_ns:
            meter.hold(device.unanswered, begin_ns, end_ns, NAN)

    def _read(self, now: Mapping[str, HeldDevice], tick: Tick, follows: float) -> None:
        """Take the counters of a tick; the readings of one lie apart by `follows` seconds at most."""
        meters, answered, follows_ns = self._meters, self._answered, round(follows * SECOND)
        for uuid, one in now.items():
            sample = one.sample
            state = sample.state
            meter = meters.get(uuid)
            if state is _OK:
                if meter is None:
                    if uuid.startswith(PARTS):  # its counter is the whole GPU's
                        continue
                    meter = meters[uuid] = EnergyMeter(partial(self._book_energy, uuid))
                if answered and (before := answered.pop(uuid, None)) is not None and not _is_held_alike(before, one):
                    meter.change(_unowned)
                values, stamp_ns = sample.values, sample.counters_monotonic_ns
                if stamp_ns == meter.stamp_ns and meter.at_ns == tick.monotonic_ns:
                    continue  # taken with the stretch before it, as nearly always
                stamp_ns = stamp_ns or sample.monotonic_ns or tick.monotonic_ns
                meter.read(values[_ENERGY], stamp_ns, tick.monotonic_ns, values[_LIMIT], follows_ns)
            elif meter is not None and state is _ASLEEP:
                meter.forget()
                answered.pop(uuid, None)
            elif meter is not None:
                if tick.monotonic_ns - meter.at_ns > follows_ns:
                    meter.forget()  # it is silent for too long
                if (before := self._before.get(uuid)) is not None and before.sample.state is _OK:
                    answered[uuid] = before
        if not meters.keys() <= now.keys():
            for uuid in meters.keys() - now.keys():
                meters.pop(uuid).forget()
                answered.pop(uuid, None)

    def _forget(self) -> None:
        """Follow no counter over a gap."""
        for meter in self._meters.values():
            meter.forget()
        self._answered = {}

    def _book_energy(self, uuid: str, part: _EnergyPart, seconds: float, joules: float) -> None:
        """Add energy that is known now."""
        device = self._open.get(uuid)
        if device is not None and device.part is part:  # as nearly always
            device.metered += seconds
            device.joules += joules
            return
        hour, observed, free, users = part
        sums = self.devices.setdefault(HourOfDevice(hour, uuid), [0.0] * len(DEVICE_COLUMNS))
        sums[_METERED] += seconds if observed else 0.0
        sums[_JOULES] += joules
        sums[_FREE_JOULES] += free * joules
        for user, known, mine in users:
            account = self.users.setdefault(HourOfUser(hour, uuid, user), [0.0] * len(USER_COLUMNS))
            account[_USER_METERED] += known * seconds if observed else 0.0
            account[_USER_JOULES] += mine * joules

    def _begin(self, uuid: str) -> _DeviceHour:
        sums = self.devices.setdefault(HourOfDevice(self._hour, uuid), [0.0] * len(DEVICE_COLUMNS))
        device = self._open[uuid] = _DeviceHour(sums, is_whole=not uuid.startswith(PARTS))
        return device

    def _turn(self, device: _DeviceHour, uuid: str, one: HeldDevice) -> None:
        """End the stretch of `device`, and begin the one that `one` is in."""
        device.settle()
        device.kind, state, held = _KIND(one), one.state, one.held
        if device.is_whole:
            device.part, device.unanswered = _energy_part(self._hour, one, observed=True), _NOBODYS
        if state is _DIVIDED:
            device.weights, device.shares = _OF_DIVIDED, ()
            return
        is_judged = state not in _UNJUDGED
        if not device.is_whole and state is _ALLOCATED:
            is_judged = is_known(work_share(one.sample))
        busy, idle, free = state is _BUSY, state is _HELD, held is False
        device.weights = tuple(
            map(float, (True, one.is_identified, is_judged, held is True, busy, idle, True, True, free, free))
        )
        shares = []
        for user, part in _parts(one):
            known = is_known(part)
            judged = is_judged and (known or not busy)
            mine = part if known else 0.0
            weights = (1.0, float(judged), mine * busy, float(judged and idle), float(known), mine)
            shares.append((self._account(device, uuid, user), weights))
        device.shares = shares

    def _account(self, device: _DeviceHour, uuid: str, user: str) -> list[float]:
        account = device.accounts.get(user)
        if account is None:
            key = HourOfUser(self._hour, uuid, user)
            account = device.accounts[user] = self.users.setdefault(key, [0.0] * len(USER_COLUMNS))
        return account


def _add_all(mine: dict[_Key, list[float]], its: dict[_Key, list[float]]) -> None:
    for key, sums in its.items():
        known = mine.get(key)
        mine[key] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]


def _energy_part(hour: int, one: HeldDevice, *, observed: bool) -> _EnergyPart:
    if one.state is _DIVIDED:
        return _EnergyPart(hour, observed, 0.0, ())
    users = [(user, float(is_known(part)), part if is_known(part) else 0.0) for user, part in _parts(one)]
    return _EnergyPart(hour, observed, float(one.held is False), users)


def _unowned(part: _EnergyPart) -> _EnergyPart:
    """The same, of nobody where it did not answer."""
    return part if part.observed else _EnergyPart(part.hour, False, 0.0, ())


def _is_held_alike(before: HeldDevice, one: HeldDevice) -> bool:
    """Whether a GPU that has not answered for a moment is held by those who held it before."""
    return before.held == one.held and before.users.keys() == one.users.keys() and before.state is not _DIVIDED


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
