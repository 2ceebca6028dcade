"""Families about usage: counters for each GPU, counters for each user of a GPU, and the current holders of each GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from gpumon.common.numbers import NAN, is_known
from gpumon.export.family import Family, counter, gauge, info
from gpumon.export.snapshot import GpuFacts, Snapshot, UserNames
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.running_sums import DeviceTotals, Totals

T = TypeVar("T")


class _Counter(NamedTuple, Generic[T]):
    """A counter whose value is computed from usage totals of the type `T`."""

    name: str
    help: str
    value: Callable[[T], float]


_DEVICE_COUNTERS: tuple[_Counter[DeviceTotals], ...] = (
    _Counter("gpumon_gpu_observed_seconds_total",
             "Seconds in which the GPU was sampled and answered. Divide held by this.",
             lambda device: device.use.observed),
    _Counter("gpumon_gpu_judged_seconds_total",
             "Seconds in which the GPU could be classified as busy or idle. Divide busy and "
             "idle_held by this.",
             lambda device: device.use.judged or NAN),
    _Counter("gpumon_gpu_busy_seconds_total",
             "Seconds in which the GPU was busy, including pauses of less than a minute while it is held.",
             lambda device: device.use.busy if device.use.judged else NAN),
    _Counter("gpumon_gpu_held_seconds_total", "Seconds in which a process or a run held the GPU.",
             lambda device: device.use.held),
    _Counter("gpumon_gpu_idle_held_seconds_total", "Seconds in which the GPU was held and idle.",
             lambda device: device.use.idle_held if device.use.judged else NAN),
    _Counter("gpumon_gpu_utilization_seconds_total",
             "Integral of the utilization over time. Its increase divided by the increase of "
             "gpumon_gpu_utilization_observed_seconds_total is the exact mean, at any scrape interval.",
             lambda device: device.now.utilized if device.now.measured else NAN),
    _Counter("gpumon_gpu_utilization_observed_seconds_total", "Seconds in which the utilization was measured.",
             lambda device: device.now.measured or NAN),
    _Counter("gpumon_gpu_accounted_energy_joules_total",
             "Energy of the GPU while it was sampled. The energy of each user is a part of this.",
             lambda device: device.use.energy if device.use.metered else NAN),
)  # fmt: skip

_USER_COUNTERS: tuple[_Counter[Account], ...] = (
    _Counter("gpumon_user_held_seconds_total",
             "Seconds in which the user held the GPU. Several users can hold a GPU at the same time.",
             lambda account: account.held),
    _Counter("gpumon_user_judged_seconds_total",
             "Seconds of held time that could be classified as busy or idle for the user. Divide busy by this.",
             lambda account: account.judged or NAN),
    _Counter("gpumon_user_busy_seconds_total",
             "Seconds in which the GPU was busy for the user. If several users held it, split by kernel time.",
             lambda account: account.busy if account.judged else NAN),
    _Counter("gpumon_user_idle_held_seconds_total", "Seconds in which the user held the GPU while it was idle.",
             lambda account: account.idle_held if account.judged else NAN),
    _Counter("gpumon_user_energy_joules_total",
             "Energy that the GPU used while the user held it. If several users held the GPU at the same time, "
             "this is an estimate that divides the energy in proportion to kernel time.",
             lambda account: account.energy if account.metered else NAN),
)  # fmt: skip
NEW_USER_SECONDS = 120.0
"""The counters of a new user of a GPU are exported as 0 for this many seconds. A server computes growth from the first
sample of a series. If this sample is 0, no usage is missed, even if the server scrapes only once a minute and loses a
scrape."""
_GPU = ("gpu", "uuid")
_USER = ("uuid", "user")


def usage_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield the counters and the current holders of GPUs."""
    if snapshot.totals is not None:
        yield from _counters(snapshot.gpus, snapshot.totals)
        if users is not UserNames.OFF:
            yield from _user_counters(snapshot.totals, users)
    if users is not UserNames.OFF:
        yield from _holders(snapshot.gpus, users)
    if users is not UserNames.OFF and snapshot.totals is not None:
        yield _idle_holders(snapshot.gpus, snapshot.totals, users)


def _counters(gpus: Iterable[GpuFacts], totals: Totals) -> Iterator[Family]:
    devices = [((gpu.gpu, gpu.uuid), totals.devices[gpu.uuid]) for gpu in gpus if gpu.uuid in totals.devices]
    for name, help, value in _DEVICE_COUNTERS:
        yield counter(name, help, _GPU, [(labels, value(sums)) for labels, sums in devices])
    numbers = {labels[1]: labels[0] for labels, _ in devices}
    xids = [((numbers[uuid], uuid, str(code)), count) for (uuid, code), count in totals.xids.items() if uuid in numbers]
    yield counter("gpumon_gpu_xid_errors_total", "XID errors that the driver reported, by code.", (*_GPU, "xid"),
                  [(labels, count.errors) for labels, count in xids])  # fmt: skip
    yield gauge("gpumon_gpu_xid_last_timestamp_seconds", "Time of the last XID error with a code, as Unix time.",
                (*_GPU, "xid"), [(labels, count.last) for labels, count in xids])  # fmt: skip
    yield counter("gpumon_users_dropped_total",
                  "Number of users of GPUs without counters, because there were too many users.", (),
                  [((), float(totals.dropped))])  # fmt: skip


def _user_counters(totals: Totals, users: UserNames) -> Iterator[Family]:
    labels = {key: (key[0], users.label(key[1])) for key in totals.users}
    for name, help, value in _USER_COUNTERS:
        parts = {key: value(account) for key, account in totals.users.items()}
        yield counter(name, help, _USER, _sum_by_labels(_zero_new_users(parts, totals), labels))
    yield counter(
        "gpumon_user_held_share_seconds_total",
        "Seconds in which the user held the GPU, divided evenly among simultaneous holders. The sum over all users is "
        "the time in which it was held.",
        _USER,
        _sum_by_labels(_zero_new_users(totals.shares, totals), labels),
    )


def _zero_new_users(parts: Mapping[tuple[str, str], float], totals: Totals) -> Mapping[tuple[str, str], float]:
    """Return the counters by GPU and user. They are 0 for users who are new on a GPU."""
    new = {key for key, age in totals.ages.items() if 0.0 <= age < NEW_USER_SECONDS}
    return {key: 0.0 if key in new and is_known(part) else part for key, part in parts.items()} if new else parts


def _sum_by_labels(
    parts: Mapping[tuple[str, str], float], labels: Mapping[tuple[str, str], tuple[str, str]]
) -> Iterable[tuple[tuple[str, ...], float]]:
    """Return the counters that have a value, by label values. Counters of users with the same label are added up."""
    sums: dict[tuple[str, ...], float] = {}
    for key, part in parts.items():
        if is_known(part):
            sums[labels[key]] = sums.get(labels[key], 0.0) + part
    return sums.items()


def _holders(gpus: Iterable[GpuFacts], users: UserNames) -> Iterator[Family]:
    """Yield the current holders of each GPU, and their memory."""
    memory: dict[tuple[str, ...], float] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            labels = gpu.gpu, gpu.uuid, users.label(process.user)
            memory[labels] = memory.get(labels, 0.0) + process.memory_used
        for ranks in gpu.runs:
            memory.setdefault((gpu.gpu, gpu.uuid, users.label(ranks.first.user)), NAN)
        if gpu.has_unknown_holder:
            memory[gpu.gpu, gpu.uuid, ""] = NAN
    labels = (*_GPU, "user")
    yield info(
        "gpumon_gpu_user_info",
        "Users who hold a GPU now, by a process or a run. An unknown user who holds its memory has no name.",
        labels,
        memory,
    )
    yield gauge("gpumon_gpu_user_memory_bytes", "Memory of a user's processes on a GPU.", labels, memory.items())


def _idle_holders(gpus: Iterable[GpuFacts], totals: Totals, users: UserNames) -> Family:
    """Return for how long each user has held each idle GPU. For users with the same label, the longest time is used."""
    idle = {gpu.uuid: gpu.gpu for gpu in gpus if is_known(gpu.idle)}
    longest: dict[tuple[str, ...], float] = {}
    for (uuid, user), seconds in totals.idle.items():
        if uuid in idle:
            labels = idle[uuid], uuid, users.label(user)
            longest[labels] = max(longest.get(labels, 0.0), seconds)
    return gauge(
        "gpumon_gpu_user_idle_seconds",
        "Seconds for which a user has held an idle GPU without a break. Time in which it was free does not count.",
        (*_GPU, "user"),
        longest.items(),
    )
