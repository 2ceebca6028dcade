"""Finds GPUs that have been free for a while, and claims them, so that two waiting commands never take the same one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus, countable_statuses
from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Frame

_CLAIM = "\0gpumon-wait/{}"
"""Name of a claim: an abstract Unix socket (unix(7)). The kernel gives a name to one socket only, and frees it when the
last process that holds the socket has ended."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Request:
    """The GPUs that a command needs."""

    gpus: int = 1
    memory: float = 0.0
    """Minimum device memory of each GPU in bytes."""
    free_for: float = 30.0
    """Seconds for which a GPU must have been free."""


class FreeTimes:
    """For each GPU, since when it has been free without a gap in the samples."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._last_ns = 0
        self.statuses: Sequence[GpuStatus] = ()
        """Status of each GPU in the newest frame."""

    def add(self, frame: Frame) -> None:
        """Add the next frame. A GPU that is not proven free in it starts again, and after a gap, all GPUs do."""
        if not self._last_ns or frame.monotonic_ns - self._last_ns > 3 * SECOND * max(frame.interval, 1.0):
            self._since.clear()
        self._last_ns = frame.monotonic_ns
        self.statuses = countable_statuses(JudgedFrame(frame).gpus)
        free = {status.sample.device.uuid for status in self.statuses if is_free(status)}
        self._since = {uuid: self._since.get(uuid, frame.monotonic_ns) for uuid in free}

    def clear(self) -> None:
        """Forget all times, because the newest frame is old."""
        self._since.clear()
        self.statuses = ()

    def candidates(self, request: Request, allowed: Collection[str] | None = None) -> list[Device]:
        """Return the GPUs that match a request, in the order of their numbers.

        `allowed`: UUIDs of the GPUs that the command may use; None for all.
        """
        devices = []
        for status in self.statuses:
            device = status.sample.device
            since = self._since.get(device.uuid)
            if since is None or (self._last_ns - since) / SECOND < request.free_for:
                continue
            memory = status.sample.value("gpu.memory_total")
            if request.memory and not (is_known(memory) and memory >= request.memory):
                continue
            if allowed is None or device.uuid in allowed:
                devices.append(device)
        return sorted(devices, key=by_number)


def is_free(status: GpuStatus) -> bool:
    """Return whether a GPU is proven free, and no scheduler has allocated it to a job. A powered-down GPU is free."""
    return status.state in (GpuState.FREE, GpuState.ASLEEP) and not status.sample.device.job


class Claims:
    """Claims on GPUs, which exclude each other among all users of this machine.

    A claim is inherited by a command that replaces this process, and ends with it.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def claim(self, devices: Sequence[Device], number: int) -> list[Device]:
        """Claim the first `number` of these GPUs that are not claimed yet, and return them; none if there are too few.

        Nothing stays claimed if there are too few, so that two commands never wait for each other's GPUs.
        """
        claimed: list[Device] = []
        for device in devices:
            if len(claimed) == number:
                break
            if (claim := _bind(_CLAIM.format(device.uuid))) is not None:
                self._sockets.append(claim)
                claimed.append(device)
        if len(claimed) < number:
            self.release()
            return []
        return claimed

    def inherit(self) -> None:
        """Let the program that replaces this process keep the claims."""
        for claim in self._sockets:
            claim.set_inheritable(True)

    def release(self) -> None:
        """Give all claims up."""
        for claim in self._sockets:
            claim.close()
        self._sockets.clear()


def _bind(name: str) -> socket.socket | None:
    """Return a socket with this name; None if another socket has it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        claim.bind(name)
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return claim


def allowed_uuids(environ: Mapping[str, str], devices: Iterable[Device]) -> frozenset[str] | None:
    """Return the UUIDs of the GPUs that CUDA_VISIBLE_DEVICES allows; None if it is not set.

    As in CUDA, entries after an invalid one are ignored (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    value = environ.get(_VISIBLE)
    if value is None:
        return None
    devices = list(devices)
    allowed: set[str] = set()
    for entry in (entry.strip() for entry in value.split(",")):
        prefixed = [device.uuid for device in devices if entry and device.uuid.startswith(entry)]
        named = [device.uuid for device in devices if entry and entry in (device.label, device.parent)]
        matches = named or (prefixed if len(prefixed) == 1 else [])  # the start of a UUID must be unique
        if not matches:
            break
        allowed.update(matches)
    return frozenset(allowed)


def visible_devices(devices: Sequence[Device]) -> dict[str, str]:
    """Return the environment variables that let CUDA programs see only these GPUs.

    GPUs are numbered as by nvidia-smi, because many programs expect numbers. MIG instances have only UUIDs.
    """
    if any(device.is_instance or device.index < 0 for device in devices):
        return {_VISIBLE: ",".join(device.uuid for device in devices)}
    return {_VISIBLE: ",".join(str(device.index) for device in devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
