"""Divides the memory of a device into parts, and computes the fragmentation of a framework's reserved memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import FrameworkMemory, Sample


class MemoryBreakdown(NamedTuple):
    """The parts of a device's memory in bytes. Parts without data are NaN. The other parts add up to the total."""

    allocated: float
    """Memory in live tensors of the run on this device, reported by its framework."""
    cached: float
    """Memory that the framework has reserved but that is not in a tensor."""
    context: float
    """Memory that the run's processes use outside the framework's allocator, for CUDA contexts and libraries. If the
    framework reports nothing, this is all memory of the processes, and the part has another title (see `titles`)."""
    others: float
    """Memory of processes of other runs and users, and memory in use that belongs to no listed process."""
    free: float
    driver: float
    """Memory reserved by driver and firmware."""


class MemoryPart(NamedTuple):
    """Name and title of a part of the breakdown."""

    name: str
    """Name of the field of `MemoryBreakdown`."""
    title: str


PARTS: tuple[MemoryPart, ...] = (
    MemoryPart("allocated", "allocated"),
    MemoryPart("cached", "cached"),
    MemoryPart("context", "context and libraries"),
    MemoryPart("others", "not of this run"),
    MemoryPart("free", "free"),
    MemoryPart("driver", "reserved by driver"),
)
"""The parts in display order, which is the order of the fields of `MemoryBreakdown`."""


IN_USE = "in use"
"""Title of `others` if there is no run. Some of this memory may belong to no listed process."""
THIS_RUN = "this run"
"""Title of `context` if the run's framework reports nothing. It then contains all memory of the run."""
WITH_CONTEXT = "context and others"
"""Title of `others` if the driver does not report the memory of the run's processes."""
BREAKDOWN_METRICS = tuple(
    f"gpu.{key}"
    for key in ("memory_total", "memory_used", "memory_reserved", "run_allocated", "run_reserved", "run_used")
)
"""Metrics whose values are the arguments of `memory_breakdown`, in the same order."""


class Fragmentation(NamedTuple):
    """Fragmentation of a framework's memory, as shares from 0 to 1; NaN if unknown."""

    slack: float
    """Reserved memory that is not in a tensor: (reserved - allocated) / reserved."""
    fragments: float
    """Free memory in blocks that cannot be returned to the driver because they are partly in use: inactive split /
    reserved."""
    rounding: float
    """Allocated memory that was not requested but added by rounding sizes up: (allocated - requested) / allocated."""
    scattered: float
    """Share of the pool's free memory that is outside the largest free block: 1 - largest free / (reserved -
    allocated)."""


def breakdown_of(sample: Sample) -> MemoryBreakdown | None:
    """Return the parts of a device's memory. None for a GPU in MIG mode, because each instance has its own memory."""
    if sample.device.is_divided:
        return None  # processes can use only the memory of instances
    return memory_breakdown(*(sample.value(name) for name in BREAKDOWN_METRICS))


def memory_breakdown(
    total: float, used: float, kept: float, allocated: float, held: float, own: float
) -> MemoryBreakdown | None:
    """Return the parts of a device's memory, computed from the values of `BREAKDOWN_METRICS`.

    `total`, `used`: memory of the device. `kept`: memory reserved by the driver. `allocated`, `held`: memory that the
    run's framework has allocated and reserved. `own`: memory of the run's processes. None if `used` is NaN. The
    framework's values may be half a second older than the driver's values, so they are clipped to the driver's values.
    If the framework reports nothing, all memory of the run is in `context`, which then has another title.
    """
    if not 0 <= used <= total:
        return None
    kept_known = min(kept, total - used) if kept >= 0 else 0.0
    free = total - used - kept_known
    driver = kept_known if kept >= 0 else NAN
    run = _clamp(own, used) if own >= 0 else _clamp(held, used)
    if not run >= 0:
        return MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=used, free=free, driver=driver)
    live = _clamp(allocated, run)
    taken = _clamp(held, run) if held >= 0 else run if live >= 0 else NAN
    live = _clamp(live, taken) if live >= 0 else NAN
    cached = taken - live if live >= 0 else taken
    context = run - (taken if taken >= 0 else 0.0)
    if not own >= 0 or (not held >= 0 and context == 0):
        context = NAN  # not reported
    return MemoryBreakdown(allocated=live, cached=cached, context=context, others=used - run, free=free, driver=driver)


def titles(breakdowns: Iterable[MemoryBreakdown]) -> dict[str, str]:
    """Return the title of each part by name, for a view that shows these breakdowns together."""
    by_name = {part.name: part.title for part in PARTS}
    shown = list(breakdowns)
    if not any(is_known(value) for breakdown in shown for value in breakdown[:2]):
        by_name["context"] = THIS_RUN
        if not any(is_known(breakdown.context) for breakdown in shown):
            by_name["others"] = IN_USE
    elif not any(is_known(breakdown.context) for breakdown in shown):
        by_name["others"] = WITH_CONTEXT
    return by_name


def known_parts(breakdown: MemoryBreakdown) -> list[tuple[MemoryPart, float]]:
    """Return the parts that have a value, with their bytes. Each part has the title for this breakdown."""
    names = titles([breakdown])
    return [
        (part._replace(title=names[part.name]), value)
        for part, value in zip(PARTS, breakdown, strict=True)
        if is_known(value)
    ]


def fragmentation(memory: FrameworkMemory) -> Fragmentation:
    """Return the fragmentation of a framework's memory."""
    return Fragmentation(
        _share(memory.reserved - memory.allocated, memory.reserved),
        _share(memory.inactive_split, memory.reserved),
        _share(memory.allocated - memory.requested, memory.allocated),
        _share(memory.reserved - memory.allocated - memory.largest_free, memory.reserved - memory.allocated),
    )


def _clamp(value: float, limit: float) -> float:
    return min(value, limit) if value >= 0 else NAN


def _share(part: float, whole: float) -> float:
    return max(0.0, part) / whole if whole > 0 and is_known(part) else NAN
