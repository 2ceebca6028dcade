"""Large view of one GPU: its numbers, curves on one time grid, and the parts of its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

from rich.segment import Segment

from gpumon.analysis.memory import breakdown_of, known_parts
from gpumon.analysis.run_epochs import EpochMark
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Boundary, Run, Sample
from gpumon.model.metrics import BY_NAME, Availability, Metric
from gpumon.storage.history.buckets import Grid
from gpumon_tui import theme
from gpumon_tui.render.axis import ValueAxis, value_axis
from gpumon_tui.render.bars import CELL, memory_bar, numerals, tint
from gpumon_tui.render.cells import to_line
from gpumon_tui.render.gpu_status import card_head
from gpumon_tui.render.line_plot import PlotCurve, average, plot, span_text
from gpumon_tui.render.table import NAME
from gpumon_tui.render.text_width import READING_HISTORY, Line, cut, fit, length
from gpumon_tui.render.time_axis import epochs_above, times_below

UTILIZATION, MEMORY = "gpu.utilization", "gpu.memory_used"
LARGE = (UTILIZATION, MEMORY)
SMALL = ("gpu.power", "gpu.temperature", "gpu.clock_sm", "gpu.pcie_received")
TITLES = {"gpu.power": "Power", "gpu.temperature": "Temperature", "gpu.clock_sm": "Clock",
          "gpu.pcie_received": "PCIe in"}  # fmt: skip
ROLES = {UTILIZATION: "util", MEMORY: "memory", "gpu.power": "power", "gpu.temperature": "temp",
         "gpu.clock_sm": "text", "gpu.pcie_received": "key"}  # fmt: skip
FEWEST_ROWS, FEWEST_MEMORY_ROWS = 9, 11
"""Minimum rows for any chart, and for a memory chart."""
NARROW = 20
"""Cells left of a chart up to which there are no large numbers."""
NUMBERS_FROM = 100
"""Minimum width, in columns, at which large numbers are shown next to the curves."""
SIDE = 18
"""Cells for the large numbers and the statistics below them."""
SMALL_FROM = 17
"""Rows from which there are small charts."""
AROUND_SMALL = 3
"""Rows in addition to the small charts: blank, names, times."""


class ChartsPlan(NamedTuple):
    """Rows of each chart, and cells left of the large charts."""

    before: int
    cells: int
    utilization: int
    memory: int
    small: int
    """Rows of each small chart; 0 if there are none."""
    small_cells: int
    head: int
    """Rows for the user of the GPU and its facts."""


class GpuCharts(NamedTuple):
    """A GPU with its history, as input of the charts."""

    sample: Sample
    run: Run | None
    large: Mapping[str, PlotCurve]
    small: Mapping[str, PlotCurve]
    grid: Grid
    marks: Sequence[EpochMark]
    faults: Sequence[Boundary]
    now: float
    window: float
    edge: str
    sent: float
    """PCIe bytes sent per second, or NaN."""
    fine: Grid
    """Columns of the small charts."""
    holder: Line
    """State, user and run as text if no table row shows them; else empty."""
    is_hot: bool = False
    """Whether its counters show thermal throttling."""
    oldest: float = nan
    """Start of the history (s since 1970), or NaN."""
    interval: float = 1.0
    """Sampling interval in seconds."""
    is_read: bool = True
    """Whether the history is completely loaded; only then do missing values mean missing samples."""


def small_metrics(sample: Sample) -> tuple[str, ...]:
    """Return the metrics of the small charts for which the GPU has a sensor."""
    return tuple(name for name in SMALL if name not in sample.device.missing)


def charts_plan(cells: int, rows: int, *, has_no_row: bool = False, small_count: int = len(SMALL)) -> ChartsPlan:
    """Divide the rows; the utilization chart gets the most.

    `has_no_row`: no table row shows the user of the GPU. `small_count`: number of small charts side by side.
    """
    is_wide = cells >= NUMBERS_FROM
    left_cells = 27 if is_wide else 11
    inner = cells - left_cells - (2 if is_wide else 1)
    head = 2 if has_no_row and not is_wide else 1
    other_rows = 5 + head
    small = max(2, (rows - other_rows - AROUND_SMALL) // 4) if rows >= SMALL_FROM and is_wide and small_count else 0
    large_rows = rows - other_rows - (small + AROUND_SMALL if small else 0)
    memory = max(4 if large_rows >= 11 else 2, large_rows // 3) if rows >= FEWEST_MEMORY_ROWS else 0
    columns = max(1, small_count)
    small_cells = max(1, (cells - 4 - (columns - 1) * 4) // columns - 6) if columns > 1 else inner
    return ChartsPlan(left_cells, inner, large_rows - memory, memory, small, small_cells, head)


def gpu_charts(gpu: GpuCharts, plan: ChartsPlan, cells: int) -> list[Line]:
    """Return all rows of the charts."""
    sample, left_cells = gpu.sample, plan.before
    is_wide = left_cells > NARROW
    utilization, memory = (gpu.large[name] for name in LARGE)
    percent, used = sample.value(UTILIZATION), sample.value(MEMORY)
    total_memory = sample.value("gpu.memory_total")
    begin = max(gpu.now - gpu.window, gpu.oldest) if is_known(gpu.oldest) else gpu.now - gpu.window
    utilization_average, memory_average = (average(curve, gpu.grid, begin, gpu.now) for curve in (utilization, memory))
    span = span_text(utilization_average.seconds, gpu.window, max(gpu.interval, gpu.grid.step / 2))
    stats: list[Line] = [
        [Segment(f"{name:<12}", theme.DIM), Segment(f"{units.percent(value):>5}", theme.PLAIN)]
        for name, value in ((span, utilization_average.mean), ("lowest", utilization_average.low))
    ]
    total_text = f"of {units.gibibytes(total_memory)}" if is_known(total_memory) else ""
    peak = f"peak {units.gibibytes(memory_average.high)}" if is_known(memory_average.high) else ""
    memory_text = ", ".join(filter(None, (total_text, peak)))
    memory_line = [Segment(memory_text if len(memory_text) <= SIDE else peak, theme.DIM)]
    side = (
        _side_lines(units.rounded(percent * 100), "%", "util", stats, plan.utilization),
        _side_lines(units.gibibytes(used), "GiB", "memory", [memory_line], plan.memory),
    )
    title: Line = [Segment("Utilization" if is_wide else "Util", NAME)]
    right_line: Line = []
    if not is_wide:
        title = [*title, Segment(f"{units.percent(percent):>5}", theme.ink("util", bold=True))]
    if not is_wide or not plan.memory:
        right_line = [
            Segment(units.gibibytes(used), theme.ink("memory", bold=True)),
            Segment(f"{' ' if total_text else ', '}{memory_text} GiB" if memory_text else "", theme.DIM),
        ]
    margin = 2 if is_wide else 1
    lines = card_head(sample, gpu.holder, cells, margin, charted=plan.small > 0, rows=plan.head, is_hot=gpu.is_hot)
    lines.append(_chart_row(title, left_cells, epochs_above(gpu.marks, gpu.grid, gpu.faults)))
    lines += _chart(gpu, UTILIZATION, plan.utilization, side[0], plan)
    lines.append(_chart_row([], left_cells, times_below(gpu.grid, gpu.now, gpu.edge)))
    lines.append(_chart_row([Segment("Memory", NAME)], left_cells, right_line))
    if plan.memory:
        lines += _chart(gpu, MEMORY, plan.memory, side[1], plan)
    lines.append(_chart_row([], left_cells, memory_bar(sample, plan.cells)))
    lines.append(_chart_row([], left_cells, legend(sample, gpu.run, plan.cells)))
    if plan.small:
        lines.append([])
        lines += _small_charts(gpu, plan)
    return lines


def legend(sample: Sample, run: Run | None, cells: int) -> Line:
    """Return the parts of memory with color, size in GiB, and memory pressure."""
    if sample.device.is_divided:
        return [Segment(fit("divided: its instances have the memory", cells).rstrip(), theme.DIM)]
    breakdown = breakdown_of(sample)
    if breakdown is None:
        return [Segment("breakdown unknown", theme.DIM)]
    parts = known_parts(breakdown)
    is_whole = sum(part.name not in ("free", "driver") for part, _ in parts) == 1
    line: Line = []
    for is_long, gap, left_out in (
        (True, 3, ()), (False, 3, ()), (False, 2, ()), (False, 2, ("driver",)), (False, 2, ("driver", "context")),
    ):  # fmt: skip
        line = []
        for part, size in parts:
            if part.name in left_out:
                continue
            name = part.title if is_long else part.name
            line += [Segment(" " * gap)] if line else []
            line += [
                Segment(CELL, tint(part.name, part.title, is_whole=is_whole)), Segment(f" {name} ", theme.DIM),
                Segment(units.gibibytes(size), theme.PLAIN),
            ]  # fmt: skip
        if length(line) <= cells:
            break
    fragments, reserved = sample.value("gpu.run_inactive_split"), sample.value("gpu.run_reserved")
    if run is not None and reserved > 0 and is_known(fragments):
        line.append(Segment(f"   fragments {units.percent(fragments / reserved)}", theme.DIM))
        if length(line) > cells:
            line.pop()
    return cut(line, cells)


def _side_lines(text: str, unit: str, role: str, stats: Sequence[Line], rows: int) -> list[Line]:
    """Return a number, large if there are enough rows, with statistics below."""
    large = numerals(text)
    is_large = len(large) <= rows
    ink = theme.ink(role, bold=not is_large)
    lines: list[Line] = [[Segment(row, ink)] for row in (large if is_large else [text])]
    lines[-1].append(Segment(f" {unit}", theme.DIM))
    return [*lines, *stats]


def _chart(gpu: GpuCharts, name: str, rows: int, side: Sequence[Line], plan: ChartsPlan) -> list[Line]:
    curve, axis = gpu.large[name], _axis(gpu, name, gpu.large[name])
    labels = axis.labels(rows, 7) if _known(curve.mean) else {}
    lines: list[Line] = []
    for index, row in enumerate(plot(curve, axis, rows, ROLES[name])):
        left = side[index] if index < len(side) and plan.before > NARROW else []
        label = labels.get(index, "")
        lines.append(_chart_row(left, plan.before, to_line(row), label))
    if not _known(curve.mean) and lines:
        missing = gpu.sample.device.missing.get(name)
        sleep_reason = gpu.sample.reason if gpu.sample.state is Availability.ASLEEP else ""
        no_samples = "no samples in this window" if gpu.is_read else READING_HISTORY
        reason = missing.reason if missing is not None else sleep_reason or no_samples
        lines[rows // 2] = _chart_row([], plan.before, [Segment(fit(reason, plan.cells).center(plan.cells), theme.DIM)])
    return lines


def _small_charts(gpu: GpuCharts, plan: ChartsPlan) -> list[Line]:
    """Return the small charts side by side, each below its name and current value; a single one is aligned with the
    large charts.
    """
    if len(gpu.small) == 1:
        return _single_chart(gpu, *next(iter(gpu.small.items())), plan)
    cells = plan.small_cells + 6
    blocks: list[list[Line]] = []
    for name, curve in gpu.small.items():
        axis = _axis(gpu, name, curve)
        labels = axis.labels(plan.small, 5) if _known(curve.mean) else {}
        head = _head(gpu, name, axis, cells)
        rows = map(to_line, plot(curve, axis, plan.small, ROLES[name]))
        body: list[Line] = [
            [Segment(fit(labels.get(row_index, ""), 5, right=True) + " ", theme.FAINT), *row]
            for row_index, row in enumerate(rows)
        ]
        blocks.append([head, *body, [Segment(" " * 6), *times_below(gpu.fine, gpu.now, gpu.edge)]])
    lines: list[Line] = []
    for parts in zip(*blocks, strict=True):
        line: Line = [Segment("  ")]
        for part in parts:
            line += [*part, Segment(" " * (cells - length(part) + 4))]
        lines.append(line)
    return lines


def _single_chart(gpu: GpuCharts, name: str, curve: PlotCurve, plan: ChartsPlan) -> list[Line]:
    axis, left_cells = _axis(gpu, name, curve), plan.before
    labels = axis.labels(plan.small, 7) if _known(curve.mean) else {}
    head = _head(gpu, name, axis, left_cells - 4)
    rows = map(to_line, plot(curve, axis, plan.small, ROLES[name]))
    return [
        cut([Segment("  "), *head], left_cells),
        *(_chart_row([], left_cells, row, labels.get(index, "")) for index, row in enumerate(rows)),
        _chart_row([], left_cells, times_below(gpu.fine, gpu.now, gpu.edge)),
    ]


def _head(gpu: GpuCharts, name: str, axis: ValueAxis, cells: int) -> Line:
    metric = BY_NAME[name]
    newest = next(reversed(_known(gpu.small[name].mean)), nan) if name == SMALL[3] else gpu.sample.value(name)
    limit = gpu.sample.value(metric.limit) if metric.limit else nan
    unit = f" of {axis.format.text(limit)} {axis.format.unit}" if is_known(limit) else f" {axis.format.unit}"
    unit = unit if is_known(newest) else ""
    out = f", out {axis.format.text(gpu.sent)}" if name == SMALL[3] and is_known(gpu.sent) else ""
    if len(TITLES[name]) + len(axis.format.text(newest)) + len(unit) + len(out) < cells:
        unit += out
    value: Line = [Segment(axis.format.text(newest), theme.ink(ROLES[name], bold=True)), Segment(unit, theme.DIM)]
    title: Line = [Segment(TITLES[name], NAME)]
    room = cells - length(title) - length(value)
    return cut([*title, Segment(" " * max(1, room)), *value], cells)


def _axis(gpu: GpuCharts, name: str, curve: PlotCurve) -> ValueAxis:
    metric: Metric = BY_NAME[name]
    limit = gpu.sample.value(metric.limit) if metric.limit and not gpu.sample.device.is_divided else nan
    return value_axis(metric, max(_known(curve.high), default=nan), limit)


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if is_known(value)]


def _chart_row(left: Line, left_cells: int, right: Line, label: str = "") -> Line:
    """Join the left part, the axis label and the picture of a row."""
    margin = 2 if left_cells > NARROW else 1
    line: Line = [Segment(" " * margin), *cut(left, SIDE if left_cells > NARROW else left_cells - margin)]
    label_cells = left_cells - 1 - length(line)
    if label_cells < len(label):
        return cut([*line, Segment(" "), *right], left_cells) if right else line
    return [*line, Segment(label.rjust(label_cells), theme.FAINT), Segment(" "), *right]
