"""Ticks and their parts with sensible values, so that a test names only what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Boundary, Frame, Mark, Run, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.origin import Origin
from gpumon.model.process import Process

TIME = 1_790_000_000 * SECOND


def device(index: int = 0, **fields: Any) -> Device:
    return Device(f"GPU-{index:08d}", index, "NVIDIA H100", **fields)


def sample(index: int = 0, state: Availability = Availability.OK, run: str = "", **values: float) -> Sample:
    """A sample whose metrics are `key=value`; the others are missing."""
    row = [NAN] * len(GPU_METRICS)
    for key, value in values.items():
        row[GPU_INDEX[f"gpu.{key}"]] = value
    return Sample(device(index), state, row, run)


def judged(one: Sample, state: GpuState) -> GpuStatus:
    """A GPU of which one sample is known, judged so."""
    return GpuStatus(one, state, None, is_unlisted=False, processes=(), runs=(), since=None)


def process(pid: int = 4711, index: int = 0, **fields: Any) -> Process:
    return Process(
        **{
            "pid": pid, "uuid": device(index).uuid, "kind": "compute", "name": "python", "user": "alice",
            "memory_used": 2.0**30, **fields,
        }
    )  # fmt: skip


def run(key: str = "tag.1000.4711.abcd", **fields: Any) -> Run:
    return Run(
        **{"key": key, "id": "resnet50-1a2b", "name": "resnet50", "pid": 4711, "user": "alice", "epochs": 90, **fields}
    )


def boundary(number: int, epoch: int = 0, mark: Mark = Mark.EPOCH_BEGIN, key: str = "tag.1000.4711.abcd") -> Boundary:
    return Boundary(key, number, mark, epoch, 0, "train", number * SECOND, TIME + number * SECOND)


def tick(
    number: int = 1,
    samples: Sequence[Sample] | None = None,
    processes: Sequence[Process] = (),
    runs: Sequence[Run] = (),
    boundaries: Sequence[Boundary] = (),
    **fields: Any,
) -> Tick:
    """The tick at second `number`."""
    return Tick(
        **{
            "monotonic_ns": number * SECOND, "time_ns": TIME + number * SECOND,
            "samples": [sample(0, utilization=0.5)] if samples is None else samples,
            "host": [float(i) for i in range(len(HOST_METRICS))], "processes": processes, "runs": runs,
            "boundaries": boundaries, "origin": Origin("nvml"), "hostname": "node1", "interval_ns": SECOND, **fields,
        }
    )  # fmt: skip


class TickParts:
    """The parts of a frame, straight from the tick that it stands for."""

    def __init__(self, of: Tick) -> None:
        self._of = of

    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._of.samples)

    def host(self) -> tuple[float, ...]:
        return tuple(self._of.host)

    def processes(self) -> tuple[Process, ...]:
        return tuple(self._of.processes)

    def runs(self) -> tuple[Run, ...]:
        return tuple(self._of.runs)

    def boundaries(self) -> tuple[Boundary, ...]:
        return tuple(self._of.boundaries)


def frame_of(of: Tick, number: int = 1) -> Frame:
    """The frame that a reader gives for a tick, without a ring between."""
    return Frame(
        number,
        of.monotonic_ns,
        of.time_ns,
        of.interval_ns / SECOND,
        of.sample_duration_ns / SECOND,
        of.skipped_ticks,
        0,
        TickParts(of),
    )
