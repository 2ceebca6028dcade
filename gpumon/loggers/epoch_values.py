"""The values that loggers get of an epoch: one table for all of them, joined over ranks and devices as `runs show` is.

Base units; a name ends in its unit, and one without a unit is a share from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.records import USAGE_INDEX
from gpumon.storage.ledger.schema import USAGE
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


def _measured(name: str, column: str) -> EpochValue:
    """A column of the ledger's usage."""
    place = USAGE_INDEX[column]
    return EpochValue(_named(name, USAGE[place].unit), USAGE[place].unit, USAGE[place].help, lambda e: e.values[place])


def _own(name: str, unit: Unit, help: str, of: Callable[[EpochSummary], float], *, sampled: bool) -> EpochValue:
    return EpochValue(_named(name, unit), unit, help, of, sampled)


def _named(name: str, unit: Unit) -> str:
    return f"{SECTION}/{name}" if unit in (Unit.RATIO, Unit.COUNT) else f"{SECTION}/{name}_{unit.value}"


def _live_peak(epoch: EpochSummary) -> float:
    peak = epoch.live_peak
    return peak.value if peak.reached else NAN


EPOCH_VALUES: tuple[EpochValue, ...] = (
    _measured("utilization", "utilization_mean"),
    _measured("idle", "idle_share"),
    _own("wait", Unit.RATIO, "Share of the time spent waiting for data, in the phases that measure it.",
         lambda epoch: epoch.wait_share, sampled=False),
    _measured("throttled", "throttled_share"),
    _measured("energy", "energy"),
    _own("energy_per_step", Unit.JOULES, "Of the whole epoch, per training step.",
         lambda epoch: epoch.energy_per_step, sampled=True),
    _own("energy_per_sample", Unit.JOULES, "Of the whole epoch, per training sample.",
         lambda epoch: epoch.energy_per_sample, sampled=True),
    _measured("power", "power_mean"),
    _measured("memory_peak", "memory_used_peak"),
    _measured("run_peak", "run_used_peak"),
    _measured("reserved_peak", "run_reserved_peak"),
    _own("live_peak", Unit.BYTES, "Peak of live tensors, by the framework's own counter, if reached in this epoch.",
         _live_peak, sampled=False),
    _measured("temperature_peak", "temperature_peak"),
    _own("epoch", Unit.SECONDS, "Duration, by the training's own boundaries.", lambda epoch: epoch.seconds,
         sampled=False),
    _own("steps_per_second", Unit.COUNT, "Training steps per second of training time.",
         lambda epoch: epoch.steps_per_second, sampled=False),
    _own("samples_per_second", Unit.COUNT, "Training samples per second of training time, of all ranks together.",
         lambda epoch: epoch.samples_per_second, sampled=False),
)  # fmt: skip
