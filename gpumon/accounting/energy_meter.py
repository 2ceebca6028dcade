"""The energy of one GPU: what its counter grew by between two readings, for whoever held it in the time between.

Ticks and readings are two things: where a call is slow, the counter is read seldom, and its answer may come in another
tick than the question. So each stretch of time waits for the reading that ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Generic, TypeVar

from gpumon.clock import SECOND
from gpumon.energy_growth import DOUBTED, energy_between
from gpumon.missing import NAN

Part = TypeVar("Part")
Book = Callable[[Part, float, float], object]
"""Takes a part, and the seconds and joules that it is to have."""
_DOUBTED_NS = round(DOUBTED * SECOND)


class _Reading:
    __slots__ = ("at_ns", "energy", "stamp_ns")

    def __init__(self, energy: float, stamp_ns: int, at_ns: int) -> None:
        self.energy = energy
        self.stamp_ns = stamp_ns
        """ns, CLOCK_MONOTONIC: when the counter had this value."""
        self.at_ns = at_ns
        """The same, but not later than its tick: time is known up to there."""


class _Stretch(Generic[Part]):
    __slots__ = ("begin_ns", "end_ns", "part", "power")

    def __init__(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        self.part = part
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.power = power
        """Watts, NaN where not known: counted where no counter tells the energy."""


class EnergyMeter(Generic[Part]):
    """Stretches of a GPU whose energy is not known yet, and the reading that they begin with."""

    __slots__ = ("_base", "_book", "_doubted", "_stretches")

    def __init__(self, book: Book[Part]) -> None:
        self._book = book
        self._base: _Reading | None = None
        """The last reading that was believed."""
        self._doubted: _Reading | None = None
        """The first one of those since then that no card can have come to from there."""
        self._stretches: list[_Stretch[Part]] = []
        """Those after it, in their order, which are not booked."""

    @property
    def energy(self) -> float:
        """The counter as it was believed last, J; NaN before."""
        return self._base.energy if self._base is not None else NAN

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
        stretches.append(_Stretch(part, begin_ns, end_ns, power))

    def read(self, energy: float, stamp_ns: int, now_ns: int, limit: float, follows_ns: int) -> None:
        """Take the counter (J) as it was at `stamp_ns`, with the tick at `now_ns`: all ns, CLOCK_MONOTONIC.

        `limit`: the enforced power limit, W. A counter that is missing, or that was read before, is waited for as long
        as readings may lie apart.
        """
        base = self._base
        if not isfinite(energy):
            if base is None or now_ns - base.at_ns > follows_ns:
                self.forget()
            return
        if base is None:
            self._begin(_Reading(energy, stamp_ns, min(stamp_ns, now_ns)))
            return
        passed_ns = stamp_ns - base.stamp_ns
        if passed_ns <= 0:
            if now_ns - base.at_ns > follows_ns:
                self._book_power(now_ns)
            return
        if passed_ns > follows_ns:
            self._begin(_Reading(energy, stamp_ns, min(stamp_ns, now_ns)))
            return
        grown = energy_between(base.energy, energy, passed_ns / SECOND, limit)
        if grown == grown:  # NaN is not itself; in place, because it is done for each device and tick
            base.stamp_ns, base.energy = stamp_ns, energy
            self._doubted = None
            self._book_grown(base, grown, min(stamp_ns, now_ns))
        else:
            self._doubt(energy, stamp_ns, min(stamp_ns, now_ns), limit)

    def forget(self) -> None:
        """Wait for no reading any more: what came before the next one is that of its power."""
        self._base = self._doubted = None
        if self._stretches:
            self._book_power(self._stretches[-1].end_ns)

    def _begin(self, reading: _Reading) -> None:
        """Count on from this reading; nothing is known of how the counter came to it."""
        self._book_power(reading.at_ns)
        self._base, self._doubted = reading, None

    def _doubt(self, energy: float, stamp_ns: int, at_ns: int, limit: float) -> None:
        """Wait whether the counter goes on from before, or from a reading that no card can have come to."""
        doubted = self._doubted
        grown = NAN
        if doubted is not None:
            grown = energy_between(doubted.energy, energy, (stamp_ns - doubted.stamp_ns) / SECOND, limit)
        if doubted is None or grown != grown:
            self._doubted = _Reading(energy, stamp_ns, at_ns)
        elif stamp_ns - doubted.stamp_ns >= _DOUBTED_NS:
            self._begin(doubted)
            doubted.stamp_ns, doubted.energy = stamp_ns, energy
            self._book_grown(doubted, grown, at_ns)

    def _book_grown(self, base: _Reading, grown: float, until_ns: int) -> None:
        """Book what the counter grew by since `base`, evenly over the time up to `until_ns`."""
        length, base.at_ns = until_ns - base.at_ns, until_ns
        stretches = self._stretches
        while stretches and stretches[0].begin_ns < until_ns:
            first = stretches[0]
            passed = min(first.end_ns, until_ns) - first.begin_ns
            self._book(first.part, passed / SECOND, grown if passed == length else grown * passed / length)
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
