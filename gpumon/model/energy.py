"""Rules for energy counters, used by accounts, totals, ledger, exporter and `gpumon run`.

A counter is assumed to grow evenly between two readings. A reading counts as missing if the driver returned no number,
the same number as before, or a number that no card can have reached. The next reading then gives the energy since the
last accepted reading. If these two readings are more than `FOLLOWS` seconds apart, the energy cannot be assigned to a
time between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN

OF_LIMIT = 3.0
"""Maximum mean power of a card between two readings, in multiples of its enforced power limit. Peaks of milliseconds
reach twice the limit, but a mean hardly exceeds the limit. The rest is a margin in case the limit has just been
lowered."""
MAX_POWER = 12_000.0
"""Maximum watts of a card if its limit is missing or higher than this. Three times the power of the largest announced
cards (3.6 to 4 kW)."""
UNSURE = 0.5
"""Seconds by which the true time between two readings may exceed the difference of their timestamps. Sampling waits no
longer than this for a driver call, and drivers update the counter only every 20 to 100 ms."""
FOLLOWS = 15.0
"""A counter is assumed to grow evenly between two readings that are at most this many seconds apart. Slow driver calls
are made every 10 s (`values.LONGEST_WAIT` of the NVML source), take some time, and return their results to the next
tick."""
DOUBTED = 3.0
"""An impossible reading counts as wrong for this many seconds, even if later readings agree with it. If later readings
still agree with it afterward, the counter has started over."""


def most_power(limit: float) -> float:
    """Return the maximum plausible power of a card in W.

    `limit`: the card's enforced power limit in W; NaN if missing.
    """
    return OF_LIMIT * limit if 0.0 < OF_LIMIT * limit < MAX_POWER else MAX_POWER


def energy_between(before: float, after: float, seconds: float, limit: float) -> float:
    """Return the joules between two readings of a counter.

    NaN if a reading is missing, if the counter decreased, or if the card cannot have used so much in `seconds`.
    `limit`: enforced power limit in W; NaN if missing.
    """
    grown = after - before
    if 0.0 <= grown <= OF_LIMIT * limit * (seconds + UNSURE) and OF_LIMIT * limit < MAX_POWER:  # the usual case
        return grown
    return grown if 0.0 <= grown <= most_power(limit) * (seconds + UNSURE) else NAN


def is_newly_missing(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether any counter has a value in `before` but is missing (NaN) in `after`."""
    # NaN != NaN; no call of is_known, because this runs for each device at each tick.
    return any(new != new and old == old for old, new in zip(before, after, strict=True))


class EnergyGrowth(NamedTuple):
    """Energy between two accepted readings."""

    begin: int | float
    end: int | float
    joules: float
    """Energy in J. NaN if the reading at `end` is the first one, or if the counter started over before it."""


class EnergyReadings:
    """Computes energy from the readings of one counter. Readings must be added in chronological order."""

    __slots__ = ("_second", "_suspect", "at", "energy")

    def __init__(self, second: float = SECOND) -> None:
        """`second`: length of a second in the time unit of the readings."""
        self._second = second
        self.at: int | float = 0
        """Time of the last accepted reading."""
        self.energy = NAN
        """Reading of the counter at `at`, in J; NaN before the first reading."""
        self._suspect: tuple[int | float, float] | None = None
        """Time and joules of the first impossible reading since the last accepted reading; None if there is none."""

    def accept(self, at: int | float, energy: float) -> None:
        """Accept a reading without a check. The caller must have compared it with the last accepted reading."""
        self.at, self.energy, self._suspect = at, energy, None

    def add(self, at: int | float, energy: float, limit: float) -> Sequence[EnergyGrowth]:
        """Add a reading, and return the energy since the last accepted reading.

        `limit`: enforced power limit in W; NaN if missing. The result is empty if the reading is missing or suspect. If
        the counter has started over, the result has two items. The first has the energy NaN and ends at the first
        reading of the new count. The second has the energy since that reading.
        """
        before, begin = self.energy, self.at
        if not isfinite(energy) or (before == before and at <= begin):
            return ()
        if before != before:
            self.accept(at, energy)
            return (EnergyGrowth(at, at, NAN),)
        if energy == before:  # every card draws power, so the counter was not updated or has stopped
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
