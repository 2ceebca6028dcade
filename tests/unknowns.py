"""Frames of which anything may be unknown, and what a view may then say of a GPU: for the tests of every view."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from math import inf, isfinite, nan

from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Frame, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, IDLE, PROCESSES, Availability
from gpumon.model.origin import Origin
from gpumon.model.process import Process
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from tests.builders import process, tick

GIB = 2.0**30
ODD = (nan, inf, -inf)
KNOWN: dict[str, tuple[float, ...]] = {
    "utilization": (0.0, 0.0, 0.03, 0.37, 1.0),
    "memory_used": (0.0, 3e6, 0.4 * GIB, 68 * GIB),
    "memory_total": (80 * GIB,),
    "memory_reserved": (0.6 * GIB,),
    "power": (71.0, 437.0),
    "power_limit": (700.0,),
    "energy": (1e6,),
    "temperature": (33.0, 91.0),
    "clock_sm": (1.98e9,),
    "throttled_hw_thermal": (0.0,),
    "throttled_sw_thermal": (0.0,),
}
STATES = (
    *[Availability.OK] * 6, Availability.STALE, Availability.LOST, Availability.NO_DRIVER,
    Availability.NO_PERMISSION, Availability.FAILED, Availability.NOT_SUPPORTED,
)  # fmt: skip


def any_sample(chance: random.Random, index: int) -> Sample:
    """A GPU in any state, of which any subset of values is missing or not finite, and perhaps its process list."""
    row = [nan] * len(GPU_METRICS)
    share = chance.choice((0.0, 0.2, 0.6, 1.0))
    for key, values in KNOWN.items():
        row[GPU_INDEX[f"gpu.{key}"]] = chance.choice(ODD) if chance.random() < share else chance.choice(values)
    state = chance.choice(STATES)
    missing = {PROCESSES: Availability.FAILED} if chance.random() < 0.3 else {}
    if state not in (Availability.OK, Availability.STALE):
        row = [nan] * len(GPU_METRICS)
    device = Device(f"GPU-{index:08d}", index, "X", missing)
    return Sample(device, state, row, age=12.0 if state is Availability.STALE else 0.0)


def any_tick(chance: random.Random, number: int, gpus: int) -> Tick:
    """A tick of such GPUs, a third of which have a process of which anything may be unknown."""
    samples = [any_sample(chance, index) for index in range(gpus)]
    held: list[Process] = [
        process(4000 + index, index, user=chance.choice(("alice", "")), name=chance.choice(("python", "")),
                memory_used=chance.choice((nan, 2 * GIB)))
        for index, one in enumerate(samples) if one.state is Availability.OK and chance.random() < 0.3
    ]  # fmt: skip
    return tick(number, samples, held, origin=Origin("nvml"))


def same_tick(of: Tick, number: int) -> Tick:
    """The tick again, at second `number`."""
    return of._replace(monotonic_ns=number * SECOND, time_ns=of.time_ns - of.monotonic_ns + number * SECOND)


def through_a_ring(now: Tick, number: int = 1) -> Frame:
    """The tick as a view gets it, as frame `number`."""
    writer = RingWriter.private(max(1, len(now.samples)), SECOND, 4)
    writer.append(now)
    reader = RingReader(os.dup(writer.fd))
    frame = reader.newest()
    assert frame is not None
    assert [one.device for one in frame.samples] == [one.device for one in now.samples]
    assert len(frame.processes) == len(now.processes)
    reader.close()
    writer.close()
    frame.number = number
    return frame


def proves_free(one: Sample, processes: Sequence[Process]) -> bool:
    """Whether the values allow nobody to doubt that the GPU is free; written apart from the code that judges."""
    value = one.value
    return (
        one.state is Availability.OK
        and not one.run
        and not [process for process in processes if process.uuid == one.device.uuid]
        and PROCESSES not in one.device.missing
        and 0 <= value("gpu.utilization") < IDLE
        and isfinite(value("gpu.memory_total"))
        and value("gpu.memory_used") < 0.02 * value("gpu.memory_total")
    )


def wrong(said: str, one: Sample, processes: Sequence[Process], live: bool = True) -> list[str]:
    """What `said` of this GPU claims although it is not known; `said` is its row, card or page, and nothing else."""
    answers = one.state is Availability.OK and live
    shown = one.state in (Availability.OK, Availability.STALE)
    known = {key: shown and isfinite(one.value(f"gpu.{key}")) for key in KNOWN}
    claims = {
        r"\bfree\b": answers and proves_free(one, processes),
        r"\bbusy\b": answers and one.value("gpu.utilization") >= IDLE,
        r"\bidle\b": answers and known["utilization"] and one.value("gpu.utilization") < IDLE,
        r"\bok\b": answers,
        r"\blive\b": answers,
        r"\d ?%": known["utilization"] or (known["memory_used"] and known["memory_total"]),
        r"\d ?°": known["temperature"],
        r"\d ?(/ ?\d+ ?)?W\b": known["power"] or known["power_limit"],
        r"\d/?[\d.]*G": known["memory_used"] or known["memory_total"] or bool(processes),
        r"\b(nan|inf)\b|Infinity|NaN": False,
    }
    return [claim for claim, may in claims.items() if not may and re.search(claim, said, re.IGNORECASE)]
