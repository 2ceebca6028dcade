"""State of the chart page: metric, preset, overlay, layout, cursor, and the time grid shared by all charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import floor, isfinite, nan
from statistics import fmean
from typing import NamedTuple, TypeVar

from gpumon.common.numbers import is_known
from gpumon.model.frame import RunState
from gpumon.model.metrics import BY_NAME, GPU_INDEX, METRICS, Kind, Metric, Scope, Unit
from gpumon.model.panels import PANELS
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.counters import rates_between
from gpumon.storage.history.query import HOST
from gpumon.storage.history.recent import DEFAULT_METRICS
from gpumon_tui.cache import Cache
from gpumon_tui.freshness import NOW
from gpumon_tui.render.axis import ValueAxis, value_axis
from gpumon_tui.render.gpu_status import without_outdated
from gpumon_tui.render.line_plot import Columns, LimitLine, PlotCurve, at_column
from gpumon_tui.render.time_axis import live_columns, past_columns
from gpumon_tui.screens.chart.layouts import (
    LAYOUTS,
    MAX_SMALL_CHARTS,
    OVERLAY_ROLES,
    PRESETS,
    UTILIZATION,
    ChartLayout,
    ChartPlan,
    ChartPreset,
    chart_plan,
    role_of,
)
from gpumon_tui.state import View

SMALL_OF_HOST = ("host.cpu_utilization", "host.memory_used", "host.disk_read", "host.network_received")
"""Small charts of the host in display order; those without room are left out."""
METRIC, PRESET, OVERLAY, LAYOUT = "chart metric", "chart preset", "chart overlay", "chart layout"
"""Names of the stored preferences."""
FAST_REDRAW, SLOW_REDRAW = 10.0, 60.0
"""Seconds between redraws of the incomplete last column if columns are longer than `FAST_REDRAW`; `SLOW_REDRAW`
applies from `SLOW_FROM` seconds per column.
"""
SLOW_FROM = 600.0
_PANEL_ORDER = {panel.metric.name: place for place, panel in enumerate(PANELS)}


class Overlay(Enum):
    """Lines of other GPUs in the large chart."""

    PEERS = "mean of the run's other GPUs"
    EACH = "each GPU"
    NONE = "none"


RATE_COUNTERS = tuple(
    one.name for one in METRICS if one.kind is Kind.COUNTER and one.name in GPU_INDEX.keys() - DEFAULT_METRICS
)
"""Counters that the history does not keep by default; their current value is the rate between the last two frames."""


class ReadOut(NamedTuple):
    """Minimum, mean and maximum of a column, or the current values."""

    low: float
    mean: float
    high: float


UNKNOWN = ReadOut(nan, nan, nan)


Named = TypeVar("Named", ChartPreset, ChartLayout)


def _by_name(items: Sequence[Named], name: str) -> Named:
    """Return the item with the given name, else the first."""
    return next((item for item in items if item.name == name), items[0])


def _pointwise_mean(lines: Sequence[Sequence[float]]) -> list[float]:
    """Return the pointwise mean of known values."""
    columns_of_values = [[value for value in values if is_known(value)] for values in zip(*lines, strict=True)]
    return [fmean(values) if values else nan for values in columns_of_values]


def _is_offered(metric: Metric) -> bool:
    return metric.unit is not Unit.BITS


class ChartState:
    """The user's choices on the page, and what results from them for the frame on screen."""

    def __init__(self, view: View) -> None:
        self.view = view
        stored = view.preferences.get
        self.preset = _by_name(PRESETS, stored(PRESET))
        self.layout = _by_name(LAYOUTS, stored(LAYOUT))
        self.overlay = next((mode for mode in Overlay if mode.name.lower() == stored(OVERLAY)), Overlay.PEERS)
        metric = BY_NAME.get(stored(METRIC), BY_NAME[self.preset.large])
        is_gpu_metric = metric.scope is Scope.GPU and _is_offered(metric)
        self._gpu_metric = metric if is_gpu_metric else BY_NAME[self.preset.large]
        """Metric of the large chart while a GPU is the subject."""
        self.metric = self._gpu_metric
        self._is_chosen = False
        """Whether a metric was chosen in this session; a stored choice may have no sensor on this machine."""
        self.plan: ChartPlan = chart_plan(80, 22, 0)
        self.grid = Grid(0, 1.0, 1)
        self._size = 80, 22
        self._columns = Columns()
        self._rates: Cache[Mapping[str, Mapping[str, float]]] = Cache()
        self._smalls: Cache[list[Metric]] = Cache()
        self._readouts: Cache[Mapping[str, Mapping[str, ReadOut]]] = Cache()

    def forget(self) -> None:
        """Reset for frames of another source."""
        self._columns.clear()
        self.metric = self._gpu_metric

    def lay_out(self, width: int, height: int) -> None:
        """Update the layout for the page size, and the grid for window and time."""
        view = self.view
        self._size = width, height
        if self.metric.scope is not (Scope.GPU if view.subject != HOST else Scope.HOST):
            self.metric = BY_NAME["host.cpu_utilization"] if view.subject == HOST else self._gpu_metric
        if not self._is_chosen and view.sample is not None and self.metric.name in view.sample.device.missing:
            self.metric = BY_NAME[UTILIZATION]
        self.plan = self._plan(self.layout)
        chart_time, cells = view.chart_time, self.plan.cells
        grid = self._grid()
        if is_known(chart_time.cursor) and not chart_time.is_past and chart_time.cursor < grid.begin:
            # Keep the cursor visible: from here on the window is fixed in the past.
            chart_time.fix(floor(chart_time.cursor / grid.step) * grid.step + (cells - 0.5) * grid.step, view.window)
            grid = self._grid()
        self.grid = grid

    def follow(self) -> None:
        """Update the grid for window and time, with an unchanged page size."""
        self.lay_out(*self._size)

    def _plan(self, layout: ChartLayout) -> ChartPlan:
        width, height = self._size
        small_count = MAX_SMALL_CHARTS if self.view.is_loading else len(self._available_smalls())
        has_legend = self.overlay is Overlay.EACH and bool(self.overlaid)
        return chart_plan(width, height, len(self.view.samples), layout, small_count, has_legend=has_legend)

    def _grid(self) -> Grid:
        view, cells = self.view, self.plan.cells
        if view.chart_time.is_past:
            return past_columns(view.window, cells, view.chart_time.end)
        return live_columns(view.window, cells, view.now)

    @property
    def interval(self) -> float:
        """Seconds between samples."""
        return self.view.interval

    @property
    def until(self) -> float:
        """End of the charts (s since 1970); for short columns, the end of the last complete column."""
        now, step = self.view.now, self.grid.step
        if step <= self.interval:
            return now + step
        interval = step if step <= FAST_REDRAW else FAST_REDRAW if step < SLOW_FROM else SLOW_REDRAW
        return min(floor(now / interval + 1e-6) * interval, self.grid.end)

    def metrics(self) -> list[Metric]:
        """Return the metrics for which the subject has values, and the one that is shown, in panel order."""
        view, subject = self.view, self.view.subject
        scope = Scope.HOST if subject == HOST else Scope.GPU
        available = [
            metric
            for metric in METRICS
            if metric.scope is scope and _is_offered(metric)
            and (metric is self.metric or view.history.has(subject, metric.name))
        ]  # fmt: skip
        return sorted(available, key=lambda metric: _PANEL_ORDER.get(metric.name, len(_PANEL_ORDER)))

    def step_metric(self, step: int) -> None:
        """Show the next or previous metric."""
        metrics = self.metrics()
        self.show(metrics[(metrics.index(self.metric) + step) % len(metrics)])

    def show(self, metric: Metric) -> None:
        """Show a metric in the large chart; a GPU metric is stored for the next session."""
        self.metric, self._is_chosen = metric, True
        if metric.scope is Scope.GPU:
            self._gpu_metric = metric
            self.view.preferences.set(METRIC, metric.name)

    def step_preset(self, step: int) -> None:
        """Show the next or previous preset of GPU metrics."""
        self.preset = PRESETS[(PRESETS.index(self.preset) + step) % len(PRESETS)]
        self.view.preferences.set(PRESET, self.preset.name)
        self._gpu_metric = BY_NAME[self.preset.large]
        if self.view.subject != HOST:
            self.show(self._gpu_metric)
        self.view.show_message(f"charts: {self.preset.name}")

    def step_layout(self) -> None:
        """Switch to the next layout that looks different at this page size."""
        plans = [(layout, self._plan(layout)) for layout in LAYOUTS]
        begin = LAYOUTS.index(self.layout) + 1
        self.layout = next((layout for layout, plan in plans[begin:] if plan != self.plan), LAYOUTS[0])
        self.view.preferences.set(LAYOUT, self.layout.name)
        self.view.show_message(f"layout: {self.layout.name}")

    def step_overlay(self) -> None:
        """Switch to the next overlay that has lines on this machine."""

        def lines() -> tuple[list[str], bool]:
            uuids = self.overlaid
            return uuids, bool(uuids) and self.overlay is Overlay.PEERS

        modes, previous = list(Overlay), lines()
        begin = modes.index(self.overlay) + 1
        for mode in (*modes[begin:], *modes[:begin]):
            self.overlay = mode
            if lines() != previous:
                break
        else:
            self.view.show_message("nothing to lay over this chart")
        self.view.preferences.set(OVERLAY, self.overlay.name.lower())

    def smalls(self) -> list[Metric]:
        """Return the metrics of the small charts: the first ones with values, except the large chart's metric."""
        return self._available_smalls()[: self.plan.small_charts]

    def _available_smalls(self) -> list[Metric]:
        view = self.view
        names = SMALL_OF_HOST if view.subject == HOST else self.preset.small

        def available() -> list[Metric]:
            return [
                BY_NAME[name] for name in names if name != self.metric.name and view.history.has(view.subject, name)
            ]

        inputs = view.subject, self.metric.name, names, self.grid.first, view.is_loading and view.history.end
        return self._smalls.get(0, inputs, available)

    @property
    def heat_metric(self) -> Metric:
        """Metric of the heat strip."""
        return self.metric if self.metric.scope is Scope.GPU else BY_NAME[UTILIZATION]

    def curves(self) -> Mapping[str, PlotCurve]:
        """Return the curves of the large and small charts, by metric."""
        return self._get(self.view.subject, [self.metric.name, *(metric.name for metric in self.smalls())])

    def curve_of(self, subject: str) -> PlotCurve:
        """Return the curve of the heat strip's metric for a GPU."""
        if subject == self.view.subject and self.metric.scope is Scope.GPU:
            return self.curves()[self.metric.name]
        return self._get(subject, [self.heat_metric.name])[self.heat_metric.name]

    def _get(self, subject: str, metrics: Sequence[str]) -> Mapping[str, PlotCurve]:
        return self._columns.get(
            self.view.history, subject, metrics, self.grid, until=self.until, interval=self.interval
        )

    def axis(self, metric: Metric, *lines: Sequence[float]) -> ValueAxis:
        """Return an axis that covers all lines of a metric."""
        largest = max((value for line in lines for value in line if isfinite(value)), default=nan)
        return value_axis(metric, largest, self.view.limit_of(metric))

    @property
    def large_axis(self) -> ValueAxis:
        """Axis of the large chart, which also covers the lines of other GPUs."""
        return self.axis(self.metric, self.curves()[self.metric.name].high, *self.overlaid_curves())

    def heat_axis(self, subjects: Sequence[str]) -> ValueAxis:
        """Return the axis for the colors of the heat strip; it also covers the chart's values if both show the same
        metric.
        """
        metric = self.heat_metric
        chart_values = [self.curves()[metric.name].high] if metric is self.metric else []
        return self.axis(metric, *chart_values, *(self.curve_of(subject).mean for subject in subjects))

    def overlaid_curves(self) -> list[Sequence[float]]:
        """Return the lines of the overlaid GPUs; the other GPUs of a run are joined to their mean."""
        means = [self.curve_of(uuid).mean for uuid in self.overlaid]
        return [_pointwise_mean(means)] if means and self.overlay is Overlay.PEERS else list(means)

    def limits(self, metric: Metric) -> list[LimitLine]:
        """Return the limit lines of a metric: hard limits and warning levels."""
        lines = []
        if is_known(limit := self.view.limit_of(metric)):
            lines.append(LimitLine(limit, "faint"))
        elif isfinite(metric.critical) and metric.unit is Unit.CELSIUS:
            lines += [LimitLine(metric.warn, "warn"), LimitLine(metric.critical, "crit")]
        return lines

    def peers(self) -> list[str]:
        """Return the UUIDs of the other GPUs of the subject's run on this machine; empty without such a run."""
        subject = self.view.subject
        present = {sample.device.uuid for sample in self.view.samples}
        for ranks in self.view.ranks:
            if ranks.state is RunState.RUNNING and subject in ranks.gpus:
                return [uuid for uuid in ranks.gpus if uuid != subject and uuid in present]
        return []

    @property
    def overlaid(self) -> list[str]:
        """UUIDs of the GPUs whose lines are drawn over the subject's."""
        if self.overlay is Overlay.PEERS:
            return self.peers() if self.metric.scope is Scope.GPU else []
        if self.overlay is Overlay.NONE or self.view.subject == HOST:
            return []
        return [sample.device.uuid for sample in self.view.samples if sample.device.uuid != self.view.subject]

    def roles(self) -> list[str]:
        """Return the roles of the overlaid lines in order; faint once all roles are used."""
        own_role = role_of(self.metric.name)
        return [role for role in OVERLAY_ROLES if role != own_role]

    def role_at(self, index: int) -> str:
        """Return the role of the overlaid line at an index."""
        if self.overlay is Overlay.PEERS:
            return "faint"
        roles = self.roles()
        return roles[index] if index < len(roles) else "faint"

    # The cursor

    @property
    def cursor(self) -> int:
        """Column of the cursor; -1 without a cursor or if it is outside the window."""
        time = self.view.chart_time.cursor
        if not is_known(time):
            return -1
        column = self.grid.at(time)
        return column if 0 <= column < self.grid.buckets else -1

    def move_cursor(self, columns: int) -> None:
        """Move the cursor, and the window if the cursor would leave it; the first step starts at the newest column."""
        view, grid = self.view, self.grid
        has_cursor = is_known(view.chart_time.cursor)
        end = grid.end if view.chart_time.is_past else min(self.until, view.now)
        column = grid.at(view.chart_time.cursor) if has_cursor else grid.at(end - grid.step / 2) + (columns < 0)
        column = min(column + columns, grid.at(view.now))
        oldest = view.history.begin
        if is_known(oldest):
            column = max(column, grid.at(oldest))
        self.point(grid.begin + (column + 0.5) * grid.step)

    def point(self, time: float) -> None:
        """Set the cursor to a time; the window moves as little as necessary."""
        view, grid = self.view, self.grid
        view.chart_time.cursor = time
        if time < grid.begin:
            view.chart_time.fix(time + (grid.buckets - 0.5) * grid.step, view.window)
        elif time >= grid.end and view.chart_time.is_past:
            view.chart_time.fix(time if time + grid.step < view.now else nan, view.window)

    @property
    def column_read(self) -> int:
        """Column being read: the cursor's, else the last one while the past is shown; -1: current values."""
        if self.cursor >= 0 or not self.view.chart_time.is_past:
            return self.cursor
        return min(self.grid.buckets - 1, max(0, self.grid.at(self.view.now)))

    @property
    def column(self) -> Grid:
        """The column being read, as a grid."""
        return Grid(self.grid.first + self.column_read, self.grid.step, 1)

    def readouts(self) -> Mapping[str, Mapping[str, ReadOut]]:
        """Return the stored values of the column being read, by subject and metric; empty for current values."""
        if self.column_read < 0:
            return {}
        view, column = self.view, self.column
        metrics = (self.metric.name, *(metric.name for metric in self.smalls()))
        others = tuple(sample.device.uuid for sample in view.samples if sample.device.uuid != view.subject)
        complete = column.end + 2 * self.interval < view.now
        heat = self.heat_metric.name

        def read() -> Mapping[str, Mapping[str, ReadOut]]:
            names_by_subject = {view.subject: metrics, **dict.fromkeys(others, (heat,))}
            return {
                subject: {
                    name: ReadOut(*values)
                    for name, values in at_column(view.history, subject, names, column, self.interval).items()
                }
                for subject, names in names_by_subject.items()
            }

        return self._readouts.get(0, (column, view.subject, metrics, others, heat, complete or view.now), read)

    @property
    def newest(self) -> str:
        """Word for the newest values: current, or the last known."""
        return NOW if self.view.freshness.edge == NOW else "last"

    def now(self, subject: str, metric: str) -> float:
        """Return the current value; for metrics charted only from stored history, the value in the frame on screen."""
        view = self.view
        if metric in RATE_COUNTERS:
            return self._rates.get(0, view.frame, self._counter_rates).get(subject, {}).get(metric, nan)
        if metric in DEFAULT_METRICS or BY_NAME[metric].kind is Kind.COUNTER:
            return view.rate(subject, metric)
        sample = next(
            (without_outdated(candidate) for candidate in view.samples if candidate.device.uuid == subject), None
        )
        return view.host(metric) if subject == HOST else sample.value(metric) if sample is not None else nan

    def _counter_rates(self) -> Mapping[str, Mapping[str, float]]:
        """Return the rates of `RATE_COUNTERS` at the frame on screen, by device."""
        newest = self.view.frame.number if self.view.frame else 0
        frames = [frame for frame in self.view.recent_frames() if frame.number <= newest]
        return rates_between(frames[-2], frames[-1], RATE_COUNTERS) if len(frames) > 1 else {}
