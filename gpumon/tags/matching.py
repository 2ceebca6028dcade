"""Devices that a run trains on: its claim, checked against the driver's process list.

A user can name any GPU in a board of his own. So a claim holds only where the driver's process list does not speak
against it, and for long only where it lists a process of that user: the first seconds of a training have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import PROCESSES
from gpumon.model.process import Process
from gpumon.model.vendors import NVIDIA, maker
from gpumon.tags.devices import visible_uuids

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
    use is refused, and so is one of `doubted` on which its user has no process. `is_listed_whole`: a process that
    does not stand among `processes` is not there, unlike in a container that cannot tell whose a pid is.
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
    return device.uuid.startswith(NVIDIA.whole) and maker(device.name, device.uuid) is NVIDIA


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
