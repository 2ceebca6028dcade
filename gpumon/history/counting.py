"""Counters of one subject between samples: what they grew by in each cell, exactly to its border."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from math import isfinite, nan
from operator import gt, ne, sub
from typing import NamedTuple

from gpumon.energy_growth import DOUBTED, UNSURE, energy_between
from gpumon.missing import is_known


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

    Over a gap, or where a counter has gone back, nothing is known of when it grew. Where no card can have used as much
    energy, values wait: they are garbage, unless all that come agree with them.
    """

    def __init__(self, counters: int, energy: int = -1) -> None:
        """`energy`: the place of the counter of a GPU's energy, if there is one."""
        self._energy = energy
        self._doubted: list[tuple[float, Sequence[float]]] = []
        """Times and values of those that wait."""
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
        if self._energy >= 0 and time - self._time <= longest and not self._is_believed(time, values, limit):
            if not self._is_agreed(time, values, limit):
                return
            self._leave()
            waited, self._doubted = self._doubted, []
            self._time, self._values = waited[0]
            self._base, self._begin = self._values, self._time
            for at, those in waited[1:]:
                self._take(at, those, step, longest)
        elif self._doubted:
            self._doubted = []
        self._take(time, values, step, longest)

    def _is_believed(self, time: float, values: Sequence[float], limit: float) -> bool:
        """Whether a card can have used the energy since the last values; also where that is not known."""
        before, after = self._values[self._energy], values[self._energy]
        is_missing = not (is_known(before) and is_known(after))
        return is_missing or is_known(energy_between(before, after, time - self._time, limit))

    def _is_agreed(self, time: float, values: Sequence[float], limit: float) -> bool:
        """Whether these agree with those that wait, and they have waited long enough; else they wait."""
        doubted = self._doubted
        if doubted:
            begun, first = doubted[0]
            if not is_known(energy_between(first[self._energy], values[self._energy], time - begun, limit)):
                doubted.clear()
            elif time - begun >= DOUBTED:
                return True
        doubted.append((time, values))
        return False

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
        return self._begin == second and self._grown is None and not (self._closed or self._doubted)

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
            grown = map(sub, column, (self._values[self._energy], *column))
            if any(map(gt, grown, repeat(most * UNSURE))):
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

    def forget(self) -> None:
        """Take what comes as behind a gap."""
        self._leave()
        self._doubted = []
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
        if seconds == seconds:  # NaN is not itself; in place, because it is done for each device and cell
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
