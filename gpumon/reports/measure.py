"""Numbers of epochs or runs that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.schema import USAGE
from gpumon.storage.ledger.summary import EpochSummary

T = TypeVar("T")
TITLE = {column.name: column.title for column in USAGE}


class Measure(NamedTuple, Generic[T]):
    """A number of each epoch, or of each run, that is compared."""

    name: str
    title: str
    of: Callable[[T], float]
    write: Callable[[float], str]
    in_points: bool = False
    """A ratio differs by points of percent: a share of a share would mislead."""
    write_all: Callable[[Sequence[float]], list[str]] | None = None
    """Text of several values in one unit and with one precision, where `write` chooses them by each value."""

    def texts(self, values: Sequence[float]) -> list[str]:
        """Values that stand beside each other."""
        return self.write_all(values) if self.write_all else [self.write(value) for value in values]


def usage_measure(name: str, unit: Unit, title: str = "") -> Measure[EpochSummary]:
    """A measure that is a column of `schema.USAGE`."""
    return Measure(
        name, title or TITLE[name], lambda epoch: epoch.value(name), lambda value: units.number(value, unit),
        unit is Unit.RATIO, {Unit.JOULES: units.energies, Unit.RATIO: shares}.get(unit),
    )  # fmt: skip


def shares(values: Sequence[float]) -> list[str]:
    """Ratios of several runs, as percent; with a decimal where one differs from the first by less than a point.

    Without it, `0 %` would stand beside `+0.1 points`.
    """
    first = values[0] if values else math.nan
    is_fine = any(0.0005 <= abs(value - first) < 0.01 for value in values)
    return [f"{value * 100:.1f} %" if is_fine and math.isfinite(value) else units.number(value, Unit.RATIO)
            for value in values]  # fmt: skip


def paces(values: Sequence[float]) -> list[str]:
    """Steps or samples per second of several runs: `4.00`, `11.52`."""
    decimals = units.pace_decimals(values)
    return [units.pace(value, decimals) for value in values]


def tensors_peak(epoch: EpochSummary) -> float:
    """The most in live tensors: the framework's own peak, else what was read between steps."""
    peak = epoch.live_peak.value
    return peak if is_known(peak) else epoch.value("run_allocated_peak")


def energy_per(name: str, title: str, of: Callable[[EpochSummary], float]) -> Measure[EpochSummary]:
    """A measure of joules for each step or sample."""
    return Measure(name, title, of, small_joules, write_all=small_joules_each)


def joules(value: float) -> str:
    """An energy for people."""
    return units.number(value, Unit.JOULES)


def small_joules(value: float) -> str:
    """The energy of a step or a sample: `51.1 J`."""
    return f"{units.figures(value)} J" if is_known(value) else units.MISSING


def small_joules_each(values: Sequence[float]) -> list[str]:
    """Several of these with equal decimals: `51.0 J` beside `51.1 J`."""
    texts = [units.figures(value) for value in values if is_known(value)]
    if any("e" in text for text in texts):
        return [small_joules(value) for value in values]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    return [f"{value:.{decimals}f} J" if math.isfinite(value) else small_joules(value) for value in values]


STEPS_PER_SECOND: Measure[EpochSummary] = Measure(
    "steps_per_second", "Steps per second", lambda epoch: epoch.steps_per_second, units.figures, write_all=paces
)
OF_TIME_AND_MEMORY: tuple[Measure[EpochSummary], ...] = (
    Measure(
        "wait_share", "Wait for data", lambda epoch: epoch.wait_share,
        lambda value: units.number(value, Unit.RATIO), in_points=True, write_all=shares,
    ),
    usage_measure("utilization_mean", Unit.RATIO),
    usage_measure("idle_share", Unit.RATIO),
    usage_measure("memory_used_peak", Unit.BYTES),
    Measure(
        "run_allocated_peak", TITLE["run_allocated_peak"], tensors_peak, lambda value: units.number(value, Unit.BYTES)
    ),
)  # fmt: skip
"""Measures of an epoch and of a whole run alike: shares of the time, and peaks of memory."""
