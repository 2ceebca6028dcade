"""The rule for readings of an energy counter. Accounts, totals, ledger, exporter and `gpumon run` use it.

A counter grows evenly between two readings. A reading is missing where the driver gave none, gave the number that it
gave before, or a number that no card can have come to: then the next reading tells the energy of the whole time since
the last one that was believed. Beyond `FOLLOWS` seconds it does not tell when in that time the energy was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN

OF_LIMIT = 3.0
"""Times its enforced power limit that a card draws at most, as a mean between two readings. Peaks of milliseconds go to
twice the limit, a mean over a reading hardly beyond it, and a limit may just have been lowered."""
MOST_POWER = 12_000.0
"""Watts that a card draws at most where its limit is not known, or claims to be more: three times the largest that are
announced, of 3.6 to 4 kW."""
UNSURE = 0.5
"""Seconds by which the time between two readings may be longer than their stamps say: a call is not waited for any
longer, and drivers renew the counter each 20 to 100 ms."""
FOLLOWS = 15.0
"""Seconds between two readings over which a counter is taken to grow evenly, at most: a slow call is made each 10 s
(`costs.LONGEST_WAIT`), takes its own time, and its answer comes with the next tick."""
DOUBTED = 3.0
"""Seconds for which a reading that no card can have come to is held for garbage, as long as those after it agree with
it; then the counter has started over."""


def most_power(limit: float) -> float:
    """Return the watts that a card draws at most; `limit`: its enforced power limit, NaN where that is not known."""
    return OF_LIMIT * limit if 0.0 < OF_LIMIT * limit < MOST_POWER else MOST_POWER


def energy_between(before: float, after: float, seconds: float, limit: float) -> float:
    """Return the joules that a counter grew by between two readings; NaN where no card can have used so much.

    `limit` as in `most_power`. Also NaN where the counter went back, or one of the two is missing.
    """
    grown = after - before
    if 0.0 <= grown <= OF_LIMIT * limit * (seconds + UNSURE) and OF_LIMIT * limit < MOST_POWER:  # as nearly always
        return grown
    return grown if 0.0 <= grown <= most_power(limit) * (seconds + UNSURE) else NAN


def lacks(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a counter is missing (NaN) in `after` that was known in `before`."""
    # NaN is not itself; in place, because it is done for each device and tick.
    return any(new != new and old == old for old, new in zip(before, after, strict=True))


class EnergyGrowth(NamedTuple):
    """Energy between two readings that are believed."""

    begin: int | float
    end: int | float
    joules: float
    """NaN where the counter begins, or starts over, with the reading at `end`."""


class EnergyReadings:
    """The readings of one energy counter, in the order of their times."""

    __slots__ = ("_doubted", "_second", "at", "energy")

    def __init__(self, second: float = SECOND) -> None:
        """`second`: the length of a second in the unit of the times that are given."""
        self._second = second
        self.at: int | float = 0
        """Time of the last reading that was believed."""
        self.energy = NAN
        """Joules at that time; NaN before the first reading."""
        self._doubted: tuple[int | float, float] | None = None
        """Time and joules of the first reading since then that no card can have come to."""

    def believe(self, at: int | float, energy: float) -> None:
        """Take a reading that the caller has compared with the last one."""
        self.at, self.energy, self._doubted = at, energy, None

    def take(self, at: int | float, energy: float, limit: float) -> Sequence[EnergyGrowth]:
        """Take a reading and return what is known now; `limit`: the enforced power limit, W, NaN where not known.

        Empty while the reading is missing or doubted. A counter that has started over gives two: up to its first
        reading, of which nothing is known, and since then.
        """
        before, begin = self.energy, self.at
        if not isfinite(energy) or (before == before and at <= begin):
            return ()
        if before != before:
            self.believe(at, energy)
            return (EnergyGrowth(at, at, NAN),)
        if energy == before:  # no card draws nothing: the counter was not renewed, or stands still
            self._doubted = None
            return ()
        grown = energy_between(before, energy, (at - begin) / self._second, limit)
        if grown == grown:
            self.believe(at, energy)
            return (EnergyGrowth(begin, at, grown),)
        if self._doubted is not None:
            first, first_energy = self._doubted
            seconds = (at - first) / self._second
            grown = energy_between(first_energy, energy, seconds, limit)
            if energy == first_energy or (grown == grown and seconds < DOUBTED):
                return ()
            if grown == grown:
                self.believe(at, energy)
                return EnergyGrowth(begin, first, NAN), EnergyGrowth(first, at, grown)
        self._doubted = at, energy
        return ()
