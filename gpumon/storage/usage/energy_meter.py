"""The energy of one GPU: what its counter grew by between two readings, for whoever held it in the time between.

Ticks and readings are two things: where a call is slow, the counter is read seldom, and its answer may come in another
tick than the question. So each stretch of time waits for the reading that ends it.
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
"""Takes a part, and the seconds and joules that it is to have."""


class _Unbooked(Generic[Part]):
    __slots__ = ("begin_ns", "end_ns", "part", "power")

    def __init__(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        self.part = part
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.power = power
        """Watts, NaN where not known: counted where no counter tells the energy."""


class EnergyMeter(Generic[Part]):
    """Stretches of a GPU whose energy is not known yet, and the reading that they begin with."""

    __slots__ = ("_book", "_readings", "_stretches", "at_ns")

    def __init__(self, book: Book[Part]) -> None:
        self._book = book
        self._readings = EnergyReadings()
        self.at_ns = 0
        """ns, CLOCK_MONOTONIC: time of the last believed reading, but not later than its tick; 0 before the first."""
        self._stretches: list[_Unbooked[Part]] = []
        """Those since then, in their order, which are not booked."""

    @property
    def stamp_ns(self) -> int | float:
        """ns, CLOCK_MONOTONIC: when the counter had the value that was believed last."""
        return self._readings.at

    def goes_on(self, energy: float, stamp_ns: int, begin_ns: int, end_ns: int, limit: float) -> float:
        """Take the counter as `read` does, at the end of a stretch that began with the reading before; return joules.

        So it is at nearly each tick, and nothing waits. NaN where it is not so: then nothing was taken.
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

    def change(self, to: Callable[[Part], Part]) -> None:
        """Replace the parts of stretches that wait."""
        for stretch in self._stretches:
            stretch.part = to(stretch.part)

    def hold(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        """Let a stretch of time be of `part`; with this `power` (W) where no counter tells. They come in order."""
        stretches = self._stretches
        if stretches:
            last = stretches[-1]
            if last.part is part and last.end_ns == begin_ns:
                whole = end_ns - last.begin_ns
                last.power += (power - last.power) * (end_ns - begin_ns) / whole
                last.end_ns = end_ns
                return
        stretches.append(_Unbooked(part, begin_ns, end_ns, power))

    def read(self, energy: float, stamp_ns: int, now_ns: int, limit: float, follows_ns: int) -> None:
        """Take the counter (J) as it was at `stamp_ns`, with the tick at `now_ns`: all ns, CLOCK_MONOTONIC.

        `limit`: the enforced power limit, W. Where no reading comes for longer than readings may lie apart, power tells
        the energy.
        """
        for growth in self._readings.add(stamp_ns, energy, limit):
            at_ns = min(round(growth.end), now_ns)
            if is_known(growth.joules) and growth.end - growth.begin <= follows_ns:
                self._book_grown(at_ns, growth.joules)
            else:
                self._book_power(at_ns)
            self.at_ns = at_ns
        if now_ns - self.at_ns > follows_ns:
            self._book_power(now_ns)

    def forget(self) -> None:
        """Wait for no reading any more. Of what came after the last one nothing is known; without any, power tells."""
        if self._stretches and not self.at_ns:
            self._book_power(self._stretches[-1].end_ns)
        self._readings = EnergyReadings()
        self._stretches.clear()
        self.at_ns = 0

    def _book_grown(self, until_ns: int, grown: float) -> None:
        """Book what the counter grew by up to this time, evenly since the reading before."""
        length, stretches = until_ns - self.at_ns, self._stretches
        while stretches and stretches[0].begin_ns < until_ns:
            first = stretches[0]
            passed = min(first.end_ns, until_ns) - first.begin_ns
            self._book(first.part, passed / SECOND, grown * passed / length)
            if first.end_ns > until_ns:
                first.begin_ns = until_ns
                return
            del stretches[0]

    def _book_power(self, until_ns: int) -> None:
        """Book the power of the time up to `until_ns`, where that is known."""
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
