"""A simulated node at a moment, as an exporter's own types have it: all values are functions of the time.

The exporter's tables then make names and labels of it, so that they are those of a real node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.nodes.plan import Fault, SimulatedJob, SimulatedNode
from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.export.snapshot import GpuFacts, Snapshot
from gpumon.model.device import Device
from gpumon.model.frame import Run, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.running_sums import DeviceNow, DeviceTotals, Totals, XidCount

VERSION = "simulated"
QUIET_AFTER = 90.0
"""Seconds from the begin to the first silence: who asks has seen the node before."""
_SLOT = 3
"""The GPU of a node that is lost, or has an error."""
_LOST_XID, _MEMORY_XID = 79, 31
_RESERVED = 551 * 2.0**20
_OF_PROGRAMS = 0.83
"""Share of a card's memory that a program takes."""
_MISSING = {"gpu.fan": Availability.NOT_SUPPORTED}
_THROTTLED = 0.4
"""Share of time in which a hot node lowers its clocks."""


def is_down(node: SimulatedNode, passed: float) -> bool:
    """Whether nothing answers, `passed` seconds after the begin."""
    return node.fault is Fault.DOWN and passed > QUIET_AFTER


def at(node: SimulatedNode, began: float, now: float) -> Snapshot:
    """Return what its exporter would read at `now`, of a simulation that began at `began` (both s since 1970)."""
    passed = now - began
    if node.fault is Fault.DAEMON and passed > QUIET_AFTER:
        return Snapshot(
            False, began + QUIET_AFTER, 1.0, VERSION, Driver(), (), (), {}, None, len(node.jobs), "no daemon"
        )
    gpus = [_gpu(node, slot, job, began, now) for slot, job in enumerate(node.jobs)]
    runs = {run.key: run for one in gpus for ranks in one.runs for run in ranks.all}
    host = dict.fromkeys((metric.name for metric in HOST_METRICS), NAN) | {
        "host.cpu_utilization": 0.2, "host.memory_used": 2.1e11, "host.memory_total": 1.08e12, "host.load": 21.0,
    }  # fmt: skip
    return Snapshot(
        live=True, newest=now, interval=1.0, version=VERSION, driver=Driver("580.65.06", "CUDA 13.0"),
        host=[host[metric.name] for metric in HOST_METRICS], gpus=gpus, runs=runs,
        totals=_totals(node, gpus, began, now), devices=len(gpus), origin=Origin("sim", "SIMULATED"),
    )  # fmt: skip


def _uuid(node: SimulatedNode, slot: int) -> str:
    return f"GPU-51000000-0000-4000-{node.number:04x}-{slot:012d}"


def _wave(node: SimulatedNode, slot: int, time: float) -> float:
    """A slow wave, -1 to 1, of each GPU its own."""
    return math.sin(0.021 * time + 1.7 * slot + node.number)


def _is_lost(node: SimulatedNode, slot: int, passed: float) -> bool:
    return node.fault is Fault.LOST and slot == min(_SLOT, len(node.jobs) - 1) and passed > QUIET_AFTER


def _gpu(node: SimulatedNode, slot: int, job: SimulatedJob | None, began: float, now: float) -> GpuFacts:
    passed, model, uuid = now - began, node.model, _uuid(node, slot)
    if _is_lost(node, slot, passed):
        sample = Sample(Device(uuid, slot, model.name), Availability.LOST, [NAN] * len(GPU_METRICS))
        return GpuFacts(sample, GpuState.LOST, str(slot), uuid, None, (), NAN)
    values = _values(node, slot, job, passed)
    run = _run(node, slot, job, began, now) if job and job.name else None
    row = [values.get(metric.name, NAN) for metric in GPU_METRICS]
    sample = Sample(Device(uuid, slot, model.name, _MISSING), Availability.OK, row, run.key if run else "")
    ranks = (Ranks((run,)),) if run else ()
    if job is None:
        return GpuFacts(sample, GpuState.FREE, str(slot), uuid, (), (), 3600.0 * (1 + node.number % 9) + passed)
    process = Process(
        1000 + slot, uuid, "compute", "python3", job.user, began - job.began, model.memory * _OF_PROGRAMS,
        run=run.key if run else "", job=str(880000 + job.number),
    )  # fmt: skip
    state = GpuState.BUSY if job.load else GpuState.HELD
    return GpuFacts(
        sample, state, str(slot), uuid, (process,), ranks, NAN if job.load else min(job.began, 26000.0) + passed
    )


def _run(node: SimulatedNode, slot: int, job: SimulatedJob, began: float, now: float) -> Run:
    """A run that begins anew when all its epochs are over."""
    lasts = job.epoch * job.epochs
    attempt, into = divmod(now - began + job.began, lasts)
    name = f"{job.name}-{job.number}.{attempt:.0f}"
    return Run(
        f"{name}-{node.number}-{slot}", name, job.name, 1000 + slot, job.user, rank=0, epochs=job.epochs,
        gpus=(_uuid(node, slot),), started=now - into, epoch=int(into // job.epoch), step=int(into * 4), phase="train",
        updated=now,
    )  # fmt: skip


def _values(node: SimulatedNode, slot: int, job: SimulatedJob | None, passed: float) -> dict[str, float]:
    model, load = node.model, job.load if job else 0.0
    wave = _wave(node, slot, passed) if load else 0.0
    mean = _power(node, job)
    used = max(0.0, min(1.0, load + 0.03 * wave))
    throttled = _THROTTLED * passed if node.fault is Fault.HOT else 0.0
    hot = 18.0 if node.fault is Fault.HOT else 0.0
    return {
        "gpu.utilization": round(used, 2),
        "gpu.memory_utilization": round(0.58 * used, 2),
        "gpu.memory_used": model.memory * _OF_PROGRAMS if job else 0.0,
        "gpu.memory_reserved": _RESERVED,
        "gpu.memory_total": model.memory,
        "gpu.power": round(mean + 12 * wave, 3),
        "gpu.power_limit": round(model.full * 1.07),
        "gpu.energy": round(mean * (passed + 1e6), 3),
        "gpu.temperature": round(31 + hot + 36 * used + wave),
        "gpu.temperature_memory": round(38 + hot + 40 * used),
        "gpu.clock_sm": 1.98e9 if job else 3.45e8,
        "gpu.clock_memory": 2.619e9,
        "gpu.event_reasons": 64.0 if throttled else 0.0 if load else 1.0,
        "gpu.throttled_sw_power": 0.0,
        "gpu.throttled_sw_thermal": 0.0,
        "gpu.throttled_hw_thermal": throttled,
        "gpu.throttled_hw_power_brake": 0.0,
        "gpu.throttled_sync_boost": 0.0,
        "gpu.performance_state": 0.0,
        "gpu.pcie_generation": 5.0,
        "gpu.pcie_width": 16.0,
        "gpu.pcie_sent": 1.1e9 * load * passed,
        "gpu.pcie_received": 2.3e9 * load * passed,
        "gpu.power_instant": round(mean + 20 * wave, 3),
        "gpu.ecc_corrected": 0.0,
        "gpu.ecc_uncorrected": 0.0,
        "gpu.pcie_replays": 3.0,
        "gpu.nvlink_active": 18.0,
        "gpu.nvlink_links": 18.0,
        "gpu.sm_activity": round(0.9 * used, 3),
        "gpu.tensor_activity": round(0.4 * used, 3),
        "gpu.dram_activity": round(0.5 * used, 3),
        "gpu.memory_unattributed": 0.0,
    }


def _power(node: SimulatedNode, job: SimulatedJob | None) -> float:
    """Mean watts of a GPU with this job."""
    model = node.model
    held = 40.0 if job else 0.0
    return model.idle + held + (model.full - model.idle - held) * (job.load if job else 0.0)


def _totals(node: SimulatedNode, gpus: list[GpuFacts], began: float, now: float) -> Totals:
    passed = now - began
    devices, users, idle_of = {}, {}, {}
    for one, job in zip(gpus, node.jobs, strict=True):
        seen = QUIET_AFTER if one.state is GpuState.LOST else passed
        power, load = _power(node, job), job.load if job else 0.0
        busy, idle = (seen, 0.0) if load else (0.0, seen)
        held = seen if job else 0.0
        use = DeviceUse(
            observed=seen, identified=seen, judged=seen, held=held, busy=busy, idle_held=idle if job else 0.0,
            metered=seen, energy=power * seen, free=seen - held, free_energy=power * (seen - held),
        )  # fmt: skip
        devices[one.uuid] = DeviceTotals(use, DeviceNow(load * seen, seen, one.idle), one.state)
        if job:
            users[one.uuid, job.user] = Account(job.user, held, held, busy, idle if job else 0.0, held, power * held)
            if is_known(one.idle):
                idle_of[one.uuid, job.user] = one.idle
    return Totals(0, began, 0, devices, users, dict(_xids(node, gpus, began, passed)), idle=idle_of)


def _xids(
    node: SimulatedNode, gpus: list[GpuFacts], began: float, passed: float
) -> Iterator[tuple[tuple[str, int], XidCount]]:
    code = {Fault.LOST: _LOST_XID, Fault.XID: _MEMORY_XID}.get(node.fault)
    if code is not None and passed > QUIET_AFTER:
        yield (gpus[min(_SLOT, len(gpus) - 1)].uuid, code), XidCount(1.0, began + QUIET_AFTER)
