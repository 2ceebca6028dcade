"""Devices that a run trains on: its claim, checked against the driver's process list. Pure.

A user can name any GPU in a board of his own. So a claim holds only where the driver's process list
does not speak against it, and a user can at most mislabel what he runs himself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.frame import Device, Process, Run, RunState, Sample
from gpumon.vendors import NVIDIA, maker


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


class Match(NamedTuple):
    """The devices of a run, and why some that it claimed are not among them."""

    devices: tuple[str, ...] = ()
    refused: str = ""
    """One line for a log; empty when nothing was refused."""


def devices_of(claim: Claim, devices: Sequence[Device], processes: Sequence[Process]) -> Match:
    """The UUIDs of the devices that a run trains on, MIG instances among them; empty where they are unknown.

    First what the training claims; else where the driver lists its pid; else the numbers in
    CUDA_VISIBLE_DEVICES, where these count as the driver does. A device that only others
    use is refused.
    """
    # What runs on a GPU that MIG divides runs on one of its instances: which one, the driver's list tells.
    whole = [device for device in devices if not device.is_divided]
    is_numbered = len(whole) == len(devices)  # CUDA counts instances in an order of its own
    devices = whole
    claimed = [found for uuid in claim.devices if (found := _by_uuid(uuid, devices))]
    listed = [device.uuid for device in devices if _lists(processes, device.uuid, claim.pid)]
    if not claimed and listed:
        return Match(tuple(listed))
    wanted = claimed or (_by_number(claim, devices) if is_numbered else [])
    refused = [uuid for uuid in wanted if _only_others(uuid, claim, processes)]
    reason = f"{', '.join(refused)}: in use, and by no process of {claim.user or f'uid {claim.uid}'}" if refused else ""
    kept = tuple(dict.fromkeys(uuid for uuid in wanted if uuid not in refused))
    return Match(kept or tuple(listed), reason)


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
    by_index = {device.index: device.uuid for device in whole}
    return [by_index[number] for number in numbers if number in by_index]


def _is_numbered(device: Device) -> bool:
    return device.uuid.startswith(NVIDIA.whole) and maker(device.name, device.uuid) is NVIDIA


def _lists(processes: Sequence[Process], uuid: str, pid: int) -> bool:
    return pid > 0 and any(process.pid == pid and process.uuid == uuid for process in processes)


def _only_others(uuid: str, claim: Claim, processes: Sequence[Process]) -> bool:
    here = [process for process in processes if process.uuid == uuid]
    # A process of an unknown user is no evidence, neither for a claim nor against it.
    return bool(here) and all(process.user not in ("", claim.user) and process.pid != claim.pid for process in here)
