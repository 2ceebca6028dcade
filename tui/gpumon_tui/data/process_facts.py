"""The machine around the processes of a frame: what their rows say besides what the driver tells of each."""

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
    """Answers for all rows of a frame."""

    devices: Mapping[str, Device]
    """By UUID."""
    places: Mapping[str, int]
    """The order of the GPUs."""
    memory: Mapping[str, float]
    """Memory of each GPU, bytes; NaN where the driver does not tell."""
    runs: Mapping[str, Run]
    """By key."""
    idle: Mapping[str, IdleTime]
    """Since when a GPU that is allocated has done nothing, by UUID; the others are not in it."""
    silent: Collection[str]
    """UUIDs of GPUs whose driver does not answer: their processes, and what these use, are those of before."""
    now: float
    """Seconds since 1970."""
    me: str
    """The user of this view; empty where the processes are not those of this machine, so nobody's here."""
    script: Callable[[Process], str]
    """The script of a process of this user, else empty."""

    def is_own(self, process: Process) -> bool:
        """Whether it is this user's process, or all are alike."""
        return not self.me or process.user == self.me

    def program(self, process: Process) -> str:
        """The script of an own process; else the name that the process has for all."""
        return self.script(process) or process.name

    def run(self, process: Process) -> Run | None:
        """The run that it is of, while that goes on: as on the line of its GPU, and in `gpumon status`."""
        run = self.runs.get(process.run) if process.run else None
        return run if run is not None and run.state is RunState.RUNNING else None

    def label(self, process: Process) -> str:
        """Number of its GPU; empty where nobody knows it."""
        device = self.devices.get(process.uuid)
        return device.label if device else ""


def facts_of(
    samples: Sequence[Sample], runs: Iterable[Run], now: float, *,
    idle: Mapping[str, IdleTime] | None = None, me: str = "", script: Callable[[Process], str] = lambda process: "",
) -> ProcessFacts:  # fmt: skip
    """Return the facts of a frame."""
    devices = {sample.device.uuid: sample.device for sample in samples}
    return ProcessFacts(
        devices=devices,
        places={uuid: place for place, uuid in enumerate(devices)},
        memory={sample.device.uuid: sample.values[_TOTAL] for sample in samples},
        runs={run.key: run for run in runs},
        idle=idle or {},
        silent={sample.device.uuid for sample in samples if sample.state is Availability.STALE},
        now=now,
        me=me,
        script=script,
    )
