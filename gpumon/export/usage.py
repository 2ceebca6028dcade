"""Families of use: the daemon's own counters, by GPU and by user, and who holds what now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.export.family import Family, counter, gauge, info
from gpumon.export.snapshot import GpuFacts, Snapshot, UserNames
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.totals import DeviceTotals, Totals


class _DeviceCounter(NamedTuple):
    """A counter of a GPU."""

    name: str
    help: str
    value: Callable[[DeviceTotals], float]


class _UserCounter(NamedTuple):
    """A counter of a user on a GPU."""

    name: str
    help: str
    value: Callable[[Account], float]


_DEVICES: tuple[_DeviceCounter, ...] = (
    _DeviceCounter("gpumon_gpu_observed_seconds_total",
                   "Seconds in which the GPU was sampled and answered: the divisor of held.",
                   lambda one: one.use.observed),
    _DeviceCounter("gpumon_gpu_judged_seconds_total",
                   "Seconds in which it was known whether the GPU was busy: the divisor of busy and of idle_held.",
                   lambda one: one.use.judged or NAN),
    _DeviceCounter("gpumon_gpu_busy_seconds_total",
                   "Seconds in which the GPU was busy; pauses of less than a minute of one that is held count.",
                   lambda one: one.use.busy if one.use.judged else NAN),
    _DeviceCounter("gpumon_gpu_held_seconds_total", "Seconds in which a process or a run held the GPU.",
                   lambda one: one.use.held),
    _DeviceCounter("gpumon_gpu_idle_held_seconds_total", "Seconds in which the GPU was held and did nothing.",
                   lambda one: one.use.idle_held if one.use.judged else NAN),
    _DeviceCounter("gpumon_gpu_utilization_seconds_total",
                   "Utilization summed up over every sample: its growth by that of "
                   "gpumon_gpu_utilization_observed_seconds_total is the exact mean, however seldom it is scraped.",
                   lambda one: one.now.utilized if one.now.measured else NAN),
    _DeviceCounter("gpumon_gpu_utilization_observed_seconds_total", "Seconds in which the utilization was known.",
                   lambda one: one.now.measured or NAN),
    _DeviceCounter("gpumon_gpu_accounted_energy_joules_total",
                   "Energy of the GPU while it was sampled; users' shares are parts of this.",
                   lambda one: one.use.energy if one.use.metered else NAN),
)  # fmt: skip

_USERS: tuple[_UserCounter, ...] = (
    _UserCounter("gpumon_user_held_seconds_total",
                 "Seconds in which the user held the GPU; each of several users holds it the whole time.",
                 lambda one: one.held),
    _UserCounter("gpumon_user_judged_seconds_total",
                 "Seconds of held for which it is known whether the GPU was busy for the user: busy has no others.",
                 lambda one: one.judged or NAN),
    _UserCounter("gpumon_user_busy_seconds_total",
                 "Seconds in which the GPU was busy for the user; of several by the kernel time of their processes.",
                 lambda one: one.busy if one.judged else NAN),
    _UserCounter("gpumon_user_idle_held_seconds_total", "Seconds in which the user held the GPU and it did nothing.",
                 lambda one: one.idle_held if one.judged else NAN),
    _UserCounter("gpumon_user_energy_joules_total",
                 "Energy of the GPU while the user held it; of several by the kernel time of their processes, an "
                 "estimate.",
                 lambda one: one.energy if one.metered else NAN),
)  # fmt: skip
UNTOLD = 120.0
"""Seconds for which the counters of a user who is new on a GPU are told as 0. A server counts from the first sample of
a series: so it misses nothing, though it scrapes once a minute and loses a scrape."""
_GPU = ("gpu", "uuid")
_USER = ("uuid", "user")


def use_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield counters, and who holds what."""
    if snapshot.totals is not None:
        yield from _counters(snapshot.gpus, snapshot.totals)
        if users is not UserNames.OFF:
            yield from _user_counters(snapshot.totals, users)
    if users is not UserNames.OFF:
        yield from _holders(snapshot.gpus, users)
    if users is not UserNames.OFF and snapshot.totals is not None:
        yield _idle_holders(snapshot.gpus, snapshot.totals, users)


def _counters(gpus: Iterable[GpuFacts], totals: Totals) -> Iterator[Family]:
    devices = [((one.gpu, one.uuid), totals.devices[one.uuid]) for one in gpus if one.uuid in totals.devices]
    for name, help, value in _DEVICES:
        yield counter(name, help, _GPU, [(labels, value(one)) for labels, one in devices])
    number = {labels[1]: labels[0] for labels, _ in devices}
    xids = [((number[uuid], uuid, str(code)), one) for (uuid, code), one in totals.xids.items() if uuid in number]
    yield counter("gpumon_gpu_xid_errors_total", "XID errors that the driver reported, by code.", (*_GPU, "xid"),
                  [(labels, one.errors) for labels, one in xids])  # fmt: skip
    yield gauge("gpumon_gpu_xid_last_timestamp_seconds", "Time of the newest XID error of a code, seconds since 1970.",
                (*_GPU, "xid"), [(labels, one.last) for labels, one in xids])  # fmt: skip
    yield counter("gpumon_users_dropped_total", "Users on GPUs for whose counters there was no room.", (),
                  [((), float(totals.dropped))])  # fmt: skip


def _user_counters(totals: Totals, users: UserNames) -> Iterator[Family]:
    labels = {key: (key[0], users.told(key[1])) for key in totals.users}
    for name, help, value in _USERS:
        parts = {key: value(account) for key, account in totals.users.items()}
        yield counter(name, help, _USER, _added(_from_0(parts, totals), labels))
    yield counter(
        "gpumon_user_held_share_seconds_total",
        "Seconds in which the user held the GPU, divided evenly among those who held it at once: of all users they "
        "add up to the time in which it was held.",
        _USER,
        _added(_from_0(totals.shares, totals), labels),
    )


def _from_0(parts: Mapping[tuple[str, str], float], totals: Totals) -> Mapping[tuple[str, str], float]:
    """Numbers of users; 0 of those who are new."""
    new = {key for key, age in totals.ages.items() if 0.0 <= age < UNTOLD}
    return {key: 0.0 if key in new and is_known(part) else part for key, part in parts.items()} if new else parts


def _added(
    parts: Mapping[tuple[str, str], float], labels: Mapping[tuple[str, str], tuple[str, str]]
) -> Iterable[tuple[tuple[str, ...], float]]:
    """Numbers by labels; those of users who are called the same are added up, and what is not known is left out."""
    sums: dict[tuple[str, ...], float] = {}
    for key, part in parts.items():
        if is_known(part):
            sums[labels[key]] = sums.get(labels[key], 0.0) + part
    return sums.items()


def _holders(gpus: Iterable[GpuFacts], users: UserNames) -> Iterator[Family]:
    """Holders of each GPU now, and the memory of each."""
    memory: dict[tuple[str, ...], float] = {}
    for one in gpus:
        for process in one.processes or ():
            labels = one.gpu, one.uuid, users.told(process.user)
            memory[labels] = memory.get(labels, 0.0) + process.memory_used
        for ranks in one.runs:
            memory.setdefault((one.gpu, one.uuid, users.told(ranks.first.user)), NAN)
        if one.has_unknown_holder:
            memory[one.gpu, one.uuid, ""] = NAN
    labels = (*_GPU, "user")
    yield info(
        "gpumon_gpu_user_info",
        "Users who hold a GPU now, by a process or a run; without a name where its memory is in "
        "use and nobody knows by whom.",
        labels,
        memory,
    )
    yield gauge("gpumon_gpu_user_memory_bytes", "Memory of a user's processes on a GPU.", labels, memory.items())


def _idle_holders(gpus: Iterable[GpuFacts], totals: Totals, users: UserNames) -> Family:
    """For how long each user holds a GPU that does nothing; of users who are called the same, the longest."""
    idle = {one.uuid: one.gpu for one in gpus if is_known(one.idle)}
    found: dict[tuple[str, ...], float] = {}
    for (uuid, user), seconds in totals.idle.items():
        if uuid in idle:
            labels = idle[uuid], uuid, users.told(user)
            found[labels] = max(found.get(labels, 0.0), seconds)
    return gauge(
        "gpumon_gpu_user_idle_seconds",
        "Seconds for which a user has held a GPU that did nothing, without a break; time in which it was free is not "
        "theirs.",
        (*_GPU, "user"),
        found.items(),
    )
