"""Values of one GPU with reasons for missing values, durations of driver calls, byte counters, and periods of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from ctypes import byref, c_uint
from typing import Any, TypeVar

import pynvml

from gpumon.common.clock import SECOND, SHORTEST, Clock
from gpumon.common.driver_calls import SHARE, DriverCall
from gpumon.common.numbers import NAN
from gpumon.model.metrics import BY_NAME, GPU_METRICS, Availability
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.return_codes import SUCCESS

U32 = 0xFFFF_FFFF
U64 = 0xFFFF_FFFF_FFFF_FFFF
"""Values that mean "not available". The driver sets all bits to 1 (NVML_VALUE_NOT_AVAILABLE in nvml.h)."""
_NOT_AVAILABLE = (U32, U64, int(pynvml.NVML_PSTATE_UNKNOWN))
_NAMES = tuple(metric.name for metric in GPU_METRICS)
MAX_BYTES = 1 << 53
"""Maximum bytes of device memory. A larger number is an error, such as a negative difference that wrapped."""


def largest_raw_value(metric: str, scale: float, invalid: int = U32) -> int:
    """Return the largest valid value of a metric, in the driver's unit.

    `invalid`: this number and larger numbers are never valid.
    """
    return int(min(invalid - 1, BY_NAME[metric].maximum / scale))


class DeviceValues:
    """The latest values of one device by metric, and the reasons for missing values.

    It is filled in by the functions that make driver calls.
    """

    def __init__(self, clock: Clock, missing: dict[str, Availability]) -> None:
        self.clock = clock
        self.values: dict[str, float] = {}
        """Values by metric."""
        self.missing = missing
        self.read_at_ns = 0
        """Time at which the gauges were read (ns, CLOCK_MONOTONIC); 0 before the first read."""
        self.counters_at_ns = 0
        """Time at which the counters were read (ns, CLOCK_MONOTONIC); 0 if it is the same as the gauges' time."""
        self.batched: Set[str] = frozenset()
        """Metrics that the last batch of fields returned."""
        self.single: set[str] = set()
        """Metrics that a fallback call has read because the batch does not return them."""

        self.slowdown = 0
        """Slowdown threshold from which the margin is computed, in °C; 0 if the margin is the driver's own value."""
        self.margin_temperature = NAN
        """Temperature in °C at the time when the driver last returned its own margin."""
        self.overdue = ""
        """Metric that must be read again at the next tick because a newer value contradicts it; empty if there is
        none."""
        self.generation = 0
        """Number of calls of `clear`. If it has changed, the device was gone in the meantime, and earlier counter
        values must not be used."""

    def set(self, metric: str, value: float) -> None:
        self.values[metric] = value
        self.missing.pop(metric, None)

    def set_missing(self, metric: str, why: Availability) -> None:
        """Remove the value of a metric, and store why it is missing."""
        self.values.pop(metric, None)
        self.set_reason(metric, why)

    def reject(self, metric: str, number: float) -> None:
        """Remove the value of a metric.

        `number`: the number that the driver returned. It means "no value" or is invalid.
        """
        self.set_missing(metric, Availability.NOT_SUPPORTED if number in _NOT_AVAILABLE else Availability.UNRELIABLE)

    def set_reason(self, metric: str, why: Availability) -> None:
        """Store why a metric is missing that has no value. Also used for other data, such as the list of processes."""
        self.missing[metric] = why

    def clear(self) -> None:
        """Remove all values. Called when the device does not answer."""
        self.values.clear()
        self.batched = frozenset()
        self.single.clear()
        self.counters_at_ns = 0
        self.generation += 1

    def row(self) -> list[float]:
        """Return the values in the order of the metric table; NaN if missing."""
        return [self.values.get(name, NAN) for name in _NAMES]


Read = Callable[[Any, DeviceValues], int]
"""Function that makes a driver call for a handle, stores the values or why they are missing, and returns the NVML
code."""


T = TypeVar("T")

LONGEST_WAIT = 10.0
"""Maximum pause between two calls in seconds, even if the calls are very slow."""
_QUICK = int(SHARE * SHORTEST * SECOND)
"""Calls that take at most this many ns stay within `SHARE` of the time at any sampling interval."""
_IN_A_ROW = 4
"""A function counts as slow after this number of consecutive slow calls. A busy driver may be the cause of fewer slow
calls."""


class CallCost:
    """Durations of the calls of a driver function for one device.

    Written by the thread that reads the device. May be read from any thread.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self.calls = 0
        self.total = 0
        """Total duration of all calls, in ns."""
        self.worst = 0
        """Duration of the longest call, in ns."""
        self.wait = 0.0
        """Minimum pause between two calls in seconds; 0 for a fast function."""
        self._slow: list[int] = []
        """Durations (ns) of the most recent consecutive slow calls."""

    def measure(self, clock: Clock, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, record its duration, and return its result."""
        begin = clock.monotonic()
        result = function(*arguments)
        self.add(clock.monotonic() - begin)
        return result

    def add(self, duration: int) -> None:
        """Record a call that took `duration` ns."""
        self.calls += 1
        self.total += duration
        self.worst = max(self.worst, duration)
        if duration > _QUICK:
            self._slow = [*self._slow[1 - _IN_A_ROW :], duration]
            self.wait = min(LONGEST_WAIT, min(self._slow) / SECOND / SHARE) if len(self._slow) == _IN_A_ROW else 0.0
        elif self._slow:
            self._slow, self.wait = [], 0.0


def sum_costs(costs: Iterable[CallCost]) -> list[CallCost]:
    """Sum the costs of removed devices by function.

    Removed devices are no longer read, so no function counts as slow.
    """
    totals: dict[str, CallCost] = {}
    for cost in costs:
        total = totals.setdefault(cost.function, CallCost(cost.function))
        total.calls += cost.calls
        total.total += cost.total
        total.worst = max(total.worst, cost.worst)
    return [*totals.values()]


def sum_calls(costs: Iterable[CallCost], tick: float) -> list[DriverCall]:
    """Sum the costs of all devices by function, most expensive first. `tick`: seconds between ticks."""
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
"""Bytes per second of one PCIe lane in one direction, by generation. These are PCI-SIG's rates minus the encoding
overhead."""
_FASTEST = 16 * _LANE[6]
"""Assumed speed of a link whose generation and width cannot be read, in bytes per second."""


class ByteCounter:
    """The bytes of one direction of a PCIe link, as a total that does not wrap."""

    def __init__(self, library: Library) -> None:
        self._generation = library.find("nvmlDeviceGetMaxPcieLinkGeneration")
        self._width = library.find("nvmlDeviceGetMaxPcieLinkWidth")
        self._wrap_time = 0
        self._is_narrow = False
        """Whether the counter is assumed to have 32 bits."""
        self._number = -1
        """Last value from the driver; -1 before the first."""
        self._total = 0
        self._when = 0

    def total(self, handle: Any, number: int, narrow: bool, when: int) -> int | None:
        """Return the total bytes at `when` (ns). `number`: the driver's value. `narrow`: whether the value has 32 bits.

        None if the counter may have wrapped more than once since the last call. Later totals do not include the bytes
        of this gap, so differences across the gap must not be used.
        """
        before, self._number = self._number, number
        passed, self._when = when - self._when, when
        if number >= _WRAP:
            self._is_narrow = False
        elif narrow or 0 <= number < before < _WRAP:
            self._is_narrow = True  # nvml.h says that both fields may wrap, even if their type is wider
        if not self._is_narrow:
            self._total = number
            return number
        if before < 0 or passed >= (self._wrap_time or self._compute_wrap_time(handle)):
            return None
        self._total += (number - before) % _WRAP
        return self._total

    def _compute_wrap_time(self, handle: Any) -> int:
        """Return the minimum time in ns in which the link can transfer 2**32 bytes."""
        generation, width = (self._maximum(function, handle) for function in (self._generation, self._width))
        rate = _LANE[generation] * width if generation in _LANE and 0 < width < U32 else _FASTEST
        self._wrap_time = int(_WRAP / rate * SECOND)
        return self._wrap_time

    @staticmethod
    def _maximum(function: Any, handle: Any) -> int:
        value = c_uint()
        return value.value if function is not None and function(handle, byref(value)) == SUCCESS else 0


EVERY_TICK = 0.0
RETRY_UNSUPPORTED = 60.0
"""An unsupported call is tried again after this many seconds, because a change of the MIG mode or a reset may make it
work."""
SLACK = 0.25
"""A call may be made this many seconds early, so that jitter of a tick does not delay the call to the next tick."""
_MAX_EARLY = 12
"""A call may be early by at most 1/12 of its period, so that `SLACK` does not shorten a 1 s period by a quarter."""
RETRY = 2.0 - SLACK
"""A failed call that has worked before is retried after this many seconds, because the failure may be temporary."""
TURNS = 8


def next_due(now: float, period: float, due: float, index: int) -> float:
    """Return the time at which to make a call next, in seconds.

    `due`: time at which it was due, 0 before the first call.

    `index`: index of the device. The first period depends on it, so that slow calls for several devices are made at
    different ticks.
    """
    if period == EVERY_TICK:
        return now
    turn = (TURNS - index % TURNS) / TURNS if due == 0.0 else 1.0
    return now + period * turn - min(SLACK, period / _MAX_EARLY)
