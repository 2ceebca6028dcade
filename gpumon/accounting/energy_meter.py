"""The energy of one GPU: what its counter grew by between two readings, for whoever held it in the time between.

Ticks and readings are two things: where a call is slow, the counter is read seldom, and its answer may come in another
tick than the question. So each stretch of time waits for the reading that ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Generic, NamedTuple, TypeVar

from gpumon.clock import SECOND
from gpumon.energy_growth import DOUBTED, energy_between
from gpumon.missing import NAN, is_known

Part = TypeVar("Part")
Book = Callable[[Part, float, float], object]
"""Takes a part, and the seconds and joules that it is to have."""
_DOUBTED_NS = round(DOUBTED * SECOND)


class _Reading(NamedTuple):
    energy: float
    stamp_ns: int
    at_ns: int


class _Unbooked(Generic[Part]):
    __slots__ = ("begin_ns", "end_ns", "part", "power")

    def __init__(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        self.part = part
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.power = power
        """Watts, NaN where not known: counted where no counter tells the energy."""


class EnergyMeter(Generic[Part]):
    """Stretches of a GPU whose energy is not known yet, and the reading that they begin with."""

    __slots__ = ("_book", "_doubted", "_stretches", "at_ns", "energy", "stamp_ns")

    def __init__(self, book: Book[Part]) -> None:
        self._book = book
        self.energy = NAN
        """The counter as it was believed last, J; NaN before."""
        self.stamp_ns = 0
        """ns, CLOCK_MONOTONIC: when it had this value."""
        self.at_ns = 0
        """The same, but not later than its tick: time is known up to there."""
        self._doubted: _Reading | None = None
        """The first reading since then that no card can have come to from there."""
        self._stretches: list[_Unbooked[Part]] = []
        """Those since then, in their order, which are not booked."""

    def goes_on(self, energy: float, stamp_ns: int, begin_ns: int, end_ns: int, limit: float) -> float:
        """Take the counter as `read` does, at the end of a stretch that began with the reading before; return joules.

        So it is at nearly each tick, and nothing waits. NaN where it is not so: then nothing was taken.
        """
        if self._stretches or begin_ns != self.at_ns or stamp_ns < end_ns:
            return NAN
        grown = energy_between(self.energy, energy, (stamp_ns - self.stamp_ns) / SECOND, limit)
        if grown == grown:  # NaN is not itself; in place, because it is done for each device and tick
            self.energy, self.stamp_ns, self.at_ns, self._doubted = energy, stamp_ns, end_ns, None
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

        `limit`: the enforced power limit, W. A counter that is missing, or that was read before, is waited for as long
        as readings may lie apart.
        """
        if not isfinite(energy):
            if not now_ns - self.at_ns <= follows_ns or self.energy != self.energy:
                self.forget()
            return
        reading, passed_ns = _Reading(energy, stamp_ns, min(stamp_ns, now_ns)), stamp_ns - self.stamp_ns
        if self.energy != self.energy or passed_ns > follows_ns:
            self._begin(reading)
        elif passed_ns <= 0:
            if now_ns - self.at_ns > follows_ns:
                self._book_power(now_ns)
        else:
            grown = energy_between(self.energy, energy, passed_ns / SECOND, limit)
            if is_known(grown):
                self._go_on(reading, grown)
            else:
                self._doubt(reading, limit)

    def forget(self) -> None:
        """Wait for no reading any more: what came before the next one is that of its power."""
        self.energy, self.stamp_ns, self.at_ns, self._doubted = NAN, 0, 0, None
        if self._stretches:
            self._book_power(self._stretches[-1].end_ns)

    def _begin(self, reading: _Reading) -> None:
        """Count on from this reading; nothing is known of how the counter came to it."""
        self._book_power(reading.at_ns)
        self.energy, self.stamp_ns, self.at_ns = reading
        self._doubted = None

    def _doubt(self, reading: _Reading, limit: float) -> None:
        """Wait whether the counter goes on from before, or from a reading that no card can have come to."""
        doubted, grown, passed_ns = self._doubted, NAN, 0
        if doubted is not None:
            passed_ns = reading.stamp_ns - doubted.stamp_ns
            grown = energy_between(doubted.energy, reading.energy, passed_ns / SECOND, limit)
        if doubted is None or not is_known(grown):
            self._doubted = reading
        elif passed_ns >= _DOUBTED_NS:
            self._begin(doubted)
            self._go_on(reading, grown)

    def _go_on(self, reading: _Reading, grown: float) -> None:
        """Book what the counter grew by up to this reading, evenly over the time since the one before."""
        length, until_ns = reading.at_ns - self.at_ns, reading.at_ns
        self.energy, self.stamp_ns, self.at_ns = reading
        self._doubted = None
        stretches = self._stretches
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
