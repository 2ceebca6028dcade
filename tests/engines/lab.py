"""A laboratory of three nodes for an hour: a training on two, a GPU held for nothing, one lost, a node gone."""

from __future__ import annotations

from typing import Any

from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Run, Sample, XidEvent
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_METRICS, Availability, Kind, Unit
from gpumon.model.process import Process
from tests.conftest import ROOT
from tests.engines.past import BEGIN, HOUR, scraped

RULES = [ROOT / "deploy" / "prometheus" / name for name in ("rules.yml", "cluster.yml")]
SECONDS = HOUR
NOW = BEGIN + SECONDS
"""When somebody looks."""
SILENT_FROM = SECONDS - 900
XID_AT = SECONDS - 600
IDLE_FROM = 600
BEHIND = 300
HOT = 0.05
"""Share of the time in which heat slows GPU 0 of the first node."""
GIB = 2.0**30
MODEL = "NVIDIA H100 80GB HBM3"
EVERY = 60
EPOCH = 700
_GROWING = [i for i, one in enumerate(GPU_METRICS) if one.unit is Unit.BYTES and one.kind is Kind.COUNTER]


def lab_told(every: int = EVERY) -> list[tuple[str, float]]:
    """Return all that the exporters of the nodes told, scraped each so many seconds."""
    gone = range(SILENT_FROM, SECONDS + 1)
    return [
        *scraped(first_node, SECONDS, {"gn1": every}),
        *scraped(second_node, SECONDS, {"gn2": every}),
        *scraped(third_node, SECONDS, {"gn10": every}, lost=gone),
        *(('up{job="gpumon",instance="gn10"} 0', at) for at in (NOW - every, NOW)),
        # Of a daemon whose clock is behind, with another exporter than that of its GPUs.
        *(
            (
                f'gpumon_last_sample_timestamp_seconds{{job="gpumon",instance="gn1:9402"}} {BEGIN + passed - BEHIND}',
                BEGIN + passed,
            )
            for passed in range(0, SECONDS + 1, every)
        ),
    ]


def first_node(second: int) -> dict[str, Any]:
    """GPUs 0 and 1: a run of ada. GPU 2: held by bob, who stops to use it. GPU 3: free."""
    energy = 400.0 * min(second, IDLE_FROM) + 100.0 * max(0, second - IDLE_FROM)
    rows = [gpu(0, second, 0.9, 60, throttled_hw_thermal=HOT * second), gpu(1, second, 0.7, 60),
            gpu(2, second, 0.6 * (second < IDLE_FROM), 20, energy=energy),
            gpu(3, second, 0.0, 0)]  # fmt: skip
    training = moe(second, rows)
    processes = [held(one, 10 + place, "ada", 60, sm_utilization=one.values[GPU_INDEX["gpu.utilization"]],
                      run=training.key, job="88") for place, one in enumerate(rows[:2])]  # fmt: skip
    processes.append(held(rows[2], 20, "bob", 20))
    return {"samples": in_run(rows, training, 2), "processes": processes, "runs": [training], "host": host(second)}


def second_node(second: int) -> dict[str, Any]:
    """GPU 0: the same run of ada. GPU 1: shared by ada and bob. GPU 2: lost, with an XID error before."""
    rows = [gpu(0, second, 0.8, 60), gpu(1, second, 0.5, 40), gpu(2, second, 0.0, 0)]
    events = []
    if second >= XID_AT:
        rows[2] = rows[2]._replace(state=Availability.LOST)
    if second == XID_AT:
        events = [XidEvent(rows[2].device.uuid, 79, 0, round((BEGIN + second) * SECOND))]
    training = moe(second, rows)
    processes = [held(rows[0], 10, "ada", 60, sm_utilization=0.8, run=training.key, job="88"),
                 held(rows[1], 11, "ada", 20, sm_utilization=0.3),
                 held(rows[1], 12, "bob", 20, sm_utilization=0.1)]  # fmt: skip
    return {"samples": in_run(rows, training, 1), "processes": processes, "runs": [training], "xids": events,
            "host": host(second)}  # fmt: skip


def third_node(second: int) -> dict[str, Any]:
    """Two free GPUs, until nobody scrapes the node any more."""
    return {"samples": [gpu(place, second, 0.0, 0) for place in range(2)], "host": host(second)}


def gpu(index: int, second: int, utilization: float, held_gib: float, **more: float) -> Sample:
    """A GPU with a value of every metric, which has always worked as it does now unless `more` says otherwise."""
    power = 100.0 + 500.0 * utilization
    values = [0.0] * len(GPU_METRICS)
    for place in _GROWING:
        values[place] = 100.0 * second
    told = {
        "utilization": utilization, "memory_used": held_gib * GIB, "memory_total": 80 * GIB, "memory_reserved": GIB,
        "power": power, "power_limit": 700.0, "energy": power * second, "temperature": 60.0,
        "clock_sm": 1.98e9, "temperature_margin": 27.0, **more,
    }  # fmt: skip
    for key, value in told.items():
        values[GPU_INDEX[f"gpu.{key}"]] = value
    return Sample(Device(f"GPU-{index:08d}", index, MODEL, minor=index), Availability.OK, values)


def host(second: int) -> list[float]:
    return [100.0 * second if metric.kind is Kind.COUNTER else 0.5 for metric in HOST_METRICS]


def held(of: Sample, pid: int, user: str, gib: float, **fields: Any) -> Process:
    return Process(
        pid=pid, uuid=of.device.uuid, kind="compute", name="python", user=user, memory_used=gib * GIB, **fields
    )


def moe(second: int, rows: list[Sample]) -> Run:
    """A run that goes on."""
    return Run(
        "tag.1000.10.abcd", "moe-1a2b", "moe", 10, "ada", epochs=90, started=BEGIN - 60, epoch=second // EPOCH,
        step=second * 4, gpus=tuple(one.device.uuid for one in rows[:1]),
    )  # fmt: skip


def in_run(rows: list[Sample], training: Run, count: int) -> list[Sample]:
    """The first `count` GPUs in a run."""
    return [one._replace(run=training.key) if place < count else one for place, one in enumerate(rows)]
