"""Finds the devices of each run by checking the devices that the run claims against the driver's process list.

A user can claim any GPU in a board. So a claim is accepted only if the driver's process list does not contradict it.
After the first seconds of a run, the list must also show a process of that user on the GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.cuda_devices import as_cuda_reads, device_by_uuid
from gpumon.model.device import Device
from gpumon.model.epoch_boundaries import EpochFold
from gpumon.model.frame import Boundary, Mark, Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, PROCESSES
from gpumon.model.process import Process
from gpumon.model.rocm_devices import named_address
from gpumon.model.vendors import AMD, NVIDIA, Vendor, find_vendor
from gpumon.tracking.board_directory import BudgetOwners
from gpumon.tracking.context import visible_uuids
from gpumon.tracking.description import ID_LENGTH
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark


@dataclass(frozen=True, slots=True)
class RunPosition:
    """Epoch and phase of a run from one boundary until the next."""

    monotonic_ns: int
    """Time of the boundary, in ns of this machine's CLOCK_MONOTONIC."""
    number: int
    """Number of the boundary."""
    epoch: int
    """Number of the open epoch. Between two epochs, the number of the last one; -1 before the first."""
    phase: str
    began: float
    """Start of the epoch in seconds since 1970; NaN if the boundary at its start was lost."""
    is_over: bool
    """Whether the run has ended."""


def positions_after(fold: EpochFold, boundaries: Iterable[Boundary]) -> list[RunPosition]:
    """Add boundaries to `fold` in order, and return the position of the run after each of them."""
    positions = []
    for boundary in boundaries:
        fold.add(boundary)
        began = fold.begin.time_ns / 1e9 if fold.begin is not None and fold.current >= 0 else NAN
        positions.append(
            RunPosition(
                monotonic_ns=boundary.monotonic_ns,
                number=boundary.number,
                epoch=fold.current,
                phase=fold.phase,
                began=began,
                is_over=boundary.mark is Mark.RUN_END,
            )
        )
    return positions


def attribute(run: Run, positions: Sequence[RunPosition], monotonic_ns: int) -> Run | None:
    """Return `run` with its epoch, phase and state at `monotonic_ns` (ns of CLOCK_MONOTONIC).

    Returns None if the run had not begun at that time. `positions`: positions of the run in order of time. If
    boundaries were lost, the epoch is -1 (unknown) until the next boundary that has an epoch.
    """
    after = bisect_right(positions, monotonic_ns, key=attrgetter("monotonic_ns"))
    if after == 0:
        # If the first boundaries were lost, the run may have begun before the first boundary that was read.
        is_begin_known = positions and positions[0].number == 1
        return None if is_begin_known else run._replace(epoch=-1, phase="", epoch_started=NAN, state=RunState.RUNNING)
    last = positions[after - 1]
    if after < len(positions):
        state = run.state if last.is_over else RunState.RUNNING
        if positions[after].number != last.number + 1:
            return run._replace(epoch=-1, phase="", epoch_started=NAN, state=state)
    else:
        state = run.state
    began = last.began
    if not is_known(began) and after == len(positions) and last.epoch == run.epoch:
        began = run.epoch_started  # the boundary was lost, but the board's state contains the start of the epoch
    return run._replace(epoch=last.epoch, phase=last.phase, epoch_started=began, state=state)


_MEMORY_INDEX = {field: GPU_INDEX[f"gpu.run_{field}"] for field in ("allocated", "reserved", "inactive_split")}
_USED = GPU_INDEX["gpu.run_used"]
_mark = lru_cache(maxsize=256)(device_mark)


def with_run_memory(
    samples: Sequence[Sample], runs: Sequence[Run], memory: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> list[Sample]:
    """Return `samples` with the framework memory of each device's run, summed over the processes of the run.

    `memory`: framework memory of each process, by the key of its run. A sum is NaN if the value of any process is
    missing.
    """
    if not runs:
        return list(samples)
    by_key = {run.key: run for run in runs}
    return [
        _add_memory(sample, runs, by_key[sample.run], memory, processes) if sample.run in by_key else sample
        for sample in samples
    ]


def _add_memory(
    sample: Sample, runs: Sequence[Run], run: Run, memory: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> Sample:
    uuid = sample.device.uuid
    # Users can give their runs the id of another user's run. A process may report the same run twice.
    ranks = {
        rank.pid or rank.key: rank
        for rank in runs
        if rank.id == run.id and rank.user == run.user and rank.state is RunState.RUNNING and uuid in rank.gpus
    }
    address = named_address(sample.device.address)
    entries = {pid: memory_entry(uuid, rank.gpus, memory.get(rank.key, ()), address) for pid, rank in ranks.items()}
    values = list(sample.values)
    for field, index in _MEMORY_INDEX.items():
        values[index] = _sum(NAN if entry is None else _bytes(getattr(entry, field)) for entry in entries.values())
    listed = {
        process.pid: process.memory_used for process in processes if process.uuid == uuid and process.pid in ranks
    }
    # The driver's list may be missing or seconds old, and it does not show the processes of every container. A process
    # whose memory grows holds more memory than the list reports.
    is_incomplete = PROCESSES in sample.device.missing or any(
        entry is not None and _has_memory(entry) and (pid not in listed or _bytes(entry.reserved) > listed[pid])
        for pid, entry in entries.items()
    )
    values[_USED] = NAN if is_incomplete else _sum(listed.values())
    return sample._replace(values=values)


def memory_entry(
    uuid: str, devices: Sequence[str], entries: Sequence[Memory], address: str = ""
) -> Memory | None:  # fmt: skip
    """Return the memory record of a process for device `uuid`; None if there is none.

    `entries`: all memory records of the process. `devices`: UUIDs of the devices of the process, in the order in which
    the process sees them. A framework that reports no UUIDs numbers its devices in this order. `address`: identifier
    made of the device's address, which a framework without UUIDs may report.
    """
    marks = (_mark(uuid), _mark(address)) if address else (_mark(uuid),)
    for entry in entries:
        if entry.device in marks:
            return entry
    unnamed = sorted(entry for entry in entries if not entry.device)
    if len(unnamed) == len(entries) == len(devices) and uuid in devices:
        return unnamed[list(devices).index(uuid)]
    return None


def _has_memory(entry: Memory) -> bool:
    return any(amount not in (0, NOT_KNOWN) for amount in (entry.allocated, entry.reserved))


def _bytes(count: int) -> float:
    return NAN if count == NOT_KNOWN else float(count)


def _sum(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) if known else NAN


UNPROVEN_FOR = 60 * SECOND
"""ns for which a user's claim to a GPU is accepted although the driver shows no process of that user on the GPU. This
covers the time until a training process makes its first CUDA call and the process list is read again.
"""
_FORGET_AFTER = 3600 * SECOND
"""ns that must pass after a user's last unproven claim to a GPU before another unproven claim is accepted."""
_MAX_CLAIMS = 4096
"""Maximum number of pairs of user and device to remember. Any further claim is accepted only if the driver shows a
process."""


class Claim(NamedTuple):
    """The devices that a run claims to use."""

    pid: int = 0
    """Pid on this machine, as reported by the kernel; 0 if not available."""
    uid: int = 0
    user: str = ""
    devices: tuple[str, ...] = ()
    """UUIDs that the training reports. They may be shortened, as CUDA_VISIBLE_DEVICES allows."""
    visible: str = ""
    order: str = ""
    world_size: int = 1
    is_numbered_here: bool = True
    """Whether numbers in `visible` can be device numbers of this machine. False if the run is in another pid
    namespace."""


@dataclass(frozen=True, slots=True)
class Match:
    """The devices of a run, and why other claimed devices were rejected."""

    devices: tuple[str, ...] = ()
    refused: str = ""
    """One line for the log that says why devices were rejected; empty if none was rejected."""
    unproven: tuple[str, ...] = ()
    """Claimed devices on which the driver's complete list has no process of the run's user."""
    proven: tuple[str, ...] = ()
    """Claimed devices on which the driver's list has a process of the run's user or of an unknown user."""


class UnprovenClaims:
    """Measures for how long each user has claimed devices on which the driver shows no process of that user.

    The time is counted per user, over all runs and subordinate uids. Otherwise a user could extend the time by starting
    one run after another, each under a different uid. For the same reason, no entry is dropped to make room for
    another.
    """

    def __init__(self, owners: BudgetOwners | None = None) -> None:
        self._owners = owners or BudgetOwners()
        self._times: dict[tuple[int, str], tuple[int, int]] = {}
        """For each user and device, the times of the first and of the last unproven claim in ns."""

    def expired(self, uid: int, uuids: Iterable[str]) -> list[str]:
        """Return those devices of `uuids` for which a claim of this user is no longer accepted without a process."""
        owner = self._owners.of(uid)
        return [uuid for uuid in uuids if self._is_expired((owner, uuid))]

    def _is_expired(self, claim: tuple[int, str]) -> bool:
        first, last = self._times.get(claim, (0, 0))
        return last - first > UNPROVEN_FOR or (claim not in self._times and len(self._times) >= _MAX_CLAIMS)

    def update(self, uid: int, match: Match, now: int) -> None:
        """Record the result of checking a claim at time `now` (ns, CLOCK_MONOTONIC)."""
        owner = self._owners.of(uid)
        for uuid in match.proven:
            self._times.pop((owner, uuid), None)
        for uuid in match.unproven:
            first, _ = self._times.get((owner, uuid), (now, now))
            if (owner, uuid) in self._times or len(self._times) < _MAX_CLAIMS:
                self._times[(owner, uuid)] = first, now

    def forget(self, now: int) -> None:
        """Forget claims that were last made long before `now` (ns, CLOCK_MONOTONIC)."""
        for key in [key for key, (_, last) in self._times.items() if now - last > _FORGET_AFTER]:
            del self._times[key]


def match_devices(
    claim: Claim,
    devices: Sequence[Device],
    processes: Sequence[Process],
    expired: Collection[str] = (),
    *,
    is_complete: bool = True,
) -> Match:
    """Return the UUIDs of the devices that a run uses; empty if they cannot be determined. They may be MIG instances.

    The result comes from the first of these that exists: the devices that the training claims, the devices on which the
    driver lists its pid, and the numbers in CUDA_VISIBLE_DEVICES if they are the driver's numbers. A claimed device is
    rejected if only other users have processes on it. If the driver shows no process of the run's user on the device,
    the device is also rejected if it is in `expired`, or if the driver shows the training on other devices.

    `is_complete`: whether a process that is not in `processes` is certainly not on the GPU. This is false in a
    container, where the owner of a pid cannot be determined.
    """
    # A process on a GPU in MIG mode runs on one of the instances, and the driver's list shows on which one.
    whole = [device for device in devices if not device.is_divided]
    is_numbered = len(whole) == len(devices)  # CUDA numbers MIG instances in an order of its own
    devices = whole
    listed = [device.uuid for device in devices if _lists(processes, device.uuid, claim.pid)]
    claimed = _claimed(claim, devices)
    if not claimed and listed:
        return Match(tuple(listed), proven=tuple(listed))
    candidates = claimed or (_by_number(claim, devices) if is_numbered and claim.is_numbered_here else [])
    refused = [uuid for uuid in candidates if _only_others(uuid, claim, processes)]
    complete = {device.uuid for device in devices if is_complete and PROCESSES not in device.missing}
    unproven = tuple(uuid for uuid in candidates if uuid in complete and _is_unproven(uuid, claim, processes))
    reason = f"{', '.join(refused)}: in use, but by no process of {claim.user or f'uid {claim.uid}'}" if refused else ""
    if listed and {*candidates} <= {*unproven}:  # the run trains on devices other than those that it claims
        return Match(tuple(listed), reason, unproven, tuple(listed))
    accepted = [uuid for uuid in candidates if uuid not in refused and not (uuid in unproven and uuid in expired)]
    proven = tuple(uuid for uuid in accepted if uuid in complete and uuid not in unproven)
    return Match(tuple(dict.fromkeys(accepted)) or tuple(listed), reason, unproven, proven)


def assign_runs(samples: Iterable[Sample], runs: Sequence[Run]) -> list[Sample]:
    """Return `samples`, each with the key of the run on its device.

    If several runs use a device, the newest run is taken.
    """
    by_device: dict[str, Run] = {}
    for run in runs:
        if run.state == RunState.RUNNING:
            for uuid in run.gpus:
                if uuid not in by_device or run.started >= by_device[uuid].started:
                    by_device[uuid] = run
    if not by_device:
        return list(samples)
    return [
        sample._replace(run=by_device[sample.device.uuid].key) if sample.device.uuid in by_device else sample
        for sample in samples
    ]


def _claimed(claim: Claim, devices: Sequence[Device]) -> list[str]:
    """Return the devices whose UUIDs the training reports."""
    uuids = [device_by_uuid(uuid, devices) for uuid in claim.devices]
    if claim.devices != visible_uuids(claim.visible):
        return [uuid for uuid in uuids if uuid]  # these were reported by the framework, not copied from the variable
    return as_cuda_reads(uuids)


def _by_number(claim: Claim, devices: Sequence[Device]) -> list[str]:
    # Each runtime numbers only the GPUs of its vendor.
    is_rocm = claim.order == AMD.order[1]
    vendor = AMD if is_rocm else NVIDIA
    whole = sorted((device for device in devices if _is_numbered(device, vendor)), key=lambda device: device.index)
    if not is_rocm and claim.order != NVIDIA.order[1] and len({device.name for device in whole}) > 1:
        return []  # CUDA numbers GPUs from the fastest to the slowest, but the driver numbers them by PCI bus
    numbers = []
    for text in claim.visible.split(","):
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 5):
            break  # as in CUDA, the first invalid entry ends the list
        numbers.append(int(text))
    if claim.world_size > 1 and len(numbers) > 1:
        return []  # each of several ranks sees all devices but uses only one of them, which cannot be determined here
    is_mixed = is_rocm or len(whole) < len(devices)  # the runtime numbers its own GPUs from 0
    by_index = {position if is_mixed else device.index: device.uuid for position, device in enumerate(whole)}
    return as_cuda_reads([by_index.get(number) for number in numbers])


def _is_numbered(device: Device, vendor: Vendor) -> bool:
    return device.uuid.startswith(vendor.whole) and find_vendor(device.name, device.uuid) is vendor


def _lists(processes: Sequence[Process], uuid: str, pid: int) -> bool:
    return pid > 0 and any(process.pid == pid and process.uuid == uuid for process in processes)


def _only_others(uuid: str, claim: Claim, processes: Sequence[Process]) -> bool:
    listed = [process for process in processes if process.uuid == uuid]
    # If the user of a process is not known, the process is evidence neither for nor against a claim.
    return bool(listed) and all(process.user not in ("", claim.user) and process.pid != claim.pid for process in listed)


def _is_unproven(uuid: str, claim: Claim, processes: Sequence[Process]) -> bool:
    """Return whether no listed process on the device supports the claim: each one belongs to another user."""
    listed = [process for process in processes if process.uuid == uuid]
    return all(process.user not in ("", claim.user) and process.pid != claim.pid for process in listed)


class RunIdentity(NamedTuple):
    """Identification of a run, read from its board."""

    id: str
    """Id that the run reports."""
    uid: int
    """Uid of the owner of the board, from the kernel."""
    pid: int
    """Pid of the run's process; 0 if it is not available, which is usual after the process has ended."""
    key: str = ""
    """Name of the run's board."""
    rank: int = 0
    world_size: int = 1
    began: float = 0.0
    """Start of the run in seconds since 1970, by its own clock."""
    is_over: bool = False


class RunIds:
    """Makes the ids of runs unique, even if several users or attempts use the same id."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        """For each id, the user whose runs are shown with this id, without a suffix."""
        self._attempts: dict[str, tuple[str, int]] = {}
        """For each key of a run, the id without the suffix for the attempt, and the number of the attempt (from 1)."""

    def resolve(self, runs: Sequence[RunIdentity], start_time: Callable[[int], int]) -> list[str]:
        """Return the id under which each run is shown.

        If several users use the same id, the uid is appended for all users but the first. If such runs are found in the
        same poll, the user whose process started first counts as the first. `start_time`: function that returns the
        start time of the process with a pid; 0 if it is not available.
        """
        used = {(run.id, run.uid) for run in runs}
        owners = {id: uid for id, uid in self._owners.items() if (id, uid) in used}
        if len(used) > len({id for id, _ in used}):
            runs_by_age = sorted(runs, key=lambda run: (run.pid and start_time(run.pid)) or inf)
        else:  # the usual case, which needs no start times
            runs_by_age = list(runs)
        for run in runs_by_age:
            owners.setdefault(run.id, run.uid)
        self._owners = owners
        owned = [run.id if owners[run.id] == run.uid or not run.id else _user_id(run) for run in runs]
        return self._number_attempts(runs, owned)

    def _number_attempts(self, runs: Sequence[RunIdentity], ids: Sequence[str]) -> list[str]:
        """Return the `ids` of `runs`, with the number of the attempt appended. The id of a run never changes."""
        keys = {run.key for run in runs}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key in keys}
        if len(self._attempts) < len(keys):
            shown: dict[str, list[RunIdentity]] = {}
            newest: dict[str, int] = {}
            for run in runs:
                if run.key in self._attempts:
                    id, number = self._attempts[run.key]
                    shown.setdefault(_attempt_id(id, number), []).append(run)
                    newest[id] = max(number, newest.get(id, 1))
            new = [(run, id) for run, id in zip(runs, ids, strict=True) if run.key not in self._attempts]
            for run, id in sorted(new, key=lambda pair: pair[0].began):
                number = newest.get(id, 1)
                while id and any(_is_earlier(other, run) for other in shown.get(_attempt_id(id, number), ())):
                    number += 1
                newest[id] = number
                self._attempts[run.key] = id, number
                shown.setdefault(_attempt_id(id, number), []).append(run)
        return [_attempt_id(*self._attempts[run.key]) for run in runs]


def _is_earlier(other: RunIdentity, run: RunIdentity) -> bool:
    """Whether `other`, which has the same id, is the same rank as `run` in an earlier attempt."""
    return other.rank == run.rank and (other.is_over or run.world_size > 1)


def _attempt_id(id: str, number: int) -> str:
    suffix = f"~{number}" if number > 1 else ""
    return id[: ID_LENGTH - len(suffix)] + suffix


def _user_id(run: RunIdentity) -> str:
    suffix = f"~{run.uid}"
    return run.id[: ID_LENGTH - len(suffix)] + suffix
