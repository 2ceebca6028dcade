"""Severity of a value, by the thresholds of the metric table."""

from __future__ import annotations

from gpumon.model.metrics import Metric

FINE, WARN, CRITICAL = range(3)


def level(metric: Metric, value: float, limit: float = float("nan")) -> int:
    """`FINE`, `WARN` or `CRITICAL`; a missing value, or one without its limit, is fine."""
    if metric.limit:
        value = value / limit if limit > 0 else float("nan")
    if value >= metric.critical:
        return CRITICAL
    return WARN if value >= metric.warn else FINE
