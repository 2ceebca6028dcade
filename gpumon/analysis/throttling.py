"""Throttling: by which values the driver tells that it lowers a GPU's clocks, and which reasons need attention.

The driver tells this in two ways. A mask of clock event reasons (`gpu.event_reasons`) says what lowers the clocks at
the moment of the sample. Counters (`gpu.throttled_*`, seconds) say for how long each reason did so between two samples.
"""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, GPU_METRICS
from gpumon.model.vendors import clock_events, find_vendor

THERMAL = (BY_NAME["gpu.throttled_hw_thermal"], BY_NAME["gpu.throttled_sw_thermal"])
"""Counters of time throttled by heat."""
CAUSES = tuple(
    metric for metric in GPU_METRICS if metric.name.startswith("gpu.throttled_") and metric.warn < float("inf")
)
"""Counters of throttling that needs attention; the power limit is not one, because every full load reaches it."""
IDLE = "idle"
"""A reason that is no throttling: views show it as the state of the GPU."""
SEVERE_REASONS = frozenset(("heat (driver)", "heat (hardware)", "hardware slowdown", "power brake"))
"""Reasons that need attention: neither the workload nor the power limit keeps the clocks down."""


def clock_event_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons why the clocks of a GPU are below their maximum, as words; None if unknown."""
    mask = sample.value("gpu.event_reasons")
    vendor = find_vendor(sample.device.name, sample.device.uuid)
    if vendor is None or not vendor.clock_events or not is_known(mask) or not 0 <= mask < 2**64:
        return None
    return clock_events(vendor, int(mask))


def throttle_reasons(sample: Sample) -> tuple[str, ...] | None:
    """Return the reasons of `clock_event_reasons` except `IDLE`, which needs no attention."""
    reasons = clock_event_reasons(sample)
    return None if reasons is None else tuple(reason for reason in reasons if reason != IDLE)
