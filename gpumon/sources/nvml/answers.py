"""The answers of one GPU so far, and which of them are not answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from operator import itemgetter
from typing import Any

import pynvml

from gpumon.common.clock import Clock
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, Availability

U32 = 0xFFFF_FFFF
U64 = 0xFFFF_FFFF_FFFF_FFFF
"""Not numbers: where it has none, the driver fills a value with ones (nvml.h, NVML_VALUE_NOT_AVAILABLE)."""
_NONE = (U32, U64, int(pynvml.NVML_PSTATE_UNKNOWN))
MOST_BYTES = 1 << 53
"""Of device memory: what is beyond, such as a difference that went below zero and wrapped, is no amount."""


def most_of(metric: str, scale: float, none: int = U32) -> int:
    """Return the largest number that is a value of a metric, in the driver's unit; `none` and more never are."""
    return int(min(none - 1, BY_NAME[metric].most / scale))


class DeviceAnswers:
    """The values of one device by metric, and why others are missing; reads fill it in."""

    __slots__ = (
        "batched",
        "clock",
        "counters_at_ns",
        "forgotten",
        "margin_at",
        "missing",
        "overdue",
        "read_at_ns",
        "reasons",
        "removed",
        "single",
        "slowdown",
        "values",
    )

    def __init__(self, clock: Clock, missing: dict[str, Availability]) -> None:
        self.clock = clock
        self.values: dict[str, float] = {}
        """Values leave it by `lack` and `clear` alone."""
        self.removed = 0
        """Counts those that have left: as long as it and their number are the same, so are names and order."""
        self.missing = missing
        self.reasons = 1
        """Counts the reasons that came new."""
        self.read_at_ns = 0
        """ns, CLOCK_MONOTONIC: when the gauges were read; 0 before."""
        self.counters_at_ns = 0
        """ns, CLOCK_MONOTONIC: when the counters held their values; 0 where that is not known."""
        self.batched: Set[str] = frozenset()
        """Metrics that the last batch of fields gave."""
        self.single: set[str] = set()
        """Metrics that came from a call of their own, because the batch does not give them."""

        self.slowdown = 0
        """°C: that up to which the margin is what is left, where it is not the driver's own; 0 where it is."""
        self.margin_at = NAN
        """°C: the temperature when the driver gave a margin of its own."""
        self.overdue = ""
        """A metric that contradicts what was read since, and is to be read with the next tick."""
        self.forgotten = 0
        """Number of times that all values were forgotten: what was begun before is of a device that was gone since."""

    def give(self, metric: str, value: float) -> None:
        """The device has this value of `metric` now."""
        self.values[metric] = value
        self.missing.pop(metric, None)

    def lack(self, metric: str, why: Availability) -> None:
        """The device has no value of `metric` now."""
        if self.values.pop(metric, None) is not None:
            self.removed += 1
        self.note(metric, why)

    def refuse(self, metric: str, number: float) -> None:
        """The driver gave this number for `metric` now, which is no value of it: it has none, or errs."""
        self.lack(metric, Availability.NOT_SUPPORTED if number in _NONE else Availability.UNRELIABLE)

    def note(self, metric: str, why: Availability) -> None:
        """Why something is missing now that is no value, or has none already."""
        if self.missing.get(metric) is not why:
            self.missing[metric] = why
            self.reasons += 1

    def clear(self) -> None:
        """Forget all values, as of a device that does not answer."""
        self.values.clear()
        self.removed += 1
        self.batched = frozenset()
        self.single.clear()
        self.counters_at_ns = 0
        self.forgotten += 1


class AnswerRow:
    """The answers of one device as a row of all metrics.

    Names and order of the answers are the same for hours: where each goes is looked up when they change.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._known = (-1, -1)
        self._pick: Callable[[list[float]], tuple[float, ...]] = tuple

    def of(self, answers: DeviceAnswers) -> list[float]:
        """Return the values in the order of the row; NaN for what is missing."""
        values = answers.values
        known = (len(values), answers.removed)
        if known != self._known:
            places = {name: place for place, name in enumerate(values)}
            self._pick = itemgetter(*(places.get(name, len(values)) for name in self._names))
            self._known = known
        return list(self._pick([*values.values(), NAN]))


Read = Callable[[Any, DeviceAnswers], int]
"""Asks one device (a handle), fills in what came or why it did not, and returns the driver's code."""
