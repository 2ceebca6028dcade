"""Counters of one subject between samples: what they grew by in each cell, exactly to its border."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import isfinite, nan
from operator import eq, ge, gt, ne, sub
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.energy import UNSURE, EnergyReadings
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_INDEX, Availability


class Grown(NamedTuple):
    """Growth in a cell, as far as it was measured."""

    rates: Sequence[float]
    """Growth per second; NaN where nothing is known."""
    raw: Sequence[float]
    """The counters at the end of the cell; where no sample came after it, at the last one."""
    seconds: float
    """Seconds in which the growth was measured; a sample that comes late counts with the cell before it."""


class EvenGrowth(NamedTuple):
    """Growth in whole seconds that follow each other, by counter and second."""

    rates: Sequence[Sequence[float]]
    raw: Sequence[Sequence[float]]
    """The counters at the end of each second."""


class Counting:
    """Between two samples that are near each other a counter is a straight line, and is cut at the borders of cells.

    Over a gap, or where a counter has gone back, nothing is known of when it grew. A sample without energy that is
    believed (`EnergyReadings`), or without any counter, waits for the next one that has it.
    """

    def __init__(self, counters: int, energy: int = -1) -> None:
        """`energy`: the place of the counter of a GPU's energy, if there is one."""
        self._energy = energy
        self._readings = EnergyReadings(second=1.0)
        self._waiting: list[tuple[float, Sequence[float], Sequence[float]]] = []
        """Time and values of samples that wait, as they were read, and without energy that is not believed."""
        self._nothing = (nan,) * counters
        self._base: Sequence[float] = self._nothing
        """The counters when the open cell began, or when they were first seen in it."""
        self._begin = nan
        self._values: Sequence[float] = self._nothing
        """As seen last."""
        self._time = nan
        self._grown: list[float] | None = None
        """Growth in the open cell before a gap in it; None where there was no gap."""
        self._seconds = 0.0
        self._step = 1
        self._closed: dict[int, Grown] = {}

    @property
    def time(self) -> float:
        """The time of the last values that were believed, s since 1970; NaN before."""
        return self._time

    def add(self, time: float, values: Sequence[float], step: int, longest: float, limit: float = nan) -> None:
        """Take values that were true at `time` (s since 1970); a jump of more than `longest` s is a gap.

        `limit`: the enforced power limit of a GPU, W.
        """
        if time <= self._time:
            return
        read, is_near = values, time - self._time <= longest
        if self._energy >= 0:
            if not (is_near or self._waiting):
                self._readings = EnergyReadings(second=1.0)
            growth = self._readings.add(time, values[self._energy], limit)
            if len(growth) > 1:
                self._start_over(growth[1].begin, step, longest)
            elif not growth and values[self._energy] == values[self._energy]:
                values = [*values[: self._energy], nan, *values[self._energy + 1 :]]
        if is_near and self._is_missing(values):
            self._waiting.append((time, read, values))
            return
        if not is_near:
            for at, _, known in self._waiting:
                self._take(at, known, step, longest)
        self._waiting = []
        self._take(time, values, step, longest)

    def _is_missing(self, values: Sequence[float]) -> bool:
        """Whether a sample is no reading: its energy is missing, or all counters are, and were known before.

        Another that is missing alone may have started over unseen, as those of 32 bits do.
        """
        place = self._energy
        if place >= 0 and values[place] != values[place] and self._values[place] == self._values[place]:
            return True
        return not any(map(eq, values, values)) and any(map(eq, self._values, self._values))

    def _start_over(self, first: float, step: int, longest: float) -> None:
        """Count on from what waits since the energy counter started over at `first`."""
        waited = [(at, read) for at, read, _ in self._waiting if at >= first]
        self._waiting = []
        if waited:
            self._leave()
            self._time, self._values = waited[0]
            self._base, self._begin = self._values, self._time
            for at, read in waited[1:]:
                self._take(at, read, step, longest)

    def _take(self, time: float, values: Sequence[float], step: int, longest: float) -> None:
        before, self._step = self._time, step
        if not time - before <= longest or any(map(gt, self._values, values)):
            self._leave()
            self._base, self._begin = values, time
        else:
            cell = int(before // step)
            while (border := (cell + 1) * step) < time:
                share = (border - before) / (time - before)
                at = [old + (new - old) * share for old, new in zip(self._values, values, strict=True)]
                self._close(cell, border, at)
                cell += 1
            if any(map(ne, values, values)):
                self._doubt(values)
        self._values, self._time = values, time

    def _doubt(self, values: Sequence[float]) -> None:
        """Let nothing be known in the open cell of counters that are NaN while others are known.

        Such a one may have started over unseen. A device that gave none at all goes on where it was.
        """
        known = [value == value for value in values]
        if any(known):
            self._base = [base if is_known else nan for base, is_known in zip(self._base, known, strict=True)]

    def is_whole(self, second: int) -> bool:
        """Whether the open second is this one, and all that it has grown by so far is known."""
        return self._begin == second and self._grown is None and not (self._closed or self._waiting)

    def evenly(
        self, second: int, times: Sequence[float], values: Sequence[Sequence[float]], most: float = nan
    ) -> EvenGrowth | None:
        """Return the growth in the open second, which is `second`, and in those after it, up to the last of `values`.

        There is one of them in each second after the open one, which is whole. None where one is in another second,
        or a counter has gone back, or grown beyond what a card can use, `most` in W.
        """
        if not all(border < time < border + 1 for border, time in enumerate((self._time, *times), second)):
            return None
        before = zip((self._time, *times), times, strict=False)
        shares = [(border - old) / (time - old) for border, (old, time) in enumerate(before, second + 1)]
        rates, raw, length = [], [], len(times)
        columns = list(zip(*values, strict=True))
        if self._energy >= 0:
            column = columns[self._energy]
            older = (self._values[self._energy], *column)
            if any(map(ge, older, column)) or any(map(gt, map(sub, column, older), repeat(most * UNSURE))):
                return None
        for begin, first, column in zip(self._base, self._values, columns, strict=True):
            if column.count(first) == length and isfinite(first):  # as most counters of throttling
                at = [first] * length
            else:
                older = (first, *column[:-1])
                if any(map(gt, older, column)):
                    return None
                at = [old + (new - old) * share for old, new, share in zip(older, column, shares, strict=True)]
            rates.append(list(map(sub, at, (begin, *at[:-1]))))
            raw.append(at)
        return EvenGrowth(rates, raw)

    def go_on(self, second: int, time: float, values: Sequence[float], growth: EvenGrowth) -> None:
        """Follow what `evenly` has given, up to its last values, in the second that begins at `second`."""
        self._base, self._begin = [column[-1] for column in growth.raw], second
        self._values, self._time = values, time
        if self._energy >= 0 and isfinite(values[self._energy]):
            self._readings.accept(time, values[self._energy])

    def forget(self) -> None:
        """Take what comes as behind a gap."""
        self._leave()
        self._waiting, self._readings = [], EnergyReadings(second=1.0)
        self._base, self._begin = self._nothing, nan
        self._values, self._time = self._nothing, nan

    def closed(self, cell: int) -> Grown:
        """The growth in a cell that is over."""
        if cell not in self._closed:
            if self._time < cell * self._step:  # it was not read in it, and is behind
                return Grown(self._nothing, self._nothing, 0.0)
            self._close(cell, self._time, self._values)
        found = self._closed.pop(cell)
        if self._closed:
            for other in [one for one in self._closed if one < cell]:  # those in which no device answered
                del self._closed[other]
        return found

    def late(self, before: int) -> list[tuple[int, Grown]]:
        """Return, and forget, the growth in cells before one: what came to be known of those that were closed."""
        if not self._closed:
            return []
        found = [(cell, grown) for cell, grown in self._closed.items() if cell < before and grown.seconds > 0]
        self._closed = {cell: grown for cell, grown in self._closed.items() if cell >= before}
        return found

    def _close(self, cell: int, border: float, at: Sequence[float]) -> None:
        seconds = border - self._begin
        if seconds == seconds:  # NaN != NaN; no call of is_known, because it is done for each device and cell
            grown = self._since_base(at)
            seconds += self._seconds
        else:
            grown, seconds = self._grown or [], self._seconds
        if seconds == 1.0 and grown:  # as nearly always
            rates: Sequence[float] = grown
        else:
            rates = [growth / seconds for growth in grown] if seconds > 0 and grown else self._nothing
        self._closed[cell] = Grown(rates, at, round(seconds, 4))  # all alike where nothing is missing
        self._base, self._begin = at, border
        self._grown, self._seconds = None, 0.0

    def _leave(self) -> None:
        """Keep what is known of the open cell, before a gap."""
        seconds = self._time - self._begin
        if seconds > 0:
            self._grown = self._since_base(self._values)
            self._seconds += seconds

    def _since_base(self, at: Sequence[float]) -> list[float]:
        """Growth in the open cell, up to the values `at`."""
        if self._grown is None:
            return list(map(sub, at, self._base))
        return [more + new - old for more, new, old in zip(self._grown, at, self._base, strict=True)]


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
