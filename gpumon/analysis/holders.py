"""Determines who holds each GPU, and its state, at each tick of the daemon. Used for accounts, events and sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import Activity, GpuState, IdleTime, is_held, judge
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import PROCESSES
from gpumon.model.process import Process

_PAUSE_NS = round(PAUSE * SECOND)
_NO_TIMES: Mapping[str, int] = {}
UNKNOWN_USER = ""
"""Key that stands for an unknown user."""
_NO_USERS: Mapping[str, float] = {}
_UNKNOWN_USERS: Mapping[str, float] = {UNKNOWN_USER: NAN}


class HeldDevice(NamedTuple):
    """A GPU at one tick, with its state and the users who hold it."""

    sample: Sample
    state: GpuState
    held: bool | None
    """Whether a process holds the GPU; None if this cannot be determined."""
    users: Mapping[str, float]
    """By user: the share of time (0 to 1) in which kernels of the user's processes ran on the GPU. NaN if the driver
    does not report it. If nothing changed, the mapping is the same object as at the previous tick."""
    since: Mapping[str, int]
    """By user: the time since which the user has held the GPU without interruption (ns, CLOCK_MONOTONIC)."""
    is_identified: bool
    """True if `users` contains every user of the GPU."""
    idle: IdleTime | None = None
    """Idle time of the GPU. None if the GPU is busy or the time was not measured."""
    idle_as_held: IdleTime | None = None
    """Idle time since a process last took or released the GPU. None if the GPU is busy or the time was not measured."""


class HolderWatch:
    """Determines the state and the holders of each GPU at each tick, and caches the result of the newest tick.

    A user holds a GPU while one of the user's processes is on it, or one of the user's running runs claims it. Users
    are determined again only if the process list or the claims have changed.
    """

    def __init__(self) -> None:
        self.activity = Activity()
        """Activity of the GPUs up to the last tick."""
        self._processes: Sequence[Process] = ()
        self._claims: list[tuple[str, tuple[str, ...]]] = []
        self._users: dict[str, Mapping[str, float]] = {}
        """Users of each device by UUID. Devices without users are not included."""
        self._since: dict[str, dict[str, int]] = {}
        """`HeldDevice.since` by UUID."""
        self._tick: Tick | None = None
        self._judged: Sequence[HeldDevice] = ()

    def judged(self, tick: Tick) -> Sequence[HeldDevice]:
        """Return the GPUs of a tick with state and holders."""
        if tick is not self._tick:
            self._judged, self._tick = self._judge(tick), tick
        return self._judged

    def _judge(self, tick: Tick) -> list[HeldDevice]:
        claims = [(run.user, run.gpus) for run in tick.runs if run.state is RunState.RUNNING]
        if tick.processes is not self._processes or claims != self._claims:
            self._update_users(tick.processes, claims)
            self._update_since(tick.monotonic_ns)
        activity = self.activity
        activity.watch(
            tick.samples, monotonic_ns=tick.monotonic_ns, time=tick.time_ns / SECOND,
            interval=tick.interval_ns / SECOND, holders=self._users,
        )  # fmt: skip
        devices = []
        for sample in tick.samples:
            uuid = sample.device.uuid
            users = self._users.get(uuid, _NO_USERS)
            held = True if users else is_held(sample, (), False)
            identified = held is not None and UNKNOWN_USER not in users and PROCESSES not in sample.device.missing
            if held and not users:
                users, identified = _UNKNOWN_USERS, False
            since = self._since.get(uuid, _NO_TIMES)
            state = judge(sample, held, activity.observed(uuid))
            if state is GpuState.HELD and since and tick.monotonic_ns - min(since.values()) < _PAUSE_NS:
                state = GpuState.ALLOCATED  # the earlier idle time belongs to earlier holders
            idle, as_held = activity.idle_since(uuid), activity.idle_as_held(uuid)
            devices.append(HeldDevice(sample, state, held, users, since, identified, idle, as_held))
        return devices

    def _update_since(self, now_ns: int) -> None:
        self._since = {
            uuid: {user: times.get(user, now_ns) for user in users}
            for uuid, users in self._users.items()
            for times in [self._since.get(uuid, _NO_TIMES)]
        }

    def _update_users(self, processes: Sequence[Process], claims: list[tuple[str, tuple[str, ...]]]) -> None:
        """Determine the users of each device. Mappings that do not change stay the same objects."""
        by_process: dict[str, dict[str, float]] = {}
        for process in processes:
            users = by_process.setdefault(process.uuid, {})
            users[process.user] = users.get(process.user, 0.0) + process.sm_utilization
        by_uuid: dict[str, dict[str, float]] = {}
        for user, uuids in claims:
            for uuid in uuids:
                by_uuid.setdefault(uuid, {})[user] = NAN
        for uuid, users in by_process.items():
            by_uuid[uuid] = {**by_uuid.get(uuid, {}), **users}
        previous = self._users
        self._users = {
            uuid: known if (known := previous.get(uuid)) == users and known is not None else users
            for uuid, users in by_uuid.items()
        }
        self._processes, self._claims = processes, claims


def devices_by_user(statuses: Iterable[GpuStatus]) -> Mapping[str, Sequence[Device]]:
    """Return the devices that each user holds. The key "" contains the devices that an unknown user may hold."""
    devices: dict[str, list[Device]] = {"": []}
    for status in statuses:
        users = {process.user for process in status.processes} | {run.first.user for run in status.runs}
        may_be_held = status.held is not False and status.state is not GpuState.DIVIDED
        unknown = {""} if status.is_unlisted or (may_be_held and not users) else set()
        for user in sorted(users | unknown):
            devices.setdefault(user, []).append(status.sample.device)
    return devices
