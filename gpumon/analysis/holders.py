"""Users who hold each GPU of a tick, and its state: the judgment of `gpu_state`, for what is kept of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple

from gpumon.analysis.gpu_state import Activity, GpuState, IdleSince, is_held, judge
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, IDLE, PROCESSES, Availability
from gpumon.model.process import Process

_UTILIZATION = GPU_INDEX["gpu.utilization"]
_KERNEL_TIME = itemgetter(*(Process._fields.index(name) for name in ("uuid", "user", "sm_utilization")))
# For each device at each tick; to look a member up in its class takes longer than all else that is done with it.
_OK, _RUNNING = Availability.OK, RunState.RUNNING
_BUSY, _ALLOCATED, _HELD = GpuState.BUSY, GpuState.ALLOCATED, GpuState.HELD
_PAUSE_NS = round(PAUSE * SECOND)
_NEVER: Mapping[str, int] = {}
NOBODY_KNOWN = ""
"""The name of a user who is not known."""
_NOBODY: Mapping[str, float] = {}
_SOMEBODY: Mapping[str, float] = {NOBODY_KNOWN: NAN}


class HeldDevice(NamedTuple):
    """A GPU at a tick."""

    sample: Sample
    state: GpuState
    held: bool | None
    """Whether somebody holds it; None where that cannot be known."""
    users: Mapping[str, float]
    """The kernel time of each user's processes on it, ratio; NaN where the driver does not tell. The same object as at
    the tick before where nothing of it changed."""
    since: Mapping[str, int]
    """When each of them was first seen to hold it without a break, ns, CLOCK_MONOTONIC."""
    is_identified: bool
    """Whether these are all who hold it."""
    idle: IdleSince | None = None
    """Since when it has done nothing; None where it works, or nobody knows."""
    idle_as_held: IdleSince | None = None
    """The same, but not from before it was taken, or released, last."""


class HolderWatch:
    """Judges the GPUs of ticks, which come in order: each once, whoever asks, and however many do.

    Looks for users only in lists of processes that are new.
    A user holds a GPU while a process of theirs is on it, or a running run of theirs claims it.
    """

    def __init__(self) -> None:
        self.activity = Activity()
        """Work of the GPUs, up to the last tick."""
        self._processes: Sequence[Process] = ()
        self._claims: list[tuple[str, tuple[str, ...]]] = []
        self._users: dict[str, Mapping[str, float]] = {}
        """By UUID, where there are any."""
        self._since: dict[str, dict[str, int]] = {}
        """By UUID, as `HeldDevice.since`."""
        self._tick: Tick | None = None
        self._judged: Sequence[HeldDevice] = ()

    def judged(self, tick: Tick) -> Sequence[HeldDevice]:
        """Return the GPUs of a tick, judged; of the newest one, they are judged already where somebody has asked."""
        if tick is not self._tick:
            self._judged, self._tick = self._judge(tick), tick
        return self._judged

    def _judge(self, tick: Tick) -> list[HeldDevice]:
        claims = [(run.user, run.gpus) for run in tick.runs if run.state is _RUNNING]
        if tick.processes is not self._processes or claims != self._claims:
            self._look(tick.processes, claims)
            self._date(tick.monotonic_ns)
        activity = self.activity
        activity.watch(
            tick.samples, monotonic_ns=tick.monotonic_ns, time=tick.time_ns / SECOND,
            interval=tick.interval_ns / SECOND, holders=self._users,
        )  # fmt: skip
        users_of = self._users.get
        found = []
        for sample in tick.samples:  # in place: for each device at each tick
            uuid, utilization = sample.device.uuid, sample.values[_UTILIZATION]
            users = users_of(uuid, _NOBODY)
            held = True if users else is_held(sample, (), False)
            identified = held is not None and NOBODY_KNOWN not in users and PROCESSES not in sample.device.missing
            if held and not users:
                users, identified = _SOMEBODY, False
            # At work it is busy, whatever was before.
            is_busy = IDLE <= utilization < inf and sample.state is _OK
            since = self._since.get(uuid, _NEVER)
            if is_busy:
                found.append(HeldDevice(sample, _BUSY, held, users, since, identified))
                continue
            state = judge(sample, held, activity.observed(uuid))
            if state is _HELD and since and tick.monotonic_ns - min(since.values()) < _PAUSE_NS:
                state = _ALLOCATED  # others held it before: what it did not do then is not theirs
            idle, as_held = activity.idle_since(uuid), activity.idle_as_held(uuid)
            found.append(HeldDevice(sample, state, held, users, since, identified, idle, as_held))
        return found

    def _date(self, now_ns: int) -> None:
        """Note who holds each device since when."""
        self._since = {
            uuid: {user: before.get(user, now_ns) for user in users}
            for uuid, users in self._users.items()
            for before in [self._since.get(uuid, _NEVER)]
        }

    def _look(self, processes: Sequence[Process], claims: list[tuple[str, tuple[str, ...]]]) -> None:
        """Find the users of each device; those that are as before stay the same objects."""
        on_it: dict[str, dict[str, float]] = {}
        for uuid, user, share in map(_KERNEL_TIME, processes):
            users = on_it.get(uuid)
            if users is None:
                on_it[uuid] = {user: 0.0 + share}
            else:
                users[user] = users.get(user, 0.0) + share
        found: dict[str, dict[str, float]] = {}
        for user, uuids in claims:
            for uuid in uuids:
                found.setdefault(uuid, {})[user] = NAN
        for uuid, users in on_it.items():
            claimed = found.get(uuid)
            found[uuid] = {**claimed, **users} if claimed else users
        before = self._users
        self._users = {
            uuid: known if (known := before.get(uuid)) == users and known is not None else users
            for uuid, users in found.items()
        }
        self._processes, self._claims = processes, claims


def held_now(statuses: Iterable[GpuStatus]) -> Mapping[str, Sequence[Device]]:
    """Return the devices of each user, and as those of "" the ones that may have a holder who is not known."""
    found: dict[str, list[Device]] = {"": []}
    for status in statuses:
        users = {process.user for process in status.processes} | {one.first.user for one in status.runs}
        may_be_held = status.held is not False and status.state is not GpuState.DIVIDED
        unknown = {""} if status.is_unlisted or (may_be_held and not users) else set()
        for user in sorted(users | unknown):
            found.setdefault(user, []).append(status.sample.device)
    return found
