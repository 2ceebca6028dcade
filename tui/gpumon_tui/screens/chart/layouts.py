"""Short names of metrics on the chart page, and the roles of the colors of their lines."""

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
OTHERS = ("memory", "power", "temp", "run", "key", "text", "util", "dim")
"""Roles of lines that are laid over that of the subject, in order: here they tell GPUs apart."""


def role_of(metric: str) -> str:
    """Return the role of the color of a metric."""
    return ROLES.get(metric, "key")


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


WIDE, NARROW = 100, 60
"""Cells of the page from which numbers stand further from the charts, and below which they stand nearest."""
SIDE_FROM = 110
"""Cells from which the readout has a panel of its own; below it is one line under the title."""
AIRY = 34
"""Rows from which sections are apart, and the title is."""
LEGEND_FROM = 12
"""Rows from which lines of several GPUs have a legend above the chart, where no panel has it."""
AIRY_TITLE = 3
"""Rows of the title where it stands apart, at least."""
LEAST, LEAST_AIRY = 5, 8
"""Rows of the large chart before the heat strip and the small charts get any."""
SMALLS = 4
MOST_SMALL = 6
"""Rows of a small chart at most."""


class ChartPlan(NamedTuple):
    """Rows and cells of the page's parts. Everything is counted from the page's own first row."""

    left: int
    """Cells before the charts, for numbers and names."""
    cells: int
    """Of every chart: one for each column of time."""
    side: int
    """Cells of the panel at the right, with the gap before it; 0: the readout is a line."""
    title: int
    """Rows above the marks of epochs: title, readout, legend, blanks."""
    legend: int
    """Of those, the row that tells the overlaid lines apart."""
    rows: int
    """Of the large chart."""
    gap: int
    """Blank rows between sections."""
    gpus: int
    """Rows of the heat strip; 0: there is none."""
    smalls: int
    """Small charts."""
    small_rows: int
    """Of each, without the blank one above."""

    @property
    def airy(self) -> int:
        """Blank rows above the title; there is one below the last row, too."""
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
        """Rows of the charts' widget that are drawn."""
        if self.smalls:
            return self.first_small + self.smalls * (self.small_rows + 1) - 1
        return self.heat_title + 1 + self.gpus if self.gpus else 1 + self.rows + 2


def chart_plan(
    width: int, height: int, gpus: int, layout: ChartLayout = LAYOUTS[0], most: int = SMALLS,
    *, has_legend: bool = False,
) -> ChartPlan:  # fmt: skip
    """Share out a page of `width` cells and `height` rows on a machine with so many GPUs.

    `most`: small charts of which there are values. `has_legend`: the lines of several GPUs are to be told apart.
    """
    most = min(SMALLS, most)
    left = 8 if width >= WIDE else 7 if width >= NARROW else 6
    side = 0 if width < SIDE_FROM else 30 if width < 140 else 32 if width < 200 else 38 if width < 260 else 48
    cells = max(1, width - left - (side or (1 if width < WIDE else 2)))
    airy = height >= AIRY
    legend = 1 if has_legend and not side and height >= LEGEND_FROM else 0
    title = (AIRY_TITLE if airy else 1) + (0 if side else 1) + legend
    gap = 1 if airy else 0
    room = height - title - 3 - gap  # the last row is free where there is room
    least = LEAST_AIRY if airy else LEAST
    shown = min(gpus, room - least - 1 - gap) if gpus > 1 and layout.has_heat else 0
    shown = shown if shown >= 2 else 0
    room -= shown + 1 + gap if shown else 0
    smalls = max(0, min(most, (room - max(LEAST_AIRY, least)) // 3)) if layout.has_small else 0
    small_rows = min(MOST_SMALL, max(2, room // 12)) if smalls == most else 2
    room -= smalls * (small_rows + 1)
    return ChartPlan(left, cells, side, title, legend, max(1, room), gap, shown, smalls, small_rows)
