"""The table of values that loggers get for each epoch. They are combined over ranks and devices as in `runs show`.

Values are in base units. A name ends with the unit. If it ends with no unit, the value is a count or a share from 0 to
1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import BY_KEY
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.summary import EpochSummary

SECTION = "gpu"
"""First part of each name. Loggers group their charts by it."""
EPOCH = f"{SECTION}/epoch"
"""Name of the epoch number, for loggers that store it like a value."""


@dataclass(frozen=True, slots=True)
class EpochValue:
    """A value of an epoch that loggers get: its name, and the function that reads it."""

    name: str
    unit: Unit
    help: str
    read: Callable[[EpochSummary], float]
    """Function that returns the value of an epoch; NaN if it is missing."""
    sampled: bool = True
    """Whether the value comes from samples; it is then missing in epochs with too few samples. If false, the training
    measures the value."""


def values_of(epoch: EpochSummary) -> dict[str, float]:
    """Return the values of an epoch by name. Missing values are left out."""
    # Values of an epoch with too few samples are left out, because a chart could not show that they cover only part of
    # the epoch.
    is_sampled = epoch.sampled_share >= SAMPLED
    values = {value.name: value.read(epoch) for value in EPOCH_VALUES if is_sampled or not value.sampled}
    return {name: value for name, value in values.items() if is_known(value)}


def _value(
    name: str, key: str, read: Callable[[EpochSummary], float] | None = None, *, sampled: bool = True
) -> EpochValue:  # fmt: skip
    """Return the value of the epoch column `key`.

    `name`: name of the value in loggers, without section and unit. `read`: function that reads the value from an epoch;
    by default, the number in the column.
    """
    column = BY_KEY[key]
    if column.unit is None:
        raise TypeError(f"{key} is not a number")
    suffix = "" if column.unit is Unit.RATIO or name.endswith(column.unit.value) else f"_{column.unit.value}"
    return EpochValue(
        f"{SECTION}/{name}{suffix}", column.unit, column.help, read or (lambda epoch: epoch.number(key)), sampled
    )


def _live_peak(epoch: EpochSummary) -> float:
    """Return the framework's peak of live tensors if the peak was reached in this epoch; else NaN."""
    return epoch.framework_peak if epoch.live_peak.reached else NAN


EPOCH_VALUES: tuple[EpochValue, ...] = (
    _value("utilization", "utilization_mean"),
    _value("idle", "idle_share"),
    _value("wait", "wait_share", sampled=False),
    _value("throttled", "throttled_share"),
    _value("energy", "energy"),
    _value("energy_per_step", "energy_per_step"),
    _value("energy_per_sample", "energy_per_sample"),
    _value("power", "power_mean"),
    _value("memory_peak", "memory_used_peak"),
    _value("run_peak", "run_used_peak"),
    _value("reserved_peak", "run_reserved_peak"),
    _value("live_peak", "framework_peak", _live_peak, sampled=False),
    _value("temperature_peak", "temperature_peak"),
    _value("epoch", "seconds", sampled=False),
    _value("steps_per_second", "steps_per_second", sampled=False),
    _value("samples_per_second", "samples_per_second", sampled=False),
)
