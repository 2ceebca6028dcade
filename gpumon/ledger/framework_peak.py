"""The framework's peak of live tensors, of each epoch and phase, from a counter that only the training resets.

The counter stands at every boundary. Where it has moved since the boundary before, it was reached between the two;
where it has not, what lies between had no more. A boundary at which it was not read leaves several stretches
together, where it is unknown which one reached it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known

Place = tuple[int, str]
"""Ordinal of an epoch, and a phase."""
_MOST_PLACES = 64


class Peak(NamedTuple):
    """The most in live tensors within a stretch; NaN where it is unknown."""

    value: float = NAN
    """Bytes, over all devices of the process."""
    reached: bool = False
    """Whether it was reached in this stretch; else it is only known to be no more."""

    def joined(self, other: Peak) -> Peak:
        """The peak of two stretches together."""
        if not is_known(self.value) or other.value > self.value:
            return other
        return self._replace(reached=self.reached or other.reached) if other.value == self.value else self


class PeakCounter:
    """The counter as it was read last, and where the run has been since."""

    def __init__(self) -> None:
        self.value = NAN
        self.highest = NAN
        """Of the whole run; a training may reset the counter."""
        self.since: list[Place] = []

    def passed(self, place: Place) -> None:
        """Note that the run was here since the last reading."""
        if is_known(self.value) or not self.since:
            if place not in self.since:
                self.since = [*self.since, place][-_MOST_PLACES:]
        else:
            self.since = [place]  # the framework had not come up on a device before

    def read(self, value: float) -> Iterator[tuple[Place | int, Peak]]:
        """Take a reading: what it says of each place and epoch since the last one."""
        found = list(self.judged(value))
        self.value, self.since = value, []
        if not value <= self.highest:
            self.highest = value
        yield from found

    def judged(self, value: float) -> Iterator[tuple[Place | int, Peak]]:
        """Judge each place and epoch since the last reading by this one."""
        before = self.value if is_known(self.value) else 0.0
        moved, most = value != before, max(value, before)
        ordinals = list(dict.fromkeys(ordinal for ordinal, _ in self.since))
        for ordinal in ordinals:
            yield ordinal, Peak(value, reached=True) if moved and len(ordinals) == 1 else Peak(most)
        for place in self.since:
            yield place, Peak(value, reached=True) if moved and len(self.since) == 1 else Peak(most)

    def as_json(self) -> list[Any]:
        """For `peak_counter_of`."""
        return [self.value, self.highest, self.since]


def peak_counter_of(found: Sequence[Any]) -> PeakCounter:
    """Restore the result of `PeakCounter.as_json`."""
    counter = PeakCounter()
    counter.value, counter.highest, since = found
    counter.since = [(ordinal, phase) for ordinal, phase in since]
    return counter
