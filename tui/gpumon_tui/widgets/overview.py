"""Charts and ranks of the overview."""

from __future__ import annotations

from rich.segment import Segment

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.progress import progress
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.frame import Run, RunState, Sample
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.freshness import window_texts
from gpumon_tui.render.gpu_charts import (
    FEWEST_ROWS,
    LARGE,
    UTILIZATION,
    GpuCharts,
    charts_plan,
    gpu_charts,
    small_metrics,
)
from gpumon_tui.render.gpu_status import GpuLabel, holder, without_outdated
from gpumon_tui.render.line_plot import Columns
from gpumon_tui.render.strip import heat_strip
from gpumon_tui.render.table import section_head
from gpumon_tui.render.text_width import Line, safe
from gpumon_tui.render.time_axis import epochs_above, live_columns, observed_halves, times_below, window_text
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines


class OverviewCharts(Lines):
    """Charts of the selected GPU, redrawn with each frame."""

    def __init__(self, view: View) -> None:
        super().__init__(view, id="charts")
        self._large, self._small = Columns(), Columns()
        self._cache: Cache[list[Line]] = Cache()

    def forget(self) -> None:
        """Clear the caches."""
        self._large.clear()
        self._small.clear()

    def draw(self, cells: int, height: int) -> list[Line]:
        view = self.view
        sample = view.sample or next(iter(view.samples), None)
        if sample is None or view.frame is None or height < FEWEST_ROWS:
            return []
        if view.is_loading:
            self.forget()
        time = view.overview_window, view.is_loading, view.freshness.edge
        inputs = view.frame, sample.device.uuid, time, cells, height
        return self._cache.get(0, inputs, lambda: self._draw(cells, height))

    def _draw(self, cells: int, height: int) -> list[Line]:
        view = self.view
        sample = view.sample or view.samples[0]
        if not view.age > 0:  # otherwise the header shows the time of the values
            sample = without_outdated(sample)
        uuid, interval = sample.device.uuid, view.interval
        small = small_metrics(sample)
        plan = charts_plan(cells, height, has_no_row=len(view.samples) == 1, small_count=len(small))
        grid = live_columns(view.overview_window, plan.cells, view.now)
        fine = live_columns(view.overview_window, plan.small_cells, view.now)
        marks, _ = view.chart_epochs()
        gpu = GpuCharts(
            sample=sample,
            run=view.run_on(sample),
            large=self._large.get(view.history, uuid, LARGE, grid, until=view.now, interval=interval),
            small=self._small.get(view.history, uuid, small, fine, until=view.now, interval=interval)
            if plan.small
            else {},
            grid=grid, marks=marks.marks, faults=marks.faults, now=view.now, window=view.overview_window,
            edge=view.freshness.edge,
            sent=view.rate(uuid, "gpu.pcie_sent") if plan.small else NAN,
            fine=fine, holder=self._holder_line(sample) if len(view.samples) == 1 else [],
            is_hot=self._label(sample).is_hot, oldest=view.history.begin, interval=interval,
            is_read=view.has_full_history,
        )  # fmt: skip
        return gpu_charts(gpu, plan, cells)[:height]

    def _label(self, sample: Sample) -> GpuLabel:
        view = self.view
        status = next(candidate for candidate in view.statuses if candidate.sample.device.uuid == sample.device.uuid)
        return view.label(status)

    def _holder_line(self, sample: Sample) -> Line:
        """Return the state, the user of the GPU and the run's progress, because no table row shows them here."""
        view = self.view
        status = view.statuses[0]
        run = view.run_on(sample)
        label = self._label(sample)
        is_idle = status.state is GpuState.HELD and status.since is not None and status.since.seconds >= 60
        idle = status.since if is_idle else None
        since = f" {'> ' if idle.at_least else ''}{units.short_duration(idle.seconds)}" if idle is not None else ""
        gpu_holder = holder(sample, run, status.processes, len(status.runs))
        line: Line = [Segment(label.word + since, label.style)]
        for text, style in (
            (", ".join(gpu_holder.users), theme.PLAIN),
            (gpu_holder.name, theme.RUN if gpu_holder.is_run else theme.PLAIN),
            (gpu_holder.epoch, theme.STRONG),
        ):  # fmt: skip
            line += [Segment("  "), Segment(text, style)] if text else []
        ranks = next((candidate for candidate in view.ranks if run is not None and candidate.first.id == run.id), None)
        left = progress(ranks, view.epochs, view.now, view.monotonic_ns).left if ranks is not None else NAN
        if is_known(left) and not view.age > 0:  # with outdated data it is unknown whether the run is active
            line += [Segment(f"  {units.short_duration(left)}", theme.PLAIN), Segment(" left", theme.DIM)]
        return line


LABEL_CELLS = 12
"""Cells left of the strips."""
OTHER_ROWS = 3
"""Rows in addition to the ranks: name, epochs, times."""


class RankStrips(Lines):
    """Heat strips of the GPUs of the selected run, on one time grid with its epochs."""

    def __init__(self, view: View) -> None:
        super().__init__(view, id="ranks")
        self._columns = Columns()
        self._cache: Cache[list[Line]] = Cache()

    def forget(self) -> None:
        """Clear the caches."""
        self._columns.clear()

    def draw(self, cells: int, height: int) -> list[Line]:
        view = self.view
        if view.is_loading:
            self.forget()
        time = view.overview_window, view.is_loading, view.freshness.edge
        return self._cache.get(
            0, (view.frame, view.selected_run, time, cells, height), lambda: self._draw(cells, height)
        )

    def _draw(self, cells: int, rows: int) -> list[Line]:
        view = self.view
        ranks = next((candidate for candidate in view.ranks if candidate.first.id == view.selected_run), None)
        if ranks is None or rows <= OTHER_ROWS:
            return []
        grid = live_columns(view.overview_window, cells - LABEL_CELLS - 2, view.now)
        span, edge = window_text(view.overview_window), view.freshness.edge
        detail = f"utilization by rank, {window_texts(span, edge)[0]}"
        key_hint = [Segment("2", theme.TITLE), Segment(" chart", theme.DIM)]
        head = section_head(safe(ranks.first.name), [Segment(detail, theme.DIM)], key_hint, cells, 2)
        epoch_marks = view.epochs.chart_marks([run.key for run in ranks.all])
        label_blank: Line = [Segment(" " * LABEL_CELLS)]
        lines: list[Line] = [head, label_blank + epochs_above(epoch_marks.marks, grid, epoch_marks.faults)]
        gpus = [(run, uuid) for run in ranks.all for uuid in run.gpus]
        for run, uuid in gpus[: rows - OTHER_ROWS]:
            observed = observed_halves(grid, _first(run, view.history.begin), _last(run, view.now))
            curve = self._columns.get(view.history, uuid, (UTILIZATION,), grid, until=view.now, interval=view.interval)[
                UTILIZATION
            ]
            blank = Segment(" " * (observed.start // 2))
            name = f"rank {run.rank}"
            rank_label = Segment(f"   {name:<{LABEL_CELLS - 3}}", theme.DIM)
            lines.append([rank_label, blank, *heat_strip(curve.mean[observed], is_read=view.has_full_history)])
        return [*lines, label_blank + times_below(grid, view.now, view.freshness.edge)]


def _first(run: Run, oldest: float) -> float:
    """Return the start of a rank's strip (s since 1970); earlier activity of the GPU does not belong to the run."""
    return max((time for time in (run.started, oldest) if is_known(time)), default=oldest)


def _last(run: Run, now: float) -> float:
    """Return the end of a rank's strip: for an ended run, the time of its last report."""
    return min(now, run.updated) if run.state is not RunState.RUNNING and is_known(run.updated) else now
