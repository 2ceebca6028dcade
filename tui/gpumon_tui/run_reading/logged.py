"""The metrics that a training logged, as columns: a loss stands first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.storage.ledger.summary import EpochSummary

METRICS = 4
"""Logged metrics that get a column."""


def names(stretches: Sequence[EpochSummary]) -> list[str]:
    """Names of logged metrics, losses first: the first has its change beside it."""
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))
    return sorted(names, key=lambda name: "loss" not in name.casefold())[:METRICS]


def first_metric(metrics: Mapping[str, float]) -> str:
    """Return the name of the metric that stands for a run; empty where it logged none."""
    return next(iter(sorted(metrics, key=lambda name: "loss" not in name.casefold())), "")


def column(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the texts of a metric, with equal decimals; empty where it was not logged."""
    texts = iter(units.logged_column([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def finite_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest finite value; NaN where there is none."""
    finite = [value for value in values if isfinite(value)]
    return min(finite, default=NAN), max(finite, default=NAN)
