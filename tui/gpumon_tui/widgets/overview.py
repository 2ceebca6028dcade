"""Charts and ranks of the overview, and the layout and focus of all its parts."""

from __future__ import annotations

from functools import partial

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
from gpumon_tui.render.line_plot import Columns, PlotCache
from gpumon_tui.render.overview_layout import OverviewPlan, overview_plan
from gpumon_tui.render.strip import heat_strip
from gpumon_tui.render.table import margin, section_head
from gpumon_tui.render.text_width import Line, safe
from gpumon_tui.render.time_axis import epochs_above, live_columns, observed_halves, times_below, window_text
from gpumon_tui.state import View
from gpumon_tui.widgets.gpu_table import GpuTable
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import Section
from gpumon_tui.widgets.overview_past import EpochSection, EventSection
from gpumon_tui.widgets.overview_sections import AttentionSection, ProcessSection, RunSection


class OverviewCharts(Lines):
    """Charts of the selected GPU, redrawn with each frame."""

    def __init__(self, view: View) -> None:
        super().__init__(view, id="charts")
        self._large, self._small = Columns(), Columns()
        self._plots = PlotCache()
        self._cache: Cache[list[Line]] = Cache()

    def forget(self) -> None:
        """Clear the caches."""
        self._large.clear()
        self._small.clear()
        self._plots.clear()

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
        return gpu_charts(gpu, plan, cells, self._plots)[:height]

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


class OverviewParts:
    """All parts of the overview."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.gpus = GpuTable(view)
        self.charts = OverviewCharts(view)
        self.attention = AttentionSection(view)
        self.runs = RunSection(view)
        self.processes = ProcessSection(view)
        self.ranks = RankStrips(view)
        self.epochs = EpochSection(view)
        self.events = EventSection(view)
        self.active: Section = self.gpus
        """The part that has the focus."""

    @property
    def all(self) -> tuple[Lines, ...]:
        """All parts, in the order of an `OverviewPlan`."""
        return self.gpus, self.charts, self.attention, self.runs, self.processes, self.ranks, self.epochs, self.events

    def forget(self) -> None:
        """Reset for frames of another source."""
        for part in (self.gpus, self.charts, self.runs, self.processes, self.ranks):
            part.forget()

    def activate(self, part: Section) -> None:
        """Move the focus to a part."""
        self.active = part
        for table in (self.gpus, self.runs, self.processes):
            table.active = table is part

    def plan(self, cells: int, rows: int) -> OverviewPlan:
        """Lay out the parts between header and footer, and keep the focus on a part that has rows."""
        view = self.view
        self._follow()
        for part in self.all:
            if isinstance(part, Section):
                part.left = margin(cells)
        make_plan = partial(
            overview_plan, cells, rows, len(view.samples),
            problem_rows=0 if view.samples else self.gpus.problem_rows(cells, rows),
            findings=len(view.findings.groups()), runs=len(view.ranks), processes=len(view.processes),
            ranks=self._rank_count(), has_holders=view.has_holders or not view.samples,
        )  # fmt: skip
        plan = make_plan()
        if not plan.epochs.rows:
            return plan
        return make_plan(epochs=self.epochs.many(), events=len(self.events.keys_of_rows()))  # computed only if shown

    def selectable(self, plan: OverviewPlan | None) -> list[Section]:
        """Return the visible parts that have rows and can thus take the focus."""
        areas = dict(zip(self.all, plan, strict=True)) if plan is not None else {}
        parts: tuple[Section, ...] = (self.gpus, self.runs, self.processes)
        return [part for part in parts if part in areas and areas[part].rows > 0 and self.has_rows(part)]

    def hidden_keys(self, plan: OverviewPlan | None) -> frozenset[str]:
        """Return the keys that currently have no effect, because there is no other table, no strips or charts, or no
        GPU.
        """
        if plan is None:
            return frozenset()
        hidden = {"Tab"} if len(self.selectable(plan)) < 2 else set()
        has_charts = any(area.rows > 0 for part, area in zip(self.all, plan, strict=True) if part is self.charts)
        if not (has_charts or self.gpus.has_strips):
            hidden.add("+ -")
        if not self.view.samples:
            hidden.add("g G")
        return frozenset(hidden)

    def has_rows(self, part: Section) -> bool:
        """Whether a focusable part has anything to select."""
        view = self.view
        if part is self.gpus:
            return bool(view.samples)
        return bool(view.ranks if part is self.runs else view.processes)

    def select_run_of_gpu(self) -> None:
        """Select the run of the selected GPU, if it has one."""
        sample = self.view.sample
        run = self.view.run_on(sample) if sample is not None else None
        if run is not None:
            self.view.selected_run = run.id

    def _rank_count(self) -> int:
        """Return the number of GPUs of the selected run."""
        ranks = next((candidate for candidate in self.view.ranks if candidate.first.id == self.view.selected_run), None)
        return sum(len(run.gpus) for run in ranks.all) if ranks else 0

    def _follow(self) -> None:
        """Keep a run selected, and the focus on a part that has rows."""
        view = self.view
        if view.ranks and all(ranks.first.id != view.selected_run for ranks in view.ranks):
            view.selected_run = ""
            self.select_run_of_gpu()
            view.selected_run = view.selected_run or view.ranks[0].first.id
        if view.frame is not None and not self.has_rows(self.active):
            self.activate(next((part for part in (self.gpus, self.runs) if self.has_rows(part)), self.gpus))
