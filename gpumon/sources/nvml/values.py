"""The answers of one GPU so far, and which of them are not answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from ctypes import byref, c_uint
from operator import itemgetter
from typing import Any, TypeVar

import pynvml

from gpumon.common.clock import SECOND, SHORTEST, Clock
from gpumon.common.driver_calls import SHARE, DriverCall
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.sources.nvml.library import SUCCESS, Library

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


T = TypeVar("T")

LONGEST_WAIT = 10.0
"""Seconds between two calls, however slow they are."""
_SWIFT = int(SHARE * SHORTEST * SECOND)
"""ns: a call that takes no longer has its share at any interval."""
_IN_A_ROW = 4
"""Slow calls after which one counts as slow: one that hung, or met a driver that was busy, is no reason."""


class CallCost:
    """Time that a call takes on one device. Written by the thread that reads the device, and read by any."""

    __slots__ = ("_slow", "calls", "function", "total", "usual", "wait", "worst")

    def __init__(self, function: str) -> None:
        self.function = function
        self.calls = 0
        self.total = 0
        """ns."""
        self.worst = 0
        """ns."""
        self.usual = 0
        """ns: a call that takes no longer changes nothing but `calls` and `total`."""
        self.wait = 0.0
        """Seconds from one call to the next, at least; 0 where it is swift."""
        self._slow: list[int] = []
        """Times of the last calls, in ns, of which none was swift."""

    def timed(self, clock: Clock, ask: Callable[..., T], *arguments: Any) -> T:
        """Ask, count the time that it took, and return the answer."""
        began = clock.monotonic()
        answer = ask(*arguments)
        self.add(clock.monotonic() - began)
        return answer

    def add(self, took: int) -> None:
        """Count a call that took so many ns."""
        self.calls += 1
        self.total += took
        if took <= self.usual:
            return
        if took > self.worst:
            self.worst = took
        if took > _SWIFT:
            self._slow = [*self._slow[1 - _IN_A_ROW :], took]
            self.wait = min(LONGEST_WAIT, min(self._slow) / SECOND / SHARE) if len(self._slow) == _IN_A_ROW else 0.0
        elif self._slow:
            self._slow, self.wait = [], 0.0
        self.usual = -1 if self._slow else min(self.worst, _SWIFT)


def total_of(costs: Iterable[CallCost]) -> list[CallCost]:
    """Sums of the costs of calls, by function: of devices that are asked no more, and so are slow at nothing."""
    totals: dict[str, CallCost] = {}
    for cost in costs:
        total = totals.setdefault(cost.function, CallCost(cost.function))
        total.calls += cost.calls
        total.total += cost.total
        total.worst = max(total.worst, cost.worst)
    return [*totals.values()]


def summed(costs: Iterable[CallCost], tick: float) -> list[DriverCall]:
    """The costs of several devices by function, the dearest first; `tick` is the time between two ticks, in seconds."""
    by_function: dict[str, list[CallCost]] = {}
    for cost in costs:
        if cost.calls:
            by_function.setdefault(cost.function, []).append(cost)
    calls = []
    for function, parts in by_function.items():
        number, wait = sum(part.calls for part in parts), max(part.wait for part in parts)
        calls.append(
            DriverCall(
                function=function,
                calls=number,
                mean=sum(part.total for part in parts) / number / SECOND,
                worst=max(part.worst for part in parts) / SECOND,
                every=wait if wait > tick else 0.0,
            )
        )
    return sorted(calls, key=lambda call: -call.calls * call.mean)


_WRAP = 1 << 32
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.57e9, 7: 15.2e9}
"""Bytes per second of one lane in one direction, by generation: PCI-SIG's rates less the encoding."""
_FASTEST = 16 * _LANE[6]
"""Of a link that the driver does not describe."""


class WideCounter:
    """A byte counter of which a narrow one is not believed: nothing tells how often it has started over."""

    narrow = False
    number = -1
    """Last value from the driver."""

    def total(self, handle: Any, number: int, narrow: bool, when: int) -> int | None:
        """The bytes counted, as the driver gives them; None where they are `narrow`. The rest as of `ByteCounter`."""
        return None if narrow else number


class ByteCounter:
    """One direction of one device's link, as a total that does not start over."""

    def __init__(self, library: Library) -> None:
        self._generation = library.find("nvmlDeviceGetMaxPcieLinkGeneration")
        self._width = library.find("nvmlDeviceGetMaxPcieLinkWidth")
        self._longest = 0
        self.narrow = False
        """Whether it is taken for one of 32 bits."""
        self.number = -1
        """Last value from the driver; -1 before the first."""
        self._total = 0
        self._when = 0

    def total(self, handle: Any, number: int, narrow: bool, when: int) -> int | None:
        """The bytes counted at `when` (ns), of which the driver gave `number`, in 32 bits where it is `narrow`.

        None where the counter may have started over more than once since the last time. What comes behind that lacks
        what was counted meanwhile: nobody may subtract over it.
        """
        before, self.number = self.number, number
        passed, self._when = when - self._when, when
        if number >= _WRAP:
            self.narrow = False
        elif narrow or 0 <= number < before < _WRAP:
            self.narrow = True  # nvml.h says of both fields that they may wrap, whatever their type
        if not self.narrow:
            self._total = number
            return number
        if before < 0 or passed >= (self._longest or self._find_longest(handle)):
            return None
        self._total += (number - before) % _WRAP
        return self._total

    def _find_longest(self, handle: Any) -> int:
        """The ns in which the link cannot carry what the counter holds."""
        generation, width = (self._maximum(function, handle) for function in (self._generation, self._width))
        rate = _LANE[generation] * width if generation in _LANE and 0 < width < U32 else _FASTEST
        self._longest = int(_WRAP / rate * SECOND)
        return self._longest

    @staticmethod
    def _maximum(function: Any, handle: Any) -> int:
        value = c_uint()
        return value.value if function is not None and function(handle, byref(value)) == SUCCESS else 0


EVERY_TICK = 0.0
UNSUPPORTED = 60.0
"""Seconds until a driver is asked again for what it said it does not have: a MIG mode or a reset may change that."""
SLACK = 0.25
"""Seconds that a read may come early, so that the jitter of a tick does not put it off to the next."""
_SHARE = 12
"""Of a period, the part that it may come early at most: else one of a second would be short by a quarter."""
AGAIN = 2.0 - SLACK
"""Seconds until a device is asked again for what it has answered before: that it refuses now is a fault, and passes."""
TURNS = 8


def next_due(now: float, period: float, due: float, index: int) -> float:
    """When to ask again; all in seconds, `due` is 0 before the first time.

    Devices take turns by their index, so that slow calls do not all fall on one tick.
    """
    if period == EVERY_TICK:
        return now
    turn = (TURNS - index % TURNS) / TURNS if due == 0.0 else 1.0
    return now + period * turn - min(SLACK, period / _SHARE)
