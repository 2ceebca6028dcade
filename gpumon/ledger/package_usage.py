"""Energy of the machine's CPU packages while a rank ran."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.rapl import PackageReading

COVERED = 0.9
"""Energy is reported where so much of the time lies between two readings; their mean power stands for the rest.

The first reading comes with the first tick that shows the run: no daemon reads the packages while nothing runs."""
_LONGEST = 60 * SECOND
"""Between two readings further apart the counters may have started over unseen."""


class PackageUsage:
    """Joules of the packages within the time of a rank."""

    def __init__(self, joules: float = 0.0, covered: float = 0.0) -> None:
        self._joules = joules
        self._covered = covered
        self.unknown = ""
        """Why they cannot be read."""

    def follow(self, before: PackageReading, now: PackageReading, begin: int, end: int) -> None:
        """Two readings in succession, of a rank that went from `begin` to `end` (ns, CLOCK_MONOTONIC)."""
        length = now.monotonic_ns - before.monotonic_ns
        inside = min(now.monotonic_ns, end) - max(before.monotonic_ns, begin)
        grown = now.joules - before.joules
        if 0 < inside <= length <= _LONGEST and is_known(grown):
            self._joules += grown * inside / length
            self._covered += inside / SECOND

    def energy(self, seconds: float) -> float:
        """Joules of a rank that ran for so many seconds; NaN where too little of that was read."""
        if not self._covered or self._covered < COVERED * seconds:
            return NAN
        return self._joules * max(1.0, seconds / self._covered)

    def reason(self, seconds: float) -> str:
        """Why the energy is unknown; empty where it is known."""
        if is_known(self.energy(seconds)):
            return ""
        return self.unknown or "no daemon read the CPU packages during most of the run"

    def as_json(self) -> list[float]:
        """For `package_usage_of`."""
        return [self._joules, self._covered]


def package_usage_of(found: Sequence[float]) -> PackageUsage:
    """Restore the result of `PackageUsage.as_json`."""
    joules, covered = found
    return PackageUsage(joules, covered)
