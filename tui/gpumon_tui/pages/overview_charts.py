"""The charts of one GPU on the overview of a machine with one or two."""

from __future__ import annotations

from gpumon.frame import NAN
from gpumon_tui.memo import Memo
from gpumon_tui.pages.chart.columns import Columns
from gpumon_tui.renderables.gpu_charts import FEWEST_ROWS, LARGE, SMALL, GpuCharts, charts_plan, gpu_charts
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.renderables.time_columns import live_columns
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines


class OverviewCharts(Lines):
    """Draws the charts of the selected GPU anew when a frame has come."""

    def __init__(self, view: View, *, id: str) -> None:
        super().__init__(view, id=id)
        self._large, self._small = Columns(), Columns()
        self._memo: Memo[list[Line]] = Memo()

    def forget(self) -> None:
        """Ask for everything anew."""
        self._large.forget()
        self._small.forget()

    def lines(self) -> list[Line]:
        view = self.view
        sample = view.sample or next(iter(view.samples), None)
        if sample is None or view.frame is None or self.size.height < FEWEST_ROWS:
            return []
        if view.filling:
            self.forget()
        shows = view.frame, sample.device.uuid, view.window, self.size, view.filling, view.freshness.edge
        return self._memo.get(0, shows, self._draw)

    def _draw(self) -> list[Line]:
        view = self.view
        sample = view.sample or view.samples[0]
        uuid, interval = sample.device.uuid, view.state.interval
        plan = charts_plan(*self.size)
        grid = live_columns(view.window, plan.cells, view.now)
        fine = live_columns(view.window, plan.small_cells, view.now)
        drawn, _ = view.epochs_drawn()
        gpu = GpuCharts(
            sample=sample,
            run=view.epochs.run(sample.run) if sample.run else None,
            large=self._large.get(view.history, uuid, LARGE, grid, until=view.now, interval=interval),
            small=self._small.get(view.history, uuid, SMALL, fine, until=view.now, interval=interval)
            if plan.small
            else {},
            grid=grid, marks=drawn.marks, faults=drawn.faults, now=view.now, window=view.window,
            edge=view.freshness.edge,
            sent=view.history.last(uuid, "gpu.pcie_sent") if plan.small else NAN,
        )  # fmt: skip
        return gpu_charts(gpu, plan)[: self.size.height]
