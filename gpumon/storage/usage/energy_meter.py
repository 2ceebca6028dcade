"""`EnergyMeter`: divides the growth of a GPU's energy counter between the stretches of time in which it grew.

Counter readings need not coincide with ticks: if the driver call is slow, the counter is read less often than ticks
come, and a value can arrive in a later tick. So each stretch waits for the reading that ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Generic, TypeVar

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.energy import EnergyReadings, energy_between

Part = TypeVar("Part")
Book = Callable[[Part, float, float], object]
"""Called with a part and the seconds and joules to add to it."""


class _Stretch(Generic[Part]):
    """A span of time whose energy is not known yet; ns, CLOCK_MONOTONIC."""

    __slots__ = ("begin_ns", "end_ns", "part", "power")

    def __init__(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        self.part = part
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.power = power
        """Watts, NaN if unknown; gives the energy if no counter reading does."""


class EnergyMeter(Generic[Part]):
    """Stretches of a GPU whose energy is not known yet. `book` is called when it is."""

    __slots__ = ("_book", "_readings", "_stretches", "at_ns")

    def __init__(self, book: Book[Part]) -> None:
        self._book = book
        self._readings = EnergyReadings()
        self.at_ns = 0
        """Time of the last accepted reading (ns, CLOCK_MONOTONIC), at most the time of its tick; 0 before the first."""
        self._stretches: list[_Stretch[Part]] = []
        """Stretches since `at_ns`, in order, that are not booked yet."""

    @property
    def stamp_ns(self) -> int | float:
        """When the counter had the last accepted value: ns, CLOCK_MONOTONIC."""
        return self._readings.at

    def read_adjacent(self, energy: float, stamp_ns: int, begin_ns: int, end_ns: int, limit: float) -> float:
        """Read the counter at the end of a stretch that began at the previous reading; return the joules between.

        This is the fast path for most ticks, in which no stretch is waiting. Otherwise returns NaN and reads nothing.
        """
        readings = self._readings
        if self._stretches or begin_ns != self.at_ns or stamp_ns < end_ns:
            return NAN
        grown = energy_between(readings.energy, energy, (stamp_ns - readings.at) / SECOND, limit)
        if not grown > 0.0:
            return NAN
        readings.accept(stamp_ns, energy)
        self.at_ns = end_ns
        return grown

    def replace_parts(self, replace: Callable[[Part], Part]) -> None:
        """Replace the part of each waiting stretch."""
        for stretch in self._stretches:
            stretch.part = replace(stretch.part)

    def add_stretch(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        """Add the next stretch. Its energy is for `part`, and is `power` (W) times its length without a reading."""
        stretches = self._stretches
        if stretches:
            last = stretches[-1]
            if last.part is part and last.end_ns == begin_ns:
                whole = end_ns - last.begin_ns
                last.power += (power - last.power) * (end_ns - begin_ns) / whole
                last.end_ns = end_ns
                return
        stretches.append(_Stretch(part, begin_ns, end_ns, power))

    def read(self, energy: float, stamp_ns: int, now_ns: int, limit: float, follows_ns: int) -> None:
        """Add a counter reading: the value (J) at `stamp_ns`, in the tick at `now_ns` (ns, CLOCK_MONOTONIC).

        `limit` is the enforced power limit, W. If readings are more than `follows_ns` apart, the energy between them is
        computed from power.
        """
        for growth in self._readings.add(stamp_ns, energy, limit):
            at_ns = min(round(growth.end), now_ns)
            if is_known(growth.joules) and growth.end - growth.begin <= follows_ns:
                self._book_joules(at_ns, growth.joules)
            else:
                self._book_power(at_ns)
            self.at_ns = at_ns
        if now_ns - self.at_ns > follows_ns:
            self._book_power(now_ns)

    def reset(self) -> None:
        """Stop waiting for readings. Time since the last one is dropped; without one, power gives the energy."""
        if self._stretches and not self.at_ns:
            self._book_power(self._stretches[-1].end_ns)
        self._readings = EnergyReadings()
        self._stretches.clear()
        self.at_ns = 0

    def _book_joules(self, until_ns: int, joules: float) -> None:
        """Book the growth of the counter up to `until_ns`, spread evenly since the previous reading."""
        length, stretches = until_ns - self.at_ns, self._stretches
        while stretches and stretches[0].begin_ns < until_ns:
            first = stretches[0]
            passed = min(first.end_ns, until_ns) - first.begin_ns
            self._book(first.part, passed / SECOND, joules * passed / length)
            if first.end_ns > until_ns:
                first.begin_ns = until_ns
                return
            del stretches[0]

    def _book_power(self, until_ns: int) -> None:
        """Book the time up to `until_ns` by power, if power is known."""
        stretches = self._stretches
        while stretches and stretches[0].begin_ns < until_ns:
            first = stretches[0]
            seconds = (min(first.end_ns, until_ns) - first.begin_ns) / SECOND
            if isfinite(first.power):
                self._book(first.part, seconds, first.power * seconds)
            if first.end_ns > until_ns:
                first.begin_ns = until_ns
                return
            del stretches[0]
