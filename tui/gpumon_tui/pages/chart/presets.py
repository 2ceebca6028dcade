"""Sets of metrics and layouts of the chart page that a key turns through, and that are kept for the next time."""

from __future__ import annotations

from typing import NamedTuple

UTILIZATION = "gpu.utilization"


class ChartPreset(NamedTuple):
    """A metric in the large chart, and those of the small ones below it."""

    name: str
    large: str
    small: tuple[str, ...]
    """In the order in which they have a small chart, as far as there are values and room."""


PRESETS = (
    ChartPreset("training", UTILIZATION, (
        "gpu.power", "gpu.temperature", "gpu.clock_sm", "gpu.pcie_received", "gpu.memory_used", UTILIZATION,
    )),
    ChartPreset("memory", "gpu.memory_used", (
        "gpu.run_allocated", "gpu.run_reserved", "gpu.memory_utilization", UTILIZATION, "gpu.pcie_received",
        "gpu.power",
    )),
    ChartPreset("power and heat", "gpu.power", (
        "gpu.temperature", "gpu.clock_sm", "gpu.fan", "gpu.temperature_memory", UTILIZATION, "gpu.memory_used",
    )),
    ChartPreset("traffic", "gpu.pcie_received", (
        "gpu.pcie_sent", "gpu.nvlink_received", "gpu.nvlink_sent", "gpu.memory_utilization", UTILIZATION, "gpu.power",
    )),
)  # fmt: skip


class ChartLayout(NamedTuple):
    """The parts that the page has besides the large chart."""

    name: str
    has_heat: bool = True
    has_small: bool = True


LAYOUTS = (
    ChartLayout("all charts"), ChartLayout("without small charts", has_small=False),
    ChartLayout("one chart", has_heat=False, has_small=False),
)  # fmt: skip
