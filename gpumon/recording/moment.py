"""The facts of one moment of a recording: its origin as views show it, and how long it lasts."""

from __future__ import annotations

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame
from gpumon.model.origin import RECORDED, Capability, Origin
from gpumon.model.units import clock
from gpumon.recording.content import FULL, VALUES, Recorded
from gpumon.recording.encode import nanoseconds
from gpumon.recording.reader import RecordingReader


def origin_of(reader: RecordingReader, current: Recorded | None, *, ended: bool, speed: float = 1.0) -> Origin:
    """The file, what was recorded at `current`, whether it has ended, where it is damaged; it plays at `speed`."""
    told = current.context.origin if current else Origin("")
    part = current.context.part if current else FULL
    remarks = [told.label] if told.label else []
    if part != FULL:
        remarks.append("values only" if part == VALUES else part)
    if reader.is_anonymized:
        remarks.append("anonymized")
    if reader.damage:
        remarks.append(f"damaged after {clock(reader.last_ns / SECOND)}")
    how = " ended" if ended else f" ×{speed:g}" if speed != 1 else ""
    label = f"REPLAY {reader.name}{how}" + (f" ({', '.join(remarks)})" if remarks else "")
    capabilities = RECORDED
    if part == FULL:
        capabilities |= told.capabilities & Capability.PROCESSES
    return Origin("replay", label, told.problem, ended=ended, capabilities=capabilities, speed=speed)


def time_ns(recorded: Recorded) -> int:
    """ns since 1970."""
    return nanoseconds(recorded.frame.time)


def apart_ns(before: Frame, after: Frame) -> int:
    """ns between two frames, by the clock that says less: one may have been set, the other begun anew with a boot."""
    ways = (after.monotonic_ns - before.monotonic_ns, nanoseconds(after.time) - nanoseconds(before.time))
    return min((way for way in ways if way >= 0), default=0)
