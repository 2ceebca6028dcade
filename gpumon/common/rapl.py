"""Energy of the CPU packages from RAPL, the counters of Intel and AMD processors under /sys/class/powercap.

On most kernels, only root can read the counters. A counter wraps at `max_energy_range_uj`. At full load, this takes
minutes, so counters must be read more often than that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from gpumon.common.numbers import NAN

POWERCAP = "/sys/class/powercap"
_ZONE = "intel-rapl:"
"""Prefix of the names of RAPL zones, also for AMD processors. Zones with `intel-rapl-mmio:` are not used, because they
have the same counter."""
_MICRO = 1e-6


class PackageReading(NamedTuple):
    """The sum of the energy counters of all CPU packages at one time."""

    monotonic_ns: int
    joules: float
    """Energy since the first reading; NaN if it cannot be read."""


class _Zone(NamedTuple):
    path: str
    wraps_at: int
    """The counter wraps at this number of µJ."""


class PackageEnergy:
    """Reads the energy counters of this machine's CPU packages. The first call of `read` searches for the counters."""

    def __init__(self, root: str = POWERCAP, monotonic: Callable[[], int] = time.monotonic_ns) -> None:
        self.unknown = ""
        """Reason why the energy cannot be read; empty while it can be read."""
        self._root = root
        self._monotonic = monotonic
        self._zones: list[_Zone] | None = None
        self._last: list[int] = []
        self._total = 0

    def read(self) -> PackageReading:
        """Read all counters. Never raises."""
        try:
            if self._zones is None:
                self._zones = self._find()
            counters = [_number(f"{zone.path}/energy_uj") for zone in self._zones]
        except PermissionError as error:
            self.unknown = f"only root may read {error.filename}"
        except (OSError, ValueError) as error:
            self.unknown = f"RAPL cannot be read: {getattr(error, 'strerror', None) or error}"
        else:
            if counters:
                self.unknown = ""
                return PackageReading(self._monotonic(), self._add(counters) * _MICRO)
            self.unknown = f"no CPU package was found under {self._root}"
        self._last = []
        return PackageReading(self._monotonic(), NAN)

    def _find(self) -> list[_Zone]:
        try:
            names = sorted(os.listdir(self._root))
        except FileNotFoundError:
            return []
        zones = []
        for name in names:
            path = f"{self._root}/{name}"
            # Names of zones within a package have two colons. The platform zone is not a package.
            if name.startswith(_ZONE) and name.count(":") == 1 and _text(f"{path}/name").startswith("package"):
                zones.append(_Zone(path, _number(f"{path}/max_energy_range_uj")))
        return zones

    def _add(self, counters: list[int]) -> int:
        assert self._zones is not None
        if self._last:
            for zone, before, now in zip(self._zones, self._last, counters, strict=True):
                self._total += now - before if now >= before else now - before + zone.wraps_at
        self._last = counters
        return self._total


def _number(path: str) -> int:
    return int(_text(path))


def _text(path: str) -> str:
    with open(path) as file:
        return file.read().strip()
