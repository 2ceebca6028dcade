"""Stand-ins for the world outside, shared by the tests."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.clock import SECOND, Sign
from gpumon.common.driver_calls import DriverCall
from gpumon.sources.executor import AnyCall


class FakeClock:
    """A clock that moves only when it is told to."""

    def __init__(self, start: int = 1_000 * SECOND, time: int = 1_790_000_000 * SECOND) -> None:
        self.now = start
        self._offset = time - start

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def monotonic(self) -> int:
        return self.now

    def time(self) -> int:
        return self.now + self._offset

    def wait(self, stop: Sign, until: int) -> bool:
        """Sleeps no time at all: the clock jumps to `until`."""
        self.now = max(self.now, until)
        return stop.is_set()


class Inline:
    """Makes a driver's calls right where they are asked for, with no thread."""

    def run(self, calls: Sequence[AnyCall], timeout: int) -> None:
        for call in calls:
            call.execute(FakeClock(), timeout)

    def close(self) -> None:
        """There are no threads to end."""


class CostlyDriver:
    """A source of which only the costs of its driver's calls are asked."""

    def __init__(self, calls: Sequence[DriverCall]) -> None:
        self._calls = calls

    def driver_calls(self) -> Sequence[DriverCall]:
        return self._calls
