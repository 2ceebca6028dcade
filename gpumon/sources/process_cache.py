"""Processes of a device as a driver lists them, and the `Process` objects that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpumon.common.numbers import NAN
from gpumon.model.process import Process
from gpumon.sources.base import Describe, ProcessInfo


@dataclass(frozen=True, slots=True)
class EngineShares:
    """Shares (0 to 1) of the time in which one process used the engines of a device."""

    sm: float
    memory: float
    encoder: float
    decoder: float


NO_SHARES = EngineShares(NAN, NAN, NAN, NAN)
"""Shares of a process for which the driver has no sample. They are NaN, not 0."""


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A process on a device, as the driver lists it."""

    pid: int
    kind: str
    memory_used: float
    shares: EngineShares = NO_SHARES


class ProcessCache:
    """Creates the `Process` objects of a device, and reuses the objects of unchanged processes."""

    def __init__(self, uuid: str, describe: Describe) -> None:
        self._uuid = uuid
        self._describe = describe
        self._known: dict[int, tuple[ListedProcess, ProcessInfo, Process]] = {}
        self._processes: tuple[Process, ...] = ()

    def update(self, listed: Sequence[ListedProcess]) -> tuple[Process, ...]:
        """Return the processes in the driver's list. If nothing has changed, return the same tuple as before."""
        known = {}
        for process in listed:
            info = self._describe(process.pid)
            last = self._known.get(process.pid)
            is_same = last is not None and last[:2] == (process, info)
            known[process.pid] = last if last and is_same else (process, info, build_process(self._uuid, process, info))
        self._known = known
        processes = tuple(process for _, _, process in known.values())
        if processes != self._processes:
            self._processes = processes
        return self._processes


def build_process(uuid: str, listed: ListedProcess, info: ProcessInfo) -> Process:
    """Return a process on the device `uuid`, from the entry in the driver's list and the machine's description."""
    return Process(
        pid=listed.pid,
        uuid=uuid,
        kind=listed.kind,
        name=info.name,
        user=info.user,
        started=info.started,
        memory_used=listed.memory_used,
        sm_utilization=listed.shares.sm,
        memory_utilization=listed.shares.memory,
        cpu_utilization=info.cpu_utilization,
        host_memory=info.host_memory,
        encoder_utilization=listed.shares.encoder,
        decoder_utilization=listed.shares.decoder,
        container=info.cgroup.container,
        pod=info.cgroup.pod,
        job=info.cgroup.job,
    )
