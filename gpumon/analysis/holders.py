"""Users who hold each GPU of a tick, and its state: the judgment of `gpu_state`, for what is kept of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.gpu_state import UNOBSERVED, Activity, GpuState, is_held, judge
from gpumon.clock import SECOND
from gpumon.frame import NAN, Process, RunState, Sample, Tick
from gpumon.metrics import GPU_INDEX, IDLE, PROCESSES

_UTILIZATION = GPU_INDEX["gpu.utilization"]
NOBODY_KNOWN = ""
"""The name of a user who is not known."""


class HeldDevice(NamedTuple):
    """A GPU at a tick."""

    sample: Sample
    state: GpuState
    held: bool | None
    """Whether somebody holds it; None where that cannot be known."""
    users: Mapping[str, float]
    """The kernel time of each user's processes on it, ratio; NaN where the driver does not tell."""
    is_identified: bool
    """Whether these are all who hold it."""


def held_devices(tick: Tick, activity: Activity) -> list[HeldDevice]:
    """Judge the GPUs of a tick, which `activity` takes in; ticks come in order.

    A user holds a GPU while a process of theirs is on it, or a running run of theirs claims it.
    """
    activity.watch(
        tick.samples, monotonic_ns=tick.monotonic_ns, time=tick.time_ns / SECOND, interval=tick.interval_ns / SECOND
    )
    processes: dict[str, list[Process]] = {}
    for process in tick.processes:
        on_it = processes.get(process.uuid)
        if on_it is None:
            processes[process.uuid] = [process]
        else:
            on_it.append(process)
    claims: dict[str, dict[str, float]] = {}
    for run in tick.runs:
        if run.state is RunState.RUNNING:
            for uuid in run.gpus:
                claims.setdefault(uuid, {})[run.user] = NAN
    return [
        _judged(sample, processes.get(sample.device.uuid, ()), claims.get(sample.device.uuid), activity)
        for sample in tick.samples
    ]


def _judged(
    sample: Sample, processes: Sequence[Process], claims: Mapping[str, float] | None, activity: Activity
) -> HeldDevice:
    users = dict(claims) if claims else {}
    by_process: dict[str, float] = {}
    for process in processes:
        by_process[process.user] = by_process.get(process.user, 0.0) + process.sm_utilization
    users.update(by_process)
    held = is_held(sample, processes, bool(claims))
    identified = held is not None and NOBODY_KNOWN not in users and PROCESSES not in sample.device.missing
    if held and not users:
        users[NOBODY_KNOWN] = NAN
        identified = False
    # At work it is busy, whatever was before.
    before = UNOBSERVED if sample.values[_UTILIZATION] >= IDLE else activity.observed(sample.device.uuid)
    return HeldDevice(sample, judge(sample, held, before), held, users, identified)
