"""`EnergyMeter` divides the growth of a GPU's energy counter between spans of time.

A counter is not read at every tick. If the driver call is slow, the counter is read less often, and its value arrives
in a later tick. So the energy of a span can be determined only when a reading from the end of the span or later has
arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Generic, TypeVar

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model.energy import EnergyReadings

Part = TypeVar("Part")
Book = Callable[[Part, float, float], object]
"""Function that is called with a part, and with the seconds and joules to add to this part. See `EnergyMeter` for
parts."""


@dataclass(slots=True)
class _Span(Generic[Part]):
    """A span of time whose energy has not been determined yet. Times are in ns, CLOCK_MONOTONIC."""

    part: Part
    begin_ns: int
    end_ns: int
    power: float
    """Mean power in W; NaN if not available. If no counter reading arrives, the energy is computed from the mean
    power."""


class EnergyMeter(Generic[Part]):
    """Spans of time whose energy has not been determined yet.

    When it has been determined, `book` is called for the span.

    Each span has a part, which is an object that identifies what the energy of the span counts for. Consecutive spans
    with equal parts are merged.
    """

    __slots__ = ("_book", "_readings", "_spans", "at_ns")

    def __init__(self, book: Book[Part]) -> None:
        self._book = book
        self._readings = EnergyReadings()
        self.at_ns = 0
        """Time of the last accepted reading (ns, CLOCK_MONOTONIC), at most the time of the reading's tick; 0 before the
        first."""
        self._spans: list[_Span[Part]] = []
        """Spans after `at_ns` whose energy has not been determined yet, in chronological order."""

    def replace_parts(self, replace: Callable[[Part], Part]) -> None:
        """Replace the part of each waiting span by the result of `replace`."""
        for span in self._spans:
            span.part = replace(span.part)

    def add_span(self, part: Part, begin_ns: int, end_ns: int, power: float) -> None:
        """Add the next span, from `begin_ns` to `end_ns` (ns, CLOCK_MONOTONIC). Its energy counts for `part`.

        `power`: mean power in W, from which the energy is computed if no reading arrives.
        """
        spans = self._spans
        if spans:
            last = spans[-1]
            if last.part == part and last.end_ns == begin_ns:
                whole = end_ns - last.begin_ns
                last.power += (power - last.power) * (end_ns - begin_ns) / whole
                last.end_ns = end_ns
                return
        spans.append(_Span(part, begin_ns, end_ns, power))

    def read(self, energy: float, stamp_ns: int, now_ns: int, limit: float, follows_ns: int) -> None:
        """Add a reading of the counter.

        `energy`: value of the counter in J. `stamp_ns`: time of the reading. `now_ns`: time of the tick in which the
        reading arrived (both ns, CLOCK_MONOTONIC). `limit`: power limit in W. `follows_ns`: maximum ns between two
        readings for which the counter is used. For a longer time, the energy is computed from power.
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
        """Stop waiting for readings, for example because there is a gap.

        Spans after the last reading are dropped. If there was no reading at all, the energy of these spans is computed
        from power instead.
        """
        if self._spans and not self.at_ns:
            self._book_power(self._spans[-1].end_ns)
        self._readings = EnergyReadings()
        self._spans.clear()
        self.at_ns = 0

    def _book_joules(self, until_ns: int, joules: float) -> None:
        """Book the growth of the counter up to `until_ns`.

        The growth is distributed evenly over the time since the last reading.
        """
        length, spans = until_ns - self.at_ns, self._spans
        while spans and spans[0].begin_ns < until_ns:
            first = spans[0]
            passed = min(first.end_ns, until_ns) - first.begin_ns
            self._book(first.part, passed / SECOND, joules * passed / length)
            if first.end_ns > until_ns:
                first.begin_ns = until_ns
                return
            del spans[0]

    def _book_power(self, until_ns: int) -> None:
        """Book the spans up to `until_ns` with energy computed from power. Spans without a power value are dropped."""
        spans = self._spans
        while spans and spans[0].begin_ns < until_ns:
            first = spans[0]
            seconds = (min(first.end_ns, until_ns) - first.begin_ns) / SECOND
            if isfinite(first.power):
                self._book(first.part, seconds, first.power * seconds)
            if first.end_ns > until_ns:
                first.begin_ns = until_ns
                return
            del spans[0]
