"""Counters of one subject between samples: what they grew by in each cell, exactly to its border."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from operator import gt, ne, sub
from typing import NamedTuple


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

    Over a gap, or where a counter has gone back, nothing is known of when it grew.
    """

    def __init__(self, counters: int) -> None:
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
        self._closed: dict[int, Grown] = {}

    def add(self, time: float, values: Sequence[float], step: int, longest: float) -> None:
        """Take values that were true at `time` (s since 1970); a jump of more than `longest` s is a gap."""
        before = self._time
        if time <= before:
            return
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
        return self._begin == second and self._grown is None and not self._closed

    def evenly(self, second: int, times: Sequence[float], values: Sequence[Sequence[float]]) -> EvenGrowth | None:
        """Return the growth in the open second, which is `second`, and in those after it, up to the last of `values`.

        There is one of them in each second after the open one, which is whole. None where one is in another second,
        or a counter has gone back.
        """
        if not all(border < time < border + 1 for border, time in enumerate((self._time, *times), second)):
            return None
        before = zip((self._time, *times), times, strict=False)
        shares = [(border - old) / (time - old) for border, (old, time) in enumerate(before, second + 1)]
        rates, raw, length = [], [], len(times)
        for begin, first, column in zip(self._base, self._values, zip(*values, strict=True), strict=True):
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
        self._base, self._begin = self._nothing, nan
        self._values, self._time = self._nothing, nan

    def closed(self, cell: int) -> Grown:
        """The growth in a cell that is over."""
        if cell not in self._closed:
            self._close(cell, self._time, self._values)
        found = self._closed.pop(cell)
        if self._closed:
            for other in [one for one in self._closed if one < cell]:  # those in which no device answered
                del self._closed[other]
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
