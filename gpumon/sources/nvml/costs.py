"""Time that each call of the driver takes, and how seldom one is made that takes too much of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from gpumon.common.clock import SECOND, SHORTEST, Clock
from gpumon.common.driver_calls import SHARE, DriverCall

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
