"""One look at the ring: all facts that a scrape tells, and nothing that it does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import ANSWERS, GpuStatus, gpu_statuses, is_unreadable, why_none
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.thresholds import GAP
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.live import LiveState
from gpumon.model.device import counted
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import PROCESSES
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.ring.sums import Sums
from gpumon.storage.usage.totals import Totals, totals_of


class Readable(Protocol):
    """Live data, as far as an exporter reads them."""

    def latest(self) -> Frame | None:
        """The newest frame."""

    def state(self) -> LiveState:
        """The state of the data."""

    def sums(self) -> Sums | None:
        """Sums of the daemon's ticks."""

    def driver(self) -> Driver:
        """The driver."""

    def hostname(self) -> str:
        """The name of the machine."""

    def version(self) -> str:
        """Version of gpumon that samples."""

    def origin(self) -> Origin:
        """Where the data come from."""


class GpuFacts(NamedTuple):
    """A GPU, or a MIG instance, as it is now."""

    sample: Sample
    state: GpuState
    gpu: str
    """Its number for people."""
    uuid: str
    processes: tuple[Process, ...] | None
    """None where the list cannot be read, or is not that of now."""
    runs: tuple[Ranks, ...]
    """The run in force first."""
    idle: float = NAN
    """Seconds for which it has done nothing; NaN where it works, or nobody knows."""
    has_unknown_holder: bool = False
    """Whether it is held, by whom nobody knows."""

    @property
    def answers(self) -> bool:
        """Whether its values are those of now."""
        return self.sample.state in ANSWERS


class Snapshot(NamedTuple):
    """A node now."""

    live: bool
    """Whether this is what is; else only `newest`, `interval` and the number of devices are known."""
    newest: float
    """Seconds since 1970: the newest sample; NaN where there is none."""
    interval: float
    version: str
    """Of the gpumon that samples."""
    driver: Driver
    host: Sequence[float]
    gpus: Sequence[GpuFacts]
    runs: Mapping[str, Run]
    """By key."""
    totals: Totals | None
    """None where nobody sums up."""
    devices: int
    """GPUs that were there when somebody looked last, each MIG instance for its GPU."""
    why: str = ""
    """Why it is not live, for people."""
    origin: Origin = Origin("")
    """Where the numbers come from."""
    problem: str = ""
    """Why no GPU can be read, for people; empty where one can."""


def take(live: Readable) -> Snapshot:
    """Read the ring once. Never raises."""
    frame, state, sums = live.latest(), live.state(), live.sums()
    if frame is None:
        return Snapshot(False, NAN, state.interval, "", Driver(), (), (), {}, None, 0, state.text)
    devices = len(counted([one.device for one in frame.samples]))
    if not state.live:
        return Snapshot(
            False, frame.time, state.interval, live.version(), Driver(), (), (), {}, None, devices, state.text
        )
    totals, origin = totals_of(sums) if sums else None, live.origin()
    if totals and abs(frame.monotonic_ns - totals.monotonic_ns) > GAP * max(frame.interval, 0.1) * SECOND:
        totals = None  # of a time that is over: nobody has summed up since
    return Snapshot(
        live=True,
        newest=frame.time,
        interval=frame.interval,
        version=live.version(),
        driver=live.driver(),
        host=frame.host,
        gpus=_gpus(frame, totals),
        runs={run.key: run for run in frame.runs},
        totals=totals,
        devices=devices,
        origin=origin,
        problem=origin.problem or (why_none(frame, "") if is_unreadable(frame) else ""),
    )


def _gpus(frame: Frame, totals: Totals | None) -> list[GpuFacts]:
    activity = Activity()
    activity.add(frame)
    found = []
    for one in gpu_statuses(frame, ranks_of(frame.runs), activity):
        device = one.sample.device
        watched = totals.devices.get(device.uuid) if totals else None
        state, idle = one.state, NAN
        if watched and totals and one.since is not None:
            # One frame does not tell for how long; whoever saw all of them does.
            late = max(0.0, (frame.monotonic_ns - totals.monotonic_ns) / SECOND)
            idle = watched.now.idle + late
            if state is GpuState.ALLOCATED and watched.state in (GpuState.HELD, GpuState.BUSY):
                state = watched.state
        found.append(
            GpuFacts(
                one.sample, state, device.label, device.uuid, _processes(one), one.runs, idle if idle < inf else NAN,
                has_unknown_holder=bool(one.held) and not (one.processes or one.runs) and one.sample.state in ANSWERS,
            )
        )  # fmt: skip
    return found


def _processes(one: GpuStatus) -> tuple[Process, ...] | None:
    if one.sample.state not in ANSWERS:
        return None  # a frame has what was listed last, and a scrape cannot say of when that is
    return None if PROCESSES in one.sample.device.missing and not one.processes else one.processes
