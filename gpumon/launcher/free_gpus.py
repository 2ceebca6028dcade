"""Finds GPUs that have been free for a while, and claims them, so that two waiting commands never take the same one."""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus, countable_statuses
from gpumon.common.clock import SECOND
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.cuda_devices import VARIABLE, as_cuda_reads, named_devices
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Frame
from gpumon.model.vendors import AMD, find_vendor

_CLAIM, _LISTED = "\0gpumon-wait/", "@gpumon-wait/"
"""Start of the name of a claim, and its form in /proc/net/unix. A claim is an abstract Unix socket (unix(7)): the
kernel gives a name to one socket only, and frees it when the last process that holds the socket has ended."""
_LEVEL = "+"
"""Follows the UUID in the name of a claim, once for each claim on this GPU that the claiming command has inherited."""


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

    def suitable(self, request: Request, allowed: Collection[str] | None = None) -> list[GpuStatus]:
        """Return the GPUs that match a request whenever they are free.

        `allowed`: UUIDs of the GPUs that the command may use; None for all.
        """
        return [
            status
            for status in self.statuses
            if (allowed is None or status.sample.device.uuid in allowed)
            and (not request.memory or status.sample.value("gpu.memory_total") >= request.memory)
        ]

    def candidates(self, request: Request, allowed: Collection[str] | None = None) -> list[Device]:
        """Return the suitable GPUs that have been free long enough, in the order of their numbers."""
        long_enough = {
            uuid for uuid, since in self._since.items() if (self._last_ns - since) / SECOND >= request.free_for
        }
        devices = [status.sample.device for status in self.suitable(request, allowed)]
        return sorted((device for device in devices if device.uuid in long_enough), key=by_number)


def is_free(status: GpuStatus) -> bool:
    """Return whether a GPU is proven free, and no scheduler has allocated it to a job. A powered-down GPU is free."""
    return status.state in (GpuState.FREE, GpuState.ASLEEP) and not status.sample.device.job


class Claims:
    """Claims on GPUs, which exclude each other among all users of this machine who share its network namespace.

    A claim is inherited by a command that replaces this process, and lasts until that command and all processes that
    inherited the claim from it have ended. A command that waits for some of the GPUs that it has inherited claims them
    again, one level further down, so that two such commands never get the same one either.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        own = _own_sockets()
        self._levels = Counter(name.rstrip(_LEVEL) for name, inode in _listed_claims().items() if inode in own)
        """Number of inherited claims by UUID."""

    def claim(self, devices: Sequence[Device], number: int) -> list[Device]:
        """Claim the first `number` of these GPUs that are not claimed yet, and return them; none if there are too few.

        Nothing stays claimed if there are too few, so that two commands never wait for each other's GPUs.
        """
        claimed: list[Device] = []
        for device in devices:
            if len(claimed) == number:
                break
            if (claim := _bind(_CLAIM + self._name(device.uuid))) is not None:
                self._sockets.append(claim)
                claimed.append(device)
        if len(claimed) < number:
            self.release()
            return []
        return claimed

    def of_others(self, uuids: Iterable[str]) -> list[str]:
        """Return which of these GPUs other commands have claimed."""
        names = _listed_claims().keys()
        return [uuid for uuid in uuids if self._name(uuid) in names]

    def _name(self, uuid: str) -> str:
        return uuid + _LEVEL * self._levels[uuid]

    def inherit(self) -> None:
        """Let the program that replaces this process keep the claims."""
        for claim in self._sockets:
            claim.set_inheritable(True)

    def release(self) -> None:
        """Give up all claims of this process, except inherited ones."""
        for claim in self._sockets:
            claim.close()
        self._sockets.clear()


def _listed_claims() -> dict[str, str]:
    """Return the inode of each claim of this machine, by the name of the claim. For the columns, see proc(5)."""
    claims = {}
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split()
            if len(fields) == 8 and fields[7].startswith(_LISTED):
                claims[fields[7].removeprefix(_LISTED)] = fields[6]
    return claims


def _own_sockets() -> set[str]:
    """Return the inodes of the sockets that this process has open."""
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the folder itself
            target = os.readlink(f"/proc/self/fd/{name}")
            inodes.add(target.removeprefix("socket:[").rstrip("]"))
    return inodes


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


def allowed_uuids(environ: Mapping[str, str], devices: Sequence[Device]) -> frozenset[str] | None:
    """Return the UUIDs of the GPUs that CUDA_VISIBLE_DEVICES allows; None if it is not set."""
    value = environ.get(VARIABLE)
    return None if value is None else frozenset(as_cuda_reads(named_devices(value, devices)))


def visible_devices(devices: Sequence[Device]) -> dict[str, str]:
    """Return the environment variables that let programs see only these GPUs.

    NVIDIA's GPUs are numbered as by nvidia-smi, because many programs expect numbers. MIG instances have only UUIDs.
    AMD's GPUs are named by UUID.
    """
    of_amd = [device for device in devices if find_vendor(device.name, device.uuid) is AMD]
    if of_amd:
        rest = [device for device in devices if device not in of_amd]
        return {AMD.visible[0]: ",".join(device.uuid for device in of_amd), **(visible_devices(rest) if rest else {})}
    if any(device.is_instance or device.index < 0 for device in devices):
        return {VARIABLE: ",".join(device.uuid for device in devices)}
    return {VARIABLE: ",".join(str(device.index) for device in devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
