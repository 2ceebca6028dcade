"""Rules for energy counters, used by accounts, totals, ledger, exporter and `gpumon run`.

A counter grows evenly between two readings. A reading is missing if the driver returned none, the same number as
before, or a number that no card can have reached: then the next reading gives the energy since the last accepted one.
Over more than `FOLLOWS` seconds, it does not tell when the energy was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN

OF_LIMIT = 3.0
"""Maximum mean power of a card between two readings, in multiples of its enforced power limit. Peaks of milliseconds
reach twice the limit, a mean hardly exceeds it, and the limit may just have been lowered."""
MAX_POWER = 12_000.0
"""Maximum watts of a card whose limit is unknown or higher: three times the largest announced cards of 3.6 to 4 kW."""
UNSURE = 0.5
"""Seconds by which the time between two readings may be longer than their timestamps say: a call is not waited for any
longer, and drivers update the counter every 20 to 100 ms."""
FOLLOWS = 15.0
"""Maximum seconds between two readings over which a counter is assumed to grow evenly: a slow call is made every 10 s
(`values.LONGEST_WAIT` of the NVML source), takes its own time, and its result comes with the next tick."""
DOUBTED = 3.0
"""Seconds during which an impossible reading counts as garbage although later readings agree with it; after that, the
counter has started over."""


def most_power(limit: float) -> float:
    """Return the maximum watts of a card; `limit`: its enforced power limit, NaN if unknown."""
    return OF_LIMIT * limit if 0.0 < OF_LIMIT * limit < MAX_POWER else MAX_POWER


def energy_between(before: float, after: float, seconds: float, limit: float) -> float:
    """Return the joules between two readings of a counter; NaN if a reading is missing, or the result is impossible.

    `limit` as in `most_power`. Also NaN if the counter went back.
    """
    grown = after - before
    if 0.0 <= grown <= OF_LIMIT * limit * (seconds + UNSURE) and OF_LIMIT * limit < MAX_POWER:  # as nearly always
        return grown
    return grown if 0.0 <= grown <= most_power(limit) * (seconds + UNSURE) else NAN


def is_newly_missing(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a counter is missing (NaN) in `after` that was known in `before`."""
    # NaN != NaN; no call of is_known, because it runs for each device and tick.
    return any(new != new and old == old for old, new in zip(before, after, strict=True))


class EnergyGrowth(NamedTuple):
    """Energy between two accepted readings."""

    begin: int | float
    end: int | float
    joules: float
    """NaN if the counter begins, or starts over, with the reading at `end`."""


class EnergyReadings:
    """The readings of one energy counter in the order of time."""

    __slots__ = ("_second", "_suspect", "at", "energy")

    def __init__(self, second: float = SECOND) -> None:
        """`second`: length of a second in the unit of the times that are passed in."""
        self._second = second
        self.at: int | float = 0
        """Time of the last accepted reading."""
        self.energy = NAN
        """Joules at that time; NaN before the first reading."""
        self._suspect: tuple[int | float, float] | None = None
        """Time and joules of the first impossible reading since then."""

    def accept(self, at: int | float, energy: float) -> None:
        """Accept a reading that the caller has compared with the last one."""
        self.at, self.energy, self._suspect = at, energy, None

    def add(self, at: int | float, energy: float, limit: float) -> Sequence[EnergyGrowth]:
        """Add a reading, and return the energy that is now known; `limit`: the enforced power limit in W, or NaN.

        Empty while the reading is missing or suspect. A counter that has started over gives two: an unknown one up to
        its first reading, and the energy since then.
        """
        before, begin = self.energy, self.at
        if not isfinite(energy) or (before == before and at <= begin):
            return ()
        if before != before:
            self.accept(at, energy)
            return (EnergyGrowth(at, at, NAN),)
        if energy == before:  # no card draws nothing: the counter was not updated, or stands still
            self._suspect = None
            return ()
        grown = energy_between(before, energy, (at - begin) / self._second, limit)
        if grown == grown:
            self.accept(at, energy)
            return (EnergyGrowth(begin, at, grown),)
        if self._suspect is not None:
            first, first_energy = self._suspect
            seconds = (at - first) / self._second
            grown = energy_between(first_energy, energy, seconds, limit)
            if energy == first_energy or (grown == grown and seconds < DOUBTED):
                return ()
            if grown == grown:
                self.accept(at, energy)
                return EnergyGrowth(begin, first, NAN), EnergyGrowth(first, at, grown)
        self._suspect = at, energy
        return ()
