"""Memory breakdown of a device, and the fragmentation of a framework's share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import FrameworkMemory, Sample


class MemoryBreakdown(NamedTuple):
    """The device's memory in parts, bytes. What is known adds up to the total; the rest is NaN."""

    allocated: float
    """In live tensors of the run in force here, as its framework tells."""
    cached: float
    """Taken from the driver by the framework, and in no tensor now."""
    context: float
    """Of the run's processes, beside what their framework tells of: CUDA contexts and libraries. Where it tells of
    nothing, all that they have; see `titles`."""
    others: float
    """Of all processes that are not the run's, and of none that the driver lists."""
    free: float
    driver: float
    """Kept by driver and firmware for themselves."""


class MemoryPart(NamedTuple):
    """A row of `PARTS`."""

    name: str
    """The field of `MemoryBreakdown`."""
    title: str


PARTS: tuple[MemoryPart, ...] = (
    MemoryPart("allocated", "allocated"),
    MemoryPart("cached", "cached"),
    MemoryPart("context", "context and libraries"),
    MemoryPart("others", "not of this run"),
    MemoryPart("free", "free"),
    MemoryPart("driver", "reserved by driver"),
)
"""The parts in the order in which they are shown: that of `MemoryBreakdown`."""


IN_USE = "in use"
"""Title of the part `others` without a known run: some of it may be of no process that the driver lists."""
THIS_RUN = "this run"
"""Title of the part `context` if the run's framework reports nothing: it is then all memory of the run."""
WITH_CONTEXT = "context and others"
"""Title of the part `others` where it is unknown how much the run's processes have besides their framework's memory."""
BREAKDOWN_METRICS = tuple(
    f"gpu.{key}"
    for key in ("memory_total", "memory_used", "memory_reserved", "run_allocated", "run_reserved", "run_used")
)
"""Arguments of `memory_breakdown`, in its order."""


class Fragmentation(NamedTuple):
    """Shares of what a framework holds, each NaN where it is not known."""

    slack: float
    """Of what it took from the driver, what is in no tensor: (reserved - allocated) / reserved."""
    fragments: float
    """Of what it took from the driver, what it cannot give back: inactive split / reserved, parts of blocks in use."""
    rounding: float
    """Of what is in tensors, what nobody asked for: (allocated - requested) / allocated, the allocator rounds up."""
    scattered: float
    """Of what is free in its pool, what is not in the largest block: 1 - largest free / (reserved - allocated)."""


def breakdown_of(sample: Sample) -> MemoryBreakdown | None:
    """Return the `memory_breakdown` of a sample's device; None of a GPU that MIG divides: its instances have it."""
    if sample.device.is_divided:
        return None  # what is in none of them is free to nobody
    return memory_breakdown(*(sample.value(name) for name in BREAKDOWN_METRICS))


def memory_breakdown(
    total: float, used: float, kept: float, allocated: float, held: float, own: float
) -> MemoryBreakdown | None:
    """Divide a device's memory by the metrics of `BREAKDOWN_METRICS`; None where its use is unknown.

    The framework's numbers are up to half a second older than the driver's: where they are larger, the
    driver's hold. Without them the run's memory is one part, `context`, and called otherwise.
    """
    if not 0 <= used <= total:
        return None
    kept_known = min(kept, total - used) if kept >= 0 else 0.0
    free = total - used - kept_known
    driver = kept_known if kept >= 0 else NAN
    run = _least(own, used) if own >= 0 else _least(held, used)
    if not run >= 0:
        return MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=used, free=free, driver=driver)
    live = _least(allocated, run)
    taken = _least(held, run) if held >= 0 else run if live >= 0 else NAN
    live = _least(live, taken) if live >= 0 else NAN
    cached = taken - live if live >= 0 else taken
    context = run - (taken if taken >= 0 else 0.0)
    if not own >= 0 or (not held >= 0 and context == 0):
        context = NAN  # nobody tells of it
    return MemoryBreakdown(allocated=live, cached=cached, context=context, others=used - run, free=free, driver=driver)


def titles(divided: Iterable[MemoryBreakdown]) -> dict[str, str]:
    """Return the title of each part, by its name, for breakdowns that are shown together."""
    found = {part.name: part.title for part in PARTS}
    splits = list(divided)
    if not any(is_known(value) for one in splits for value in one[:2]):
        found["context"] = THIS_RUN
        if not any(is_known(one.context) for one in splits):
            found["others"] = IN_USE
    elif not any(is_known(one.context) for one in splits):
        found["others"] = WITH_CONTEXT
    return found


def known_parts(divided: MemoryBreakdown) -> list[tuple[MemoryPart, float]]:
    """The parts that are known, each under its title here."""
    names = titles([divided])
    return [
        (part._replace(title=names[part.name]), value)
        for part, value in zip(PARTS, divided, strict=True)
        if is_known(value)
    ]


def fragmentation(memory: FrameworkMemory) -> Fragmentation:
    """Return the fragmentation of reserved memory, as four shares."""
    return Fragmentation(
        _share(memory.reserved - memory.allocated, memory.reserved),
        _share(memory.inactive_split, memory.reserved),
        _share(memory.allocated - memory.requested, memory.allocated),
        _share(memory.reserved - memory.allocated - memory.largest_free, memory.reserved - memory.allocated),
    )


def _least(value: float, most: float) -> float:
    return min(value, most) if value >= 0 else NAN


def _share(part: float, whole: float) -> float:
    return max(0.0, part) / whole if whole > 0 and is_known(part) else NAN
