"""Rules for energy counters, used by accounts, totals, ledger, exporter and `gpumon run`.

A counter is assumed to grow evenly between two readings. A reading counts as missing if the driver returned none, the
same number as before, or a number that no card can have reached. The next reading then gives the energy since the last
accepted one. If more than `FOLLOWS` seconds are between the two, it is unknown when the energy was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN

OF_LIMIT = 3.0
"""Maximum mean power of a card between two readings, in multiples of its enforced power limit. Peaks of milliseconds
reach twice the limit, and a mean hardly exceeds it. The rest is a margin for a limit that has just been lowered."""
MAX_POWER = 12_000.0
"""Maximum watts of a card whose limit is unknown or higher: three times the largest announced cards of 3.6 to 4 kW."""
UNSURE = 0.5
"""Seconds by which the true time between two readings may exceed the difference of their timestamps. No driver call is
waited for any longer, and drivers update the counter only every 20 to 100 ms."""
FOLLOWS = 15.0
"""Maximum seconds between two readings over which a counter is assumed to grow evenly. A slow driver call is made every
10 s (`values.LONGEST_WAIT` of the NVML source), takes some time itself, and returns its result to the next tick."""
DOUBTED = 3.0
"""Seconds for which an impossible reading counts as wrong even if later readings agree with it. If they still agree
after that time, the counter has started over."""


def most_power(limit: float) -> float:
    """Return the maximum plausible power of a card in W. `limit`: its enforced power limit in W, NaN if unknown."""
    return OF_LIMIT * limit if 0.0 < OF_LIMIT * limit < MAX_POWER else MAX_POWER


def energy_between(before: float, after: float, seconds: float, limit: float) -> float:
    """Return the joules between two readings of a counter.

    NaN if a reading is missing, if the counter went back, or if the card cannot have used so much in `seconds`.
    `limit`: as for `most_power`.
    """
    grown = after - before
    if 0.0 <= grown <= OF_LIMIT * limit * (seconds + UNSURE) and OF_LIMIT * limit < MAX_POWER:  # the usual case
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
    """Energy in J; NaN if the counter begins, or starts over, with the reading at `end`."""


class EnergyReadings:
    """Computes energy from the readings of one counter, which are added in the order of time."""

    __slots__ = ("_second", "_suspect", "at", "energy")

    def __init__(self, second: float = SECOND) -> None:
        """`second`: length of a second in the time unit of the readings."""
        self._second = second
        self.at: int | float = 0
        """Time of the last accepted reading."""
        self.energy = NAN
        """Reading of the counter at `at`, in J; NaN before the first reading."""
        self._suspect: tuple[int | float, float] | None = None
        """Time and joules of the first impossible reading since the last accepted one; None if there is none."""

    def accept(self, at: int | float, energy: float) -> None:
        """Accept a reading without a check. The caller has compared it with the last one."""
        self.at, self.energy, self._suspect = at, energy, None

    def add(self, at: int | float, energy: float, limit: float) -> Sequence[EnergyGrowth]:
        """Add a reading, and return the energy since the last accepted reading.

        `limit`: enforced power limit in W, NaN if unknown. The result is empty if the reading is missing or suspect. If
        the counter has started over, the result has two items: an unknown energy up to the first reading of the new
        count, and the energy since that reading.
        """
        before, begin = self.energy, self.at
        if not isfinite(energy) or (before == before and at <= begin):
            return ()
        if before != before:
            self.accept(at, energy)
            return (EnergyGrowth(at, at, NAN),)
        if energy == before:  # every card draws power, so the counter was not updated, or has stopped
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
