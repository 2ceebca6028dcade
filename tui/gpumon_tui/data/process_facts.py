"""Context of the processes in a frame: GPUs, runs, idle times and script names for their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import IdleTime
from gpumon.model.device import Device
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.process import Process

_TOTAL = GPU_INDEX["gpu.memory_total"]


class ProcessFacts(NamedTuple):
    """Lookups for all rows of a frame."""

    devices: Mapping[str, Device]
    """Devices by UUID."""
    positions: Mapping[str, int]
    """Position of each GPU in the frame, by UUID."""
    memory: Mapping[str, float]
    """Memory of each GPU in bytes; NaN if the driver does not report it."""
    runs: Mapping[str, Run]
    """Runs by key."""
    idle: Mapping[str, IdleTime]
    """Start of the idle time of allocated GPUs, by UUID; other GPUs are missing."""
    silent: Collection[str]
    """UUIDs of GPUs whose driver does not respond; their processes and values are outdated."""
    now: float
    """Time of the frame (s since 1970)."""
    me: str
    """Name of the user of this view; empty if the processes do not run on this machine."""
    script: Callable[[Process], str]
    """Returns the script that a process runs; empty for processes of other users."""

    def is_own(self, process: Process) -> bool:
        """Whether the process belongs to this user, or no user is set."""
        return not self.me or process.user == self.me

    def program(self, process: Process) -> str:
        """Return the script of a process of this user, or else the process name, which everyone can see."""
        return self.script(process) or process.name

    def run(self, process: Process) -> Run | None:
        """Return the active run of a process, as shown in the row of its GPU and in `gpumon status`."""
        run = self.runs.get(process.run) if process.run else None
        return run if run is not None and run.state is RunState.RUNNING else None

    def label(self, process: Process) -> str:
        """Return the number of the process's GPU; empty if unknown."""
        device = self.devices.get(process.uuid)
        return device.label if device else ""


def frame_facts(
    samples: Sequence[Sample], runs: Iterable[Run], now: float, *,
    idle: Mapping[str, IdleTime] | None = None, me: str = "", script: Callable[[Process], str] = lambda process: "",
) -> ProcessFacts:  # fmt: skip
    """Return the facts of a frame."""
    devices = {sample.device.uuid: sample.device for sample in samples}
    return ProcessFacts(
        devices=devices,
        positions={uuid: index for index, uuid in enumerate(devices)},
        memory={sample.device.uuid: sample.values[_TOTAL] for sample in samples},
        runs={run.key: run for run in runs},
        idle=idle or {},
        silent={sample.device.uuid for sample in samples if sample.state is Availability.STALE},
        now=now,
        me=me,
        script=script,
    )
