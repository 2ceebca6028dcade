"""Devices that a run trains on: its claim, checked against the driver's process list.

A user can name any GPU in a board of his own. So a claim holds only where the driver's process list does not speak
against it, and for long only where it lists a process of that user: the first seconds of a training have none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.epoch import EpochFold
from gpumon.model.frame import Boundary, Mark, Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, PROCESSES
from gpumon.model.process import Process
from gpumon.model.vendors import NVIDIA, find_vendor
from gpumon.tracking.context import visible_uuids
from gpumon.tracking.description import ID_LENGTH
from gpumon.tracking.wire import NOT_KNOWN, Memory, device_mark


class InForce(NamedTuple):
    """Epoch and phase from a boundary on, until the next one."""

    monotonic_ns: int
    """ns, CLOCK_MONOTONIC of this machine."""
    number: int
    """That of the boundary."""
    epoch: int
    """From an epoch's end to the next one's begin its number stays, without a phase; -1 where there is none."""
    phase: str
    began: float
    """Seconds since 1970 when the epoch began; NaN where that is lost."""
    over: bool
    """Whether the run has ended here."""


def in_force(fold: EpochFold, boundaries: Iterable[Boundary]) -> list[InForce]:
    """Feed `boundaries` to `fold` and return what is in force after each."""
    found = []
    for boundary in boundaries:
        fold.add(boundary)
        began = fold.begin.time_ns / 1e9 if fold.begin is not None and fold.current >= 0 else NAN
        over = boundary.mark is Mark.RUN_END
        found.append(
            InForce(
                monotonic_ns=boundary.monotonic_ns,
                number=boundary.number,
                epoch=fold.current,
                phase=fold.phase,
                began=began,
                over=over,
            )
        )
    return found


def attribute(run: Run, moments: Sequence[InForce], monotonic_ns: int) -> Run | None:
    """Return `run` with the epoch, phase and state in force at `monotonic_ns` (ns, CLOCK_MONOTONIC of this machine).

    `moments` are the run's own, in the order of their times. None before the run began. Where
    boundaries were lost nothing is guessed: the epoch is -1 until the next one that is known.
    """
    after = bisect_right(moments, monotonic_ns, key=_monotonic)
    if after == 0:
        # The first boundaries may be lost, and then the run may have begun before the first one known.
        known_begin = moments and moments[0].number == 1
        return None if known_begin else run._replace(epoch=-1, phase="", epoch_started=NAN, state=RunState.RUNNING)
    last = moments[after - 1]
    if after < len(moments):
        state = run.state if last.over else RunState.RUNNING
        if moments[after].number != last.number + 1:
            return run._replace(epoch=-1, phase="", epoch_started=NAN, state=state)
    else:
        state = run.state
    began = last.began
    if not is_known(began) and after == len(moments) and last.epoch == run.epoch:
        began = run.epoch_started  # its boundary is lost; the board's state still has it
    return run._replace(epoch=last.epoch, phase=last.phase, epoch_started=began, state=state)


def _monotonic(moment: InForce) -> int:
    return moment.monotonic_ns


_PLACES = {field: GPU_INDEX[f"gpu.run_{field}"] for field in ("allocated", "reserved", "inactive_split")}
_USED = GPU_INDEX["gpu.run_used"]
_mark = lru_cache(maxsize=256)(device_mark)


def with_holdings(
    samples: Sequence[Sample], runs: Sequence[Run], told: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> list[Sample]:
    """`samples`, those with a run with what all its processes here hold; `told` is framework memory by key of the run.

    A sum of which one part is not known is not known.
    """
    if not runs:
        return list(samples)
    in_force = {run.key: run for run in runs}
    return [
        _filled(sample, runs, in_force[sample.run], told, processes) if sample.run in in_force else sample
        for sample in samples
    ]


def _filled(
    sample: Sample, runs: Sequence[Run], of: Run, told: Mapping[str, Sequence[Memory]], processes: Sequence[Process]
) -> Sample:
    uuid = sample.device.uuid
    # A user may give a run the id of another user's. A process that reports the run twice holds its memory once.
    here = {
        run.pid or run.key: run
        for run in runs
        if run.id == of.id and run.user == of.user and run.state is RunState.RUNNING and uuid in run.gpus
    }
    held = {pid: entry_for(uuid, run.gpus, told.get(run.key, ())) for pid, run in here.items()}
    values = list(sample.values)
    for field, place in _PLACES.items():
        values[place] = _sum(NAN if entry is None else _bytes(getattr(entry, field)) for entry in held.values())
    listed = {process.pid: process.memory_used for process in processes if process.uuid == uuid and process.pid in here}
    # The driver's list is seconds old at times, may fail, and does not show the processes of every container.
    # A process that grows holds more by now than the list says.
    hidden = PROCESSES in sample.device.missing or any(
        entry is not None and _holds(entry) and (pid not in listed or _bytes(entry.reserved) > listed[pid])
        for pid, entry in held.items()
    )
    values[_USED] = NAN if hidden else _sum(listed.values())
    return sample._replace(values=values)


def entry_for(uuid: str, devices: Sequence[str], told: Sequence[Memory]) -> Memory | None:
    """Return the report of a process on the device `uuid`, one of its `devices`; None if there is none.

    A framework that does not know UUIDs numbers its devices in the order in which the process sees them.
    """
    mark = _mark(uuid)
    for entry in told:
        if entry.device == mark:
            return entry
    unnamed = sorted(entry for entry in told if not entry.device)
    if len(unnamed) == len(told) == len(devices) and uuid in devices:
        return unnamed[list(devices).index(uuid)]
    return None


def _holds(entry: Memory) -> bool:
    return any(amount not in (0, NOT_KNOWN) for amount in (entry.allocated, entry.reserved))


def _bytes(count: int) -> float:
    return NAN if count == NOT_KNOWN else float(count)


def _sum(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) if found else NAN


UNPROVEN_FOR = 60 * SECOND
"""ns for which a user's claim of a GPU holds without a process of his on it."""
_REMEMBERED = 3600 * SECOND
"""ns after the last such claim, from which on another one holds again."""
_MOST = 4096


class Claim(NamedTuple):
    """The devices of a run as the run itself reports them, before the driver is asked."""

    pid: int = 0
    """On this machine, from the kernel; 0 when not known."""
    uid: int = 0
    user: str = ""
    devices: tuple[str, ...] = ()
    """UUIDs as the training reports them; may be shortened as in CUDA_VISIBLE_DEVICES."""
    visible: str = ""
    order: str = ""
    world_size: int = 1
    is_numbered_here: bool = True
    """Whether numbers in `visible` can be those of this machine; not of a training in another pid namespace."""


class Match(NamedTuple):
    """The devices of a run, and why some that it claimed are not among them."""

    devices: tuple[str, ...] = ()
    refused: str = ""
    """One line for a log; empty when nothing was refused."""
    unproven: tuple[str, ...] = ()
    """Devices that it claims and on which the driver lists no process of its user, although it lists all."""


class UnprovenClaims:
    """Since when users claim devices without a process of theirs on them.

    By user, not by run: a user who begins one run after the other has no more time than with one.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[int, str], tuple[int, int]] = {}
        """First and newest moment of such a claim, ns; by user and device."""

    def doubted(self, uid: int) -> list[str]:
        """Return the devices that claims of this user do not hold any more."""
        return [uuid for (of, uuid), (first, last) in self._times.items() if of == uid and last - first > UNPROVEN_FOR]

    def take(self, uid: int, match: Match, now: int) -> None:
        """Note what was found of a claim at `now`, ns."""
        for uuid in match.devices:
            if uuid not in match.unproven:
                self._times.pop((uid, uuid), None)
        for uuid in match.unproven:
            first, _ = self._times.get((uid, uuid), (now, now))
            self._times[(uid, uuid)] = first, now
        if len(self._times) > _MOST:
            self._times.pop(next(iter(self._times)))

    def forget(self, now: int) -> None:
        """Forget claims that nobody has made for long."""
        for key in [key for key, (_, last) in self._times.items() if now - last > _REMEMBERED]:
            del self._times[key]


def devices_of(
    claim: Claim,
    devices: Sequence[Device],
    processes: Sequence[Process],
    doubted: Collection[str] = (),
    *,
    is_listed_whole: bool = True,
) -> Match:
    """The UUIDs of the devices that a run trains on, MIG instances among them; empty where they are unknown.

    First what the training claims; else where the driver lists its pid; else the numbers in
    CUDA_VISIBLE_DEVICES, where these count as the driver does. A device that only others
    use is refused, and so is one on which its user has no process if it is one of `doubted`, or the driver lists the
    training on others. `is_listed_whole`: a process that does not stand among `processes` is not there, unlike in a
    container that cannot tell whose a pid is.
    """
    # What runs on a GPU that MIG divides runs on one of its instances: which one, the driver's list tells.
    whole = [device for device in devices if not device.is_divided]
    is_numbered = len(whole) == len(devices)  # CUDA counts instances in an order of its own
    devices = whole
    listed = [device.uuid for device in devices if _lists(processes, device.uuid, claim.pid)]
    claimed = _claimed(claim, devices)
    if not claimed and listed:
        return Match(tuple(listed))
    wanted = claimed or (_by_number(claim, devices) if is_numbered and claim.is_numbered_here else [])
    refused = [uuid for uuid in wanted if _only_others(uuid, claim, processes)]
    whole_lists = {device.uuid for device in devices if is_listed_whole and PROCESSES not in device.missing}
    unproven = tuple(uuid for uuid in wanted if uuid in whole_lists and _is_unproven(uuid, claim, processes))
    reason = f"{', '.join(refused)}: in use, and by no process of {claim.user or f'uid {claim.uid}'}" if refused else ""
    if listed and {*wanted} <= {*unproven}:  # it trains elsewhere, whatever it says
        return Match(tuple(listed), reason, unproven)
    kept = [uuid for uuid in wanted if uuid not in refused and not (uuid in unproven and uuid in doubted)]
    return Match(tuple(dict.fromkeys(kept)) or tuple(listed), reason, unproven)


def stamp(samples: Iterable[Sample], runs: Sequence[Run]) -> list[Sample]:
    """`samples`, each with the key of the run in force on its device: of those that run, the one begun last."""
    on: dict[str, Run] = {}
    for run in runs:
        if run.state == RunState.RUNNING:
            for uuid in run.gpus:
                if uuid not in on or run.started >= on[uuid].started:
                    on[uuid] = run
    if not on:
        return list(samples)
    return [
        sample._replace(run=on[sample.device.uuid].key) if sample.device.uuid in on else sample for sample in samples
    ]


def _claimed(claim: Claim, devices: Sequence[Device]) -> list[str]:
    """The devices that the training names by their UUIDs."""
    found = [_by_uuid(uuid, devices) for uuid in claim.devices]
    if claim.devices != visible_uuids(claim.visible):
        return [uuid for uuid in found if uuid]  # its framework names each of them
    return _as_cuda_reads(found)


def _as_cuda_reads(found: Sequence[str | None]) -> list[str]:
    """The devices of the entries of CUDA_VISIBLE_DEVICES.

    The first entry that means none ends the list, and of a list that names a device twice nothing is visible
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars; torch/cuda/__init__.py, _parse_visible_devices).
    """
    valid: list[str] = []
    for uuid in found:
        if uuid is None:
            break
        valid.append(uuid)
    return valid if len({*valid}) == len(valid) else []


def _by_uuid(uuid: str, devices: Sequence[Device]) -> str | None:
    """The one device meant by `uuid`; what follows the prefix may be shortened, and the prefix may be the other."""
    exact = [device.uuid for device in devices if device.uuid == uuid]
    if exact:
        return exact[0]
    prefix, bare = uuid[:4], uuid[4:]
    if len(bare) < 4:
        return None
    begin = [device.uuid for device in devices if device.uuid.startswith(prefix + bare)]
    # torch names a MIG instance with the prefix of a whole GPU in some versions.
    found = begin or [device.uuid for device in devices if device.uuid[4:] == bare]
    return found[0] if len(found) == 1 else None


def _by_number(claim: Claim, devices: Sequence[Device]) -> list[str]:
    # The numbers on a board are NVIDIA's: those of others do not count as their drivers do.
    whole = sorted((device for device in devices if _is_numbered(device)), key=lambda device: device.index)
    if claim.order != NVIDIA.order[1] and len({device.name for device in whole}) > 1:
        return []  # CUDA counts the fastest first, the driver by bus: the numbers may mean others
    numbers = []
    for text in claim.visible.split(","):
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 5):
            break  # as CUDA reads it, the first that is none ends the list
        numbers.append(int(text))
    if claim.world_size > 1 and len(numbers) > 1:
        return []  # one of several ranks sees all of them and uses one: which one is unknown
    is_mixed = len(whole) < len(devices)  # CUDA counts its own GPUs alone, from 0
    by_index = {place if is_mixed else device.index: device.uuid for place, device in enumerate(whole)}
    return _as_cuda_reads([by_index.get(number) for number in numbers])


def _is_numbered(device: Device) -> bool:
    return device.uuid.startswith(NVIDIA.whole) and find_vendor(device.name, device.uuid) is NVIDIA


def _lists(processes: Sequence[Process], uuid: str, pid: int) -> bool:
    return pid > 0 and any(process.pid == pid and process.uuid == uuid for process in processes)


def _only_others(uuid: str, claim: Claim, processes: Sequence[Process]) -> bool:
    here = [process for process in processes if process.uuid == uuid]
    # A process of an unknown user is no evidence, neither for a claim nor against it.
    return bool(here) and all(process.user not in ("", claim.user) and process.pid != claim.pid for process in here)


def _is_unproven(uuid: str, claim: Claim, processes: Sequence[Process]) -> bool:
    """Whether no process there is, or may be, one of its user."""
    here = [process for process in processes if process.uuid == uuid]
    return all(process.user not in ("", claim.user) and process.pid != claim.pid for process in here)


class Named(NamedTuple):
    """A run that a board reports."""

    id: str
    """As it calls itself."""
    uid: int
    """Its owner, by the kernel."""
    pid: int
    """0 where it is not known, as of a run that has ended."""
    key: str = ""
    """Of its board."""
    rank: int = 0
    world_size: int = 1
    began: float = 0.0
    """Seconds since 1970, by its own clock."""
    is_over: bool = False


class RunIds:
    """Owners of ids, for as long as a run of theirs has it."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._attempts: dict[str, tuple[str, int]] = {}
        """By key: the id without its attempt, and the number of that from 1."""

    def of(self, runs: Sequence[Named], start_time: Callable[[int], int]) -> list[str]:
        """Return the ids under which runs are shown: of those of another user than the first, with that user behind.

        Of two that are new at once the first is that whose process began first (`start_time` of a pid; 0: not known).
        """
        named = {(run.id, run.uid) for run in runs}
        owners = {id: uid for id, uid in self._owners.items() if (id, uid) in named}
        if len(named) > len({id for id, _ in named}):
            runs_by_age = sorted(runs, key=lambda run: (run.pid and start_time(run.pid)) or inf)
        else:  # as good as always, and no process is asked
            runs_by_age = list(runs)
        for run in runs_by_age:
            owners.setdefault(run.id, run.uid)
        self._owners = owners
        owned = [run.id if owners[run.id] == run.uid or not run.id else _of_user(run) for run in runs]
        return self._of_attempts(runs, owned)

    def _of_attempts(self, runs: Sequence[Named], ids: Sequence[str]) -> list[str]:
        """`ids` of `runs`, with a number behind those of a later attempt. What a run was called once, it stays."""
        known = {run.key for run in runs}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key in known}
        if len(self._attempts) < len(known):
            shown: dict[str, list[Named]] = {}
            newest: dict[str, int] = {}
            for run in runs:
                if run.key in self._attempts:
                    id, number = self._attempts[run.key]
                    shown.setdefault(_of_attempt(id, number), []).append(run)
                    newest[id] = max(number, newest.get(id, 1))
            fresh = [(run, id) for run, id in zip(runs, ids, strict=True) if run.key not in self._attempts]
            for run, id in sorted(fresh, key=lambda one: one[0].began):
                number = newest.get(id, 1)
                while id and any(_is_earlier(one, run) for one in shown.get(_of_attempt(id, number), ())):
                    number += 1
                newest[id] = number
                self._attempts[run.key] = id, number
                shown.setdefault(_of_attempt(id, number), []).append(run)
        return [_of_attempt(*self._attempts[run.key]) for run in runs]


def _is_earlier(one: Named, run: Named) -> bool:
    """Whether two of one id are the same rank, in two attempts."""
    return one.rank == run.rank and (one.is_over or run.world_size > 1)


def _of_attempt(id: str, number: int) -> str:
    behind = f"~{number}" if number > 1 else ""
    return id[: ID_LENGTH - len(behind)] + behind


def _of_user(run: Named) -> str:
    behind = f"~{run.uid}"
    return run.id[: ID_LENGTH - len(behind)] + behind
