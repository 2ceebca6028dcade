"""The charts of one GPU on the overview of a machine with one or two."""

from __future__ import annotations

from rich.segment import Segment

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.progress import progress
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon_tui import theme
from gpumon_tui.gpu_status import GpuLabel, holder, of_now
from gpumon_tui.memo import Memo
from gpumon_tui.pictures.columns import Columns
from gpumon_tui.pictures.picture import Picture
from gpumon_tui.renderables.gpu_charts import FEWEST_ROWS, LARGE, GpuCharts, charts_plan, gpu_charts, small_of
from gpumon_tui.renderables.kept_plot import KeptPlots
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.renderables.time_columns import live_columns
from gpumon_tui.view import View


class ChartsPicture(Picture):
    """Draws the charts of the selected GPU anew when a frame has come."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._large, self._small = Columns(), Columns()
        self._plots = KeptPlots()
        self._memo: Memo[list[Line]] = Memo()

    def forget(self) -> None:
        """Ask for everything anew."""
        self._large.forget()
        self._small.forget()
        self._plots.forget()

    def lines(self) -> list[Line]:
        view = self.view
        sample = view.sample or next(iter(view.samples), None)
        if sample is None or view.frame is None or self.size.height < FEWEST_ROWS:
            return []
        if view.filling:
            self.forget()
        shows = view.frame, sample.device.uuid, view.glance, self.size, view.filling, view.freshness.edge
        return self._memo.get(0, shows, self._draw)

    def _draw(self) -> list[Line]:
        view = self.view
        sample = view.sample or view.samples[0]
        if not view.age > 0:  # else the header says of when the values are
            sample = of_now(sample)
        uuid, interval = sample.device.uuid, view.interval
        small = small_of(sample)
        plan = charts_plan(*self.size, alone=len(view.samples) == 1, smalls=len(small))
        grid = live_columns(view.glance, plan.cells, view.now)
        fine = live_columns(view.glance, plan.small_cells, view.now)
        drawn, _ = view.epochs_drawn()
        gpu = GpuCharts(
            sample=sample,
            run=view.run_on(sample),
            large=self._large.get(view.history, uuid, LARGE, grid, until=view.now, interval=interval),
            small=self._small.get(view.history, uuid, small, fine, until=view.now, interval=interval)
            if plan.small
            else {},
            grid=grid, marks=drawn.marks, faults=drawn.faults, now=view.now, window=view.glance,
            edge=view.freshness.edge,
            sent=view.rate(uuid, "gpu.pcie_sent") if plan.small else NAN,
            fine=fine, who=self._who(sample) if len(view.samples) == 1 else [],
            is_hot=self._label(sample).is_hot, oldest=view.history.begin, interval=interval, is_read=view.has_read,
        )  # fmt: skip
        return gpu_charts(gpu, plan, self.size.width, self._plots)[: self.size.height]

    def _label(self, sample: Sample) -> GpuLabel:
        view = self.view
        status = next(one for one in view.statuses if one.sample.device.uuid == sample.device.uuid)
        return view.label(status)

    def _who(self, sample: Sample) -> Line:
        """The state in words, who has the GPU, and how far its run is: there is no row that says so."""
        view = self.view
        status = view.statuses[0]
        run = view.run_on(sample)
        label = self._label(sample)
        is_idle = status.state is GpuState.HELD and status.since is not None and status.since.seconds >= 60
        idle = status.since if is_idle else None
        since = f" {'> ' if idle.at_least else ''}{units.short_duration(idle.seconds)}" if idle is not None else ""
        who = holder(sample, run, status.processes, len(status.runs))
        line: Line = [Segment(label.word + since, label.style)]
        for text, style in (
            (", ".join(who.users), theme.PLAIN), (who.name, theme.RUN if who.is_run else theme.PLAIN),
            (who.epoch, theme.STRONG),
        ):  # fmt: skip
            line += [Segment("  "), Segment(text, style)] if text else []
        ranks = next((one for one in view.ranks if run is not None and one.first.id == run.id), None)
        left = progress(ranks, view.epochs, view.now, view.monotonic_ns).left if ranks is not None else NAN
        if is_known(left) and not view.age > 0:  # nobody knows whether it still runs
            line += [Segment(f"  {units.short_duration(left)}", theme.PLAIN), Segment(" left", theme.DIM)]
        return line
