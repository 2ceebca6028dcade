"""Metric names, colors, presets and layouts of the chart page, and how its area is divided."""

from __future__ import annotations

from typing import NamedTuple

SMALL_NAMES = {
    "gpu.utilization": "Util", "gpu.memory_used": "Mem", "gpu.power": "Power", "gpu.temperature": "Temp",
    "gpu.clock_sm": "Clock", "gpu.pcie_received": "PCIe", "host.memory_used": "Mem", "host.disk_read": "Disk",
    "host.network_received": "Net", "host.cpu_utilization": "CPU", "gpu.run_allocated": "Live",
    "gpu.run_reserved": "Held", "gpu.memory_utilization": "Mem bw", "gpu.fan": "Fan", "gpu.temperature_memory": "T mem",
    "gpu.pcie_sent": "Sent", "gpu.nvlink_received": "NVLink", "gpu.nvlink_sent": "NVsent",
}  # fmt: skip
ROLES = {
    "gpu.utilization": "util", "gpu.memory_used": "memory", "gpu.power": "power", "gpu.temperature": "temp",
    "gpu.clock_sm": "dim", "host.cpu_utilization": "util", "host.memory_used": "memory",
}  # fmt: skip
OVERLAY_ROLES = ("memory", "power", "temp", "run", "key", "text", "util", "dim")
"""Color roles of overlaid lines, in order; on this page they distinguish GPUs."""


def role_of(metric: str) -> str:
    """Return the color role of a metric."""
    return ROLES.get(metric, "key")


UTILIZATION = "gpu.utilization"


class ChartPreset(NamedTuple):
    """The metric of the large chart and the metrics of the small charts below it."""

    name: str
    large: str
    small: tuple[str, ...]
    """In display order; charts without values or room are left out."""


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
    """The parts shown in addition to the large chart."""

    name: str
    has_heat: bool = True
    has_small: bool = True


LAYOUTS = (
    ChartLayout("all charts"), ChartLayout("without small charts", has_small=False),
    ChartLayout("one chart", has_heat=False, has_small=False),
)  # fmt: skip


WIDE, NARROW = 100, 60
"""Page widths: from `WIDE`, numbers are set further from the charts; below `NARROW`, they are closest."""
SIDE_FROM = 110
"""Page width from which the readout has its own panel; below, it is one line under the title."""
BLANKS_FROM = 34
"""Page height from which blank rows separate the sections and the title."""
LEGEND_FROM = 12
"""Page height from which lines of several GPUs have a legend above the chart, if there is no panel."""
MIN_TITLE_ROWS = 3
"""Minimum rows of the title when it is separated."""
MIN_ROWS, MIN_ROWS_WITH_BLANKS = 5, 8
"""Rows reserved for the large chart before the heat strip and small charts get any."""
MAX_SMALL_CHARTS = 4
MAX_SMALL_ROWS = 6
"""Maximum rows of a small chart."""


class ChartPlan(NamedTuple):
    """Rows and cells of the page's parts, counted from the first row of the page."""

    left: int
    """Cells left of the charts, for numbers and names."""
    cells: int
    """Width of every chart; one cell per column of time."""
    panel_cells: int
    """Width of the panel on the right, including the gap before it; 0: the readout is a line."""
    title: int
    """Rows above the epoch marks: title, readout, legend, blanks."""
    legend: int
    """Rows of the legend of overlaid lines, 0 or 1; included in `title`."""
    rows: int
    """Rows of the large chart."""
    gap: int
    """Blank rows between sections."""
    gpus: int
    """Rows of the heat strip; 0: there is none."""
    small_charts: int
    """Number of small charts."""
    small_rows: int
    """Rows of each small chart, without the blank row above."""

    @property
    def has_blanks(self) -> int:
        """Blank rows above the title; there is also one below the last row."""
        return 1 if self.gap else 0

    @property
    def heat_title(self) -> int:
        """Rows of the charts' widget above the heat strip's title: epochs, chart, phases, times."""
        return 1 + self.rows + 2 + self.gap

    @property
    def first_small(self) -> int:
        """Rows of the charts' widget above the first small chart."""
        return self.heat_title + (1 + self.gpus if self.gpus else -self.gap) + 1

    @property
    def bottom(self) -> int:
        """Number of rows drawn in the charts' widget."""
        if self.small_charts:
            return self.first_small + self.small_charts * (self.small_rows + 1) - 1
        return self.heat_title + 1 + self.gpus if self.gpus else 1 + self.rows + 2


def chart_plan(
    width: int, height: int, gpus: int, layout: ChartLayout = LAYOUTS[0], small_count: int = MAX_SMALL_CHARTS,
    *, has_legend: bool = False,
) -> ChartPlan:  # fmt: skip
    """Divide a page of `width` cells and `height` rows on a machine with the given number of GPUs.

    `small_count`: number of small charts that have values. `has_legend`: the lines of several GPUs need a legend.
    """
    small_count = min(MAX_SMALL_CHARTS, small_count)
    left = 8 if width >= WIDE else 7 if width >= NARROW else 6
    side = 0 if width < SIDE_FROM else 30 if width < 140 else 32 if width < 200 else 38 if width < 260 else 48
    cells = max(1, width - left - (side or (1 if width < WIDE else 2)))
    has_blanks = height >= BLANKS_FROM
    legend = 1 if has_legend and not side and height >= LEGEND_FROM else 0
    title = (MIN_TITLE_ROWS if has_blanks else 1) + (0 if side else 1) + legend
    gap = 1 if has_blanks else 0
    room = height - title - 3 - gap  # the last row stays blank if there is room
    min_rows = MIN_ROWS_WITH_BLANKS if has_blanks else MIN_ROWS
    gpu_rows = min(gpus, room - min_rows - 1 - gap) if gpus > 1 and layout.has_heat else 0
    gpu_rows = gpu_rows if gpu_rows >= 2 else 0
    room -= gpu_rows + 1 + gap if gpu_rows else 0
    smalls = max(0, min(small_count, (room - max(MIN_ROWS_WITH_BLANKS, min_rows)) // 3)) if layout.has_small else 0
    small_rows = min(MAX_SMALL_ROWS, max(2, room // 12)) if smalls == small_count else 2
    room -= smalls * (small_rows + 1)
    return ChartPlan(left, cells, side, title, legend, max(1, room), gap, gpu_rows, smalls, small_rows)
