"""Throttling: the metrics that show that a GPU's clocks are lowered, and the reasons that need attention.

The driver reports throttling in two ways. A mask of clock event reasons (`gpu.event_reasons`) contains the reasons at
the time of the sample. Counters (`gpu.throttled_*`, in seconds) contain the total time for which each reason has
lowered the clocks.
"""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, GPU_METRICS
from gpumon.model.vendors import clock_events, find_vendor

THERMAL = (BY_NAME["gpu.throttled_hw_thermal"], BY_NAME["gpu.throttled_sw_thermal"])
"""Counters of the time in which heat lowered the clocks."""
CAUSES = tuple(
    metric for metric in GPU_METRICS if metric.name.startswith("gpu.throttled_") and metric.warn < float("inf")
)
"""Counters of throttling that needs attention. The power limit is not included, because every full load reaches it."""
IDLE = "idle"
"""A clock event reason that is not throttling. Views show it as the state of the GPU."""
SEVERE_REASONS = frozenset(
    ("heat (driver)", "heat (hardware)", "memory heat", "regulator heat", "hardware slowdown", "power brake")
)
"""Reasons that need attention, because the clocks are lowered neither by the workload nor by the power limit."""


def clock_event_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons why the clocks of a GPU are below their maximum, in words for users. None if unknown."""
    mask = sample.value("gpu.event_reasons")
    vendor = find_vendor(sample.device.name, sample.device.uuid)
    if vendor is None or not vendor.clock_events or not is_known(mask) or not 0 <= mask < 2**64:
        return None
    return clock_events(vendor, int(mask))


def throttle_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons of `clock_event_reasons` without `IDLE`, which is not throttling. None if unknown."""
    reasons = clock_event_reasons(sample)
    return None if reasons is None else tuple(reason for reason in reasons if reason != IDLE)
