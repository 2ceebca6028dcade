"""The values of one card, with the reason for each missing value, and the energy computed from power."""

from __future__ import annotations

from gpumon.common.clock import SECOND
from gpumon.common.numbers import LARGEST, NAN, is_known
from gpumon.model.metrics import BY_NAME, ENERGY_COUNTER, FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.drm.files import KernelFile

_NAMES = tuple(metric.name for metric in GPU_METRICS)
_NOT_SUPPORTED = Availability.NOT_SUPPORTED
MOST_MEMORY = 2.0**50
"""Largest plausible memory of a card in bytes."""


class CardValues:
    """The latest values of a card by metric."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.missing: dict[str, Availability] = dict.fromkeys(FROM_DRIVERS, _NOT_SUPPORTED)

    def set(
        self, metric: str, value: float, why: Availability = _NOT_SUPPORTED, *, lowest: float = 0.0,
        highest: float = LARGEST,
    ) -> None:  # fmt: skip
        """Store a value. If it is NaN, store the reason `why`.

        A value outside of `lowest` to `highest`, or above the maximum of the metric, is wrong.
        """
        if lowest <= value <= min(BY_NAME[metric].maximum, highest):
            self.values[metric] = value
            self.missing.pop(metric, None)
        else:
            self.set_missing(metric, Availability.UNRELIABLE if is_known(value) else why)

    def set_missing(self, metric: str, why: Availability) -> None:
        """Remove the value of a metric, and store why it is missing. Also used for keys that are not metrics."""
        self.values.pop(metric, None)
        self.missing[metric] = _NOT_SUPPORTED if why is Availability.OK else why

    def clear(self, why: Availability) -> None:
        """Remove all values for the reason `why`, for example because the card sleeps."""
        for metric in [*self.values]:
            self.set_missing(metric, why)

    def read(self, metric: str, file: KernelFile | None, scale: float, *, lowest: float = 0.0) -> float:
        """Read a number from a file, store it and return it. `scale`: value of one unit; NaN is returned if missing."""
        if file is None:
            self.set_missing(metric, _NOT_SUPPORTED)
            return NAN
        self.set(metric, file.number() * scale, file.why, lowest=lowest)
        return self.values.get(metric, NAN)

    def row(self) -> list[float]:
        """Return the values in the order of the metric table; NaN if missing."""
        values = self.values
        return [values.get(name, NAN) for name in _NAMES]


_LONGEST_GAP = 15 * SECOND
"""Power is assumed to change evenly between two readings that are at most this many ns apart."""
_STUCK_AFTER = 10 * SECOND
"""A counter that stays the same for this many ns while the card draws power does not work."""


class EnergyMeter:
    """Energy of a card in J, from its counter, or else as the sum of power times time since the first reading.

    Some counters never change, and others stop. The sum continues from the last reading of a counter that stopped.
    """

    def __init__(self) -> None:
        self.is_counted = False
        """Whether the last result of `add` is from the counter."""
        self._sum = 0.0
        """Power times time since the first reading, without times in which no power was read."""
        self._at = 0
        self._power = NAN
        self._count = NAN
        self._changed_at = 0
        """Time at which the counter had its present value for the first time, and `_sum` at that time."""
        self._sum_at_change = 0.0
        self._is_stuck = False

    def add(self, monotonic_ns: int, power: float, count: float) -> float:
        """Add a reading, and return the energy; NaN if it is unknown.

        `power`: in W. `count`: energy counter in J. Each is NaN if it could not be read.
        """
        passed = monotonic_ns - self._at
        if 0 < passed <= _LONGEST_GAP and is_known(self._power) and is_known(power):
            self._sum += (self._power + power) / 2 * passed / SECOND
        self._at, self._power = monotonic_ns, power
        if is_known(count) and not self._is_stuck:
            if count != self._count:
                self._count, self._changed_at, self._sum_at_change = count, monotonic_ns, self._sum
            self._is_stuck = monotonic_ns - self._changed_at >= _STUCK_AFTER and self._sum > self._sum_at_change + 1
        self.is_counted = is_known(count) and not self._is_stuck
        if self.is_counted:
            return count
        if not is_known(power) or (is_known(self._count) and not self._is_stuck):
            return NAN  # the counter could not be read, but is expected to return
        return self._sum + (self._count - self._sum_at_change if self._is_stuck else 0.0)

    def store(self, values: CardValues, monotonic_ns: int, count: float, why: Availability) -> None:
        """Add a reading and store the energy. `why`: reason why the counter could not be read."""
        energy = self.add(monotonic_ns, values.values.get("gpu.power", NAN), count)
        values.set("gpu.energy", energy, values.missing.get("gpu.power", why))
        if self.is_counted or not is_known(energy):
            values.missing.pop(ENERGY_COUNTER, None)
        else:
            values.set_missing(ENERGY_COUNTER, why)
