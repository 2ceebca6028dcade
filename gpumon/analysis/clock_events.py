"""Reasons for the clocks of a GPU, in words, the same in every view."""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.vendors import clock_events, maker


def clock_event_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons for which the clocks of a GPU are below their highest, in words; None where unknown."""
    mask = sample.value("gpu.event_reasons")
    vendor = maker(sample.device.name, sample.device.uuid)
    known = vendor is not None and bool(vendor.clock_events) and is_known(mask) and 0 <= mask < 2**64
    return clock_events(vendor, int(mask)) if vendor and known else None


IDLE = "idle"
"""A reason that every view shows as the state of the GPU already."""
HOT = frozenset(("heat (driver)", "heat (hardware)", "hardware slowdown", "power brake"))
"""Reasons that need a look: something other than the work or the power limit holds the clocks."""
