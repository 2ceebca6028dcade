"""Rates of counters between two samples of a device, as charts draw and rules judge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_INDEX, Availability

PAUSE = 3.0
"""A jump of so many intervals is a gap: nothing is known of the time between."""
SHORTEST_INTERVAL = 0.1
"""Seconds: intervals below this one are as uneven as the machine's scheduler."""


ENERGY = "gpu.energy"
_ENERGY, _LIMIT = GPU_INDEX[ENERGY], GPU_INDEX["gpu.power_limit"]


def rate(before: float, after: float, ns: int) -> float:
    """Return the growth per second of a counter; NaN where it went back, as after a reset of the driver."""
    grown = after - before
    return grown / (ns / SECOND) if grown >= 0 else NAN


def power_between(before: Sequence[float], after: Sequence[float], ns: int) -> float:
    """Return the watts that the counter of energy tells, between values of a GPU; NaN where no card draws as much."""
    from gpumon.model.energy import energy_between  # 'gpumon status' asks for no energy

    seconds = ns / SECOND
    return energy_between(before[_ENERGY], after[_ENERGY], seconds, after[_LIMIT]) / seconds


def counted_at(sample: Sample, frame: Frame) -> int:
    """Return when the counters of a device held their values (ns, CLOCK_MONOTONIC).

    Devices are read one after the other, and a call may take long: each has a time of its own.
    """
    return sample.counters_monotonic_ns or sample.monotonic_ns or frame.monotonic_ns


def longest_pause(frame: Frame) -> int:
    """Return the ns between two samples, up to the one in `frame`, over which a rate is measured."""
    return round(PAUSE * max(frame.interval, SHORTEST_INTERVAL) * SECOND)


def rates_between(before: Frame, after: Frame, metrics: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return the rates of counters by metric, for each device (UUID) that answered in both frames.

    Frames that are far apart give none: nothing is known of when a counter grew between them.
    """
    answered = {one.device.uuid: one for one in before.samples if one.state is Availability.OK}
    names = tuple(metrics)
    found: dict[str, Mapping[str, float]] = {}
    for sample in after.samples:
        old = answered.get(sample.device.uuid)
        if old is None or sample.state is not Availability.OK:
            continue
        ns = counted_at(sample, after) - counted_at(old, before)
        if 0 < ns <= longest_pause(after):
            found[sample.device.uuid] = {
                name: power_between(old.values, sample.values, ns)
                if name == ENERGY
                else rate(old.values[place], sample.values[place], ns)
                for name, place in ((name, GPU_INDEX[name]) for name in names)
            }
    return found
