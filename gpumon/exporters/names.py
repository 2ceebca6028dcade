"""The one rule from the table of metrics to names in Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.model.metrics import METRICS, Kind, Metric, Unit

PREFIX = "gpumon_"
_SUFFIXES: Mapping[Unit, str] = {
    Unit.RATIO: "_ratio",
    Unit.BYTES: "_bytes",
    Unit.WATTS: "_watts",
    Unit.JOULES: "_joules",
    Unit.CELSIUS: "_celsius",
    Unit.HERTZ: "_hertz",
    Unit.SECONDS: "_seconds",
    Unit.COUNT: "",
    Unit.BITS: "",
    Unit.BYTES_PER_SECOND: "_bytes_per_second",
}


def exported_name(metric: Metric) -> str:
    """Return the name of a metric: its own, its unit, and `_total` where it is a counter.

    >>> from gpumon.model.metrics import BY_NAME
    >>> exported_name(BY_NAME["gpu.energy"])
    'gpumon_gpu_energy_joules_total'
    """
    name = f"{PREFIX}{metric.name.replace('.', '_')}{_SUFFIXES[metric.unit]}"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


EXPORTED: Mapping[str, str] = {metric.name: exported_name(metric) for metric in METRICS}
"""Names in Prometheus by names of the table."""
