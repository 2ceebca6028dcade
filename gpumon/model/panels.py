"""The table of charts. Every view shows one chart for each row."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.metrics import BY_NAME, Kind, Metric, Scope, Unit


class Panel(NamedTuple):
    """A chart of one metric over time."""

    metric: Metric
    full_scale: float = float("nan")
    """Upper end of the axis if it is fixed. NaN: the metric's limit, or the maximum of the data if there is no
    limit."""

    @property
    def title(self) -> str:
        return self.metric.title

    @property
    def is_rate(self) -> bool:
        """Whether the chart shows the rate of a counter."""
        return self.metric.kind is Kind.COUNTER


def _panel(name: str, full_scale: float = float("nan")) -> Panel:
    metric = BY_NAME[name]
    return Panel(metric, 1.0 if metric.unit is Unit.RATIO else full_scale)


PANELS: tuple[Panel, ...] = (
    _panel("gpu.utilization"),
    _panel("gpu.memory_used"),
    _panel("gpu.power"),
    _panel("gpu.temperature", 100.0),
    _panel("gpu.clock_sm"),
    _panel("gpu.memory_utilization"),
    _panel("gpu.pcie_received"),
    _panel("gpu.pcie_sent"),
    _panel("gpu.nvlink_received"),
    _panel("gpu.nvlink_sent"),
    _panel("gpu.utilization_low"),
    _panel("gpu.sm_activity"),
    _panel("gpu.sm_occupancy"),
    _panel("gpu.tensor_activity"),
    _panel("gpu.dram_activity"),
    _panel("host.cpu_utilization"),
    _panel("host.memory_used"),
    _panel("host.disk_read"),
    _panel("host.network_received"),
)

GPU_PANELS = tuple(panel for panel in PANELS if panel.metric.scope is Scope.GPU)
HOST_PANELS = tuple(panel for panel in PANELS if panel.metric.scope is Scope.HOST)
