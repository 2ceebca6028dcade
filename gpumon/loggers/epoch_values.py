"""The values that loggers get of an epoch: one table for all of them, joined over ranks and devices as `runs show` is.

Base units; a name ends in its unit, and one without a unit is a share from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.numbers import NAN, is_known
from gpumon.model.columns import BY_KEY
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.summary import EpochSummary

SECTION = "gpu"
"""First part of each name: loggers put charts of the same first part together."""
EPOCH = f"{SECTION}/epoch"
"""Name of an epoch's number where a logger needs it beside the values."""


class EpochValue(NamedTuple):
    """A value of an epoch."""

    name: str
    unit: Unit
    help: str
    of: Callable[[EpochSummary], float]
    """NaN where it is unknown."""
    sampled: bool = True
    """Whether it is from samples: unknown of an epoch of which too few were taken. Others the training measures."""


def values_of(epoch: EpochSummary) -> dict[str, float]:
    """Return the known values of an epoch by name; what is unknown is not in it."""
    # In a chart nothing says that a point stands for a part of its epoch.
    is_sampled = epoch.sampled_share >= SAMPLED
    found = {value.name: value.of(epoch) for value in EPOCH_VALUES if is_sampled or not value.sampled}
    return {name: value for name, value in found.items() if is_known(value)}


def _value(
    name: str, column: str, of: Callable[[EpochSummary], float] | None = None, *, sampled: bool = True
) -> EpochValue:  # fmt: skip
    """A column of epochs under the name that loggers give it."""
    found = BY_KEY[column]
    if found.unit is None:
        raise TypeError(f"{column} is no number")
    suffix = "" if found.unit is Unit.RATIO or name.endswith(found.unit.value) else f"_{found.unit.value}"
    return EpochValue(
        f"{SECTION}/{name}{suffix}", found.unit, found.help, of or (lambda epoch: epoch.number(column)), sampled
    )


def _live_peak(epoch: EpochSummary) -> float:
    """The framework's own peak, if it was reached in this epoch."""
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
