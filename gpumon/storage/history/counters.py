"""Growth of counters: exact growth within each cell of a subject, and rates between two frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from operator import eq, gt, ne, sub
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.energy import EnergyReadings
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_INDEX, Availability


class Growth(NamedTuple):
    """Growth of each counter of a subject in one cell."""

    rates: Sequence[float]
    """Growth of each counter per second; NaN if unknown."""
    raw: Sequence[float]
    """Value of each counter at the end of the cell, or at the last sample if no sample follows."""
    seconds: float
    """Seconds in which the growth was measured."""


class GrowthMeter:
    """Divides the growth of a subject's counters between cells.

    A counter is assumed to grow evenly between two samples that are close together. If there is a gap between them, or
    the counter decreased, it is unknown when it grew. If a sample has no counters, or its energy is implausible
    (`EnergyReadings`), nothing is counted until a valid sample follows.
    """

    def __init__(self, counters: int, energy: int = -1) -> None:
        """`counters`: number of counters. `energy`: index of a GPU's energy counter, -1 if there is none."""
        self._energy = energy
        self._readings = EnergyReadings(second=1.0)
        self._waiting: list[tuple[float, Sequence[float], Sequence[float]]] = []
        """Samples that wait for a valid sample: time, values as read, and values in which implausible energy is NaN."""
        self._unknown = (nan,) * counters
        self._base: Sequence[float] = self._unknown
        """The counters at the start of the open cell, or when they were first read in it."""
        self._begin = nan
        """Time of `_base`, s since 1970."""
        self._values: Sequence[float] = self._unknown
        """The counters in the last accepted sample."""
        self._time = nan
        self._growth: list[float] | None = None
        """Growth in the open cell before a gap in it; None without a gap."""
        self._seconds = 0.0
        """Seconds in which `_growth` was measured."""
        self._step = 1
        self._closed: dict[int, Growth] = {}

    @property
    def time(self) -> float:
        """Time of the last accepted values, in seconds since 1970; NaN if there are none yet."""
        return self._time

    def add(self, time: float, values: Sequence[float], step: int, longest: float, limit: float = nan) -> None:
        """Add the values of the counters, which were read at `time` (s since 1970).

        `step`: length of a cell in seconds. `longest`: there is a gap if more seconds than this have passed since the
        last values. `limit`: power limit of the GPU in W, used to detect implausible energy.
        """
        if time <= self._time:
            return
        read, is_near = values, time - self._time <= longest
        if self._energy >= 0:
            if not (is_near or self._waiting):
                self._readings = EnergyReadings(second=1.0)
            growth = self._readings.add(time, values[self._energy], limit)
            if len(growth) > 1:
                self._restart(growth[1].begin, step, longest)
            elif not growth and values[self._energy] == values[self._energy]:
                values = [*values[: self._energy], nan, *values[self._energy + 1 :]]
        if is_near and self._is_missing(values):
            self._waiting.append((time, read, values))
            return
        if not is_near:
            for waiting_time, _, accepted in self._waiting:
                self._add(waiting_time, accepted, step, longest)
        self._waiting = []
        self._add(time, values, step, longest)

    def _is_missing(self, values: Sequence[float]) -> bool:
        """Return whether a sample lacks a reading: its energy or all its counters are missing, but were known before.

        If only other counters are missing, the sample is used, because a 32-bit counter may have wrapped meanwhile.
        """
        index = self._energy
        if index >= 0 and values[index] != values[index] and self._values[index] == self._values[index]:
            return True
        return not any(map(eq, values, values)) and any(map(eq, self._values, self._values))

    def _restart(self, first: float, step: int, longest: float) -> None:
        """Continue with the waiting samples from `first` (s since 1970), when the energy counter restarted."""
        waiting = [(time, read) for time, read, _ in self._waiting if time >= first]
        self._waiting = []
        if waiting:
            self._keep_growth()
            self._time, self._values = waiting[0]
            self._base, self._begin = self._values, self._time
            for time, read in waiting[1:]:
                self._add(time, read, step, longest)

    def _add(self, time: float, values: Sequence[float], step: int, longest: float) -> None:
        previous, self._step = self._time, step
        if not time - previous <= longest or any(map(gt, self._values, values)):
            self._keep_growth()
            self._base, self._begin = values, time
        else:
            cell = int(previous // step)
            while (border := (cell + 1) * step) < time:
                share = (border - previous) / (time - previous)
                at_border = [old + (new - old) * share for old, new in zip(self._values, values, strict=True)]
                self._close(cell, border, at_border)
                cell += 1
            if any(map(ne, values, values)):
                self._invalidate_missing(values)
        self._values, self._time = values, time

    def _invalidate_missing(self, values: Sequence[float]) -> None:
        """Make counters unknown in the open cell if they are NaN while other counters are known.

        These counters may have restarted meanwhile. If all counters are NaN, nothing changes.
        """
        known = [value == value for value in values]
        if any(known):
            self._base = [base if is_known else nan for base, is_known in zip(self._base, known, strict=True)]

    def reset(self) -> None:
        """Treat the next sample as the first sample after a gap."""
        self._keep_growth()
        self._waiting, self._readings = [], EnergyReadings(second=1.0)
        self._base, self._begin = self._unknown, nan
        self._values, self._time = self._unknown, nan

    def pop_cell(self, cell: int) -> Growth:
        """Close the cell with this number, and return the growth in it."""
        if cell not in self._closed:
            if self._time < cell * self._step:  # the last accepted values are older than the cell
                return Growth(self._unknown, self._unknown, 0.0)
            self._close(cell, self._time, self._values)
        growth = self._closed.pop(cell)
        if self._closed:
            for other in [number for number in self._closed if number < cell]:  # no device answered in these
                del self._closed[other]
        return growth

    def pop_late(self, end: int) -> list[tuple[int, Growth]]:
        """Return and remove growth that was measured after its cell was closed, as pairs of cell number and growth.

        Only cells before number `end` are included.
        """
        if not self._closed:
            return []
        late = [(cell, growth) for cell, growth in self._closed.items() if cell < end and growth.seconds > 0]
        self._closed = {cell: growth for cell, growth in self._closed.items() if cell >= end}
        return late

    def _close(self, cell: int, border: float, values: Sequence[float]) -> None:
        """Close the open cell at `border` (s since 1970), where the counters have these values."""
        seconds = border - self._begin
        if seconds == seconds:  # NaN != NaN; no call of is_known, because this runs for each device and cell
            growth = self._growth_until(values)
            seconds += self._seconds
        else:
            growth, seconds = self._growth or [], self._seconds
        rates = [grown / seconds for grown in growth] if seconds > 0 and growth else self._unknown
        self._closed[cell] = Growth(rates, values, round(seconds, 4))  # rounded, so that complete cells are equal
        self._base, self._begin = values, border
        self._growth, self._seconds = None, 0.0

    def _keep_growth(self) -> None:
        """Keep the growth in the open cell before a gap."""
        seconds = self._time - self._begin
        if seconds > 0:
            self._growth = self._growth_until(self._values)
            self._seconds += seconds

    def _growth_until(self, values: Sequence[float]) -> list[float]:
        """Return the growth in the open cell until the counters have these values."""
        if self._growth is None:
            return list(map(sub, values, self._base))
        return [earlier + new - old for earlier, new, old in zip(self._growth, values, self._base, strict=True)]


PAUSE = 3.0
"""If more than this number of intervals lies between two samples, it is a gap, in which nothing is known."""
SHORTEST_INTERVAL = 0.1
"""Shortest interval in seconds. Shorter intervals count as this long, because the machine's scheduler makes them
uneven."""


ENERGY = "gpu.energy"
_ENERGY, _LIMIT = GPU_INDEX[ENERGY], GPU_INDEX["gpu.power_limit"]


def rate(before: float, after: float, ns: int) -> float:
    """Return the growth per second of a counter between two readings that are `ns` nanoseconds apart.

    NaN if the counter decreased, for example because of a driver reset.
    """
    growth = after - before
    return growth / (ns / SECOND) if growth >= 0 else NAN


def power_between(before: Sequence[float], after: Sequence[float], ns: int) -> float:
    """Return the mean power in W between two rows of a GPU's values, computed from the energy counter.

    `ns`: nanoseconds between the two readings of the counter. NaN if the energy is implausible.
    """
    from gpumon.model.energy import energy_between  # 'gpumon status' needs no energy

    seconds = ns / SECOND
    return energy_between(before[_ENERGY], after[_ENERGY], seconds, after[_LIMIT]) / seconds


def counted_at(sample: Sample, frame: Frame) -> int:
    """Return the time at which the counters of a sample were read (ns, CLOCK_MONOTONIC).

    Each device has its own time, because devices are read one after the other and driver calls may be slow.
    """
    return sample.counters_monotonic_ns or sample.monotonic_ns or frame.monotonic_ns


def longest_pause(frame: Frame) -> int:
    """Return the maximum ns between the previous sample and the sample in `frame` for which rates are computed."""
    return round(PAUSE * max(frame.interval, SHORTEST_INTERVAL) * SECOND)


def rates_between(before: Frame, after: Frame, metrics: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return the growth per second of counters between two frames: by device UUID, then by metric.

    Only devices with values in both frames are included. If the frames are too far apart, there are no rates, because
    it is unknown when a counter grew.
    """
    answered = {sample.device.uuid: sample for sample in before.samples if sample.state is Availability.OK}
    indexes = [(name, GPU_INDEX[name]) for name in metrics]
    rates: dict[str, Mapping[str, float]] = {}
    for sample in after.samples:
        previous = answered.get(sample.device.uuid)
        if previous is None or sample.state is not Availability.OK:
            continue
        ns = counted_at(sample, after) - counted_at(previous, before)
        if 0 < ns <= longest_pause(after):
            rates[sample.device.uuid] = {
                name: power_between(previous.values, sample.values, ns)
                if name == ENERGY
                else rate(previous.values[index], sample.values[index], ns)
                for name, index in indexes
            }
    return rates
