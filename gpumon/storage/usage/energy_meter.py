"""`EnergyMeter`: divides the growth of a GPU's energy counter between the spans of time in which it grew.

A counter is not always read at a tick: if the driver call is slow, it is read less often, and the value arrives in a
later tick. So the energy of a span is known only when a reading at or after its end has arrived.
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
    """Spans of time whose energy is not known yet. `book` is called for each when its energy is known."""

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
        """When the last accepted value was read (ns, CLOCK_MONOTONIC)."""
        return self._readings.at

    def read_adjacent(self, energy: float, stamp_ns: int, begin_ns: int, end_ns: int, limit: float) -> float:
        """Add a reading at the end of a span that began at the previous reading, and return the joules in between.

        This is the fast path for most ticks. If another span is still waiting, it returns NaN and does nothing; call
        `add_stretch` and `read` then. `stamp_ns`: when `energy` (J) was read. `limit`: power limit in W.
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
        """Replace the part (what its energy counts for) of each waiting span."""
        for stretch in self._stretches:
            stretch.part = replace(stretch.part)

    def add_stretch(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        """Add the next span, from `begin_ns` to `end_ns` (ns, CLOCK_MONOTONIC). Its energy counts for `part`.

        `power`: mean power in W, from which the energy is computed if no reading arrives.
        """
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
        """Add a reading of the counter.

        `energy`: its value in J. `stamp_ns`: when it was read; `now_ns`: time of the tick in which it arrived (both ns,
        CLOCK_MONOTONIC). `limit`: power limit in W. `follows_ns`: longest time between two readings for which the
        counter is used; the energy of a longer time is computed from power.
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
        """Stop waiting for readings, as before a gap.

        Spans since the last reading are dropped. If there was no reading at all, their energy is computed from power.
        """
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
