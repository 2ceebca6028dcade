"""Details of one frame for `gpumon status --verbose`: clock event reasons, and how sampling keeps up."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpumon import units
from gpumon.frame import Frame, Sample
from gpumon.vendors import clock_events, maker


def details(frame: Frame) -> Iterator[str]:
    """A line for each GPU whose clocks are held down, and one on the sampling."""
    for sample in frame.samples:
        if names := clock_event_reasons(sample):
            yield f"GPU {sample.device.index}: clock event reasons: {', '.join(names)}"
    parts = [f"one sample every {frame.interval:g} s"]
    if frame.sample_duration:
        parts.append(f"taken in {units.whole(1000 * frame.sample_duration)} ms")
    parts.append(f"{units.counted(frame.skipped_ticks, 'sample')} skipped since sampling began")
    yield f"sampling: {', '.join(parts)}"


def clock_event_reasons(sample: Sample) -> tuple[str, ...]:
    """The reasons for which the clocks of a GPU are below their highest, in words; empty for none, or where unknown."""
    mask = sample.value("gpu.event_reasons")
    vendor = maker(sample.device.name, sample.device.uuid)
    return clock_events(vendor, int(mask)) if vendor and math.isfinite(mask) and mask > 0 else ()
