"""The overview page: its parts, their layout and focus, and the actions of its keys and clicks."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size

from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.keybindings import CHART, OVERVIEW, PAGES, PROCESSES, RUNS
from gpumon_tui.render.overview_layout import Area, OverviewPlan, overview_plan
from gpumon_tui.render.table import margin
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.state import MIN_OVERVIEW_WINDOW, View
from gpumon_tui.widgets.gpu_table import GpuTable
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import Section
from gpumon_tui.widgets.overview import OverviewCharts, RankStrips
from gpumon_tui.widgets.overview_past import EpochSection, EventSection
from gpumon_tui.widgets.overview_sections import AttentionSection, ProcessSection, RunSection


class OverviewPage(TerminalPage):
    """Shows the current state. Keys act on GPUs, runs or processes; Tab selects which."""

    DEFAULT_CSS = "OverviewPage #page Lines { position: absolute; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", key_display="↵", tooltip="open it: a GPU's chart, a run, a process"),
        Binding("g,right", "subject(1)", "GPU", key_display="g G",
            tooltip="next or previous GPU (also → ←); the host follows the last"),
        Binding("y", "copy", "copy", key_display="y", tooltip="copy the row under the cursor: a GPU, a run, a process"),
        Binding("G,left", "subject(-1)"),
        Binding("plus,equals_sign", "zoom(1)", "zoom", key_display="+ -",
            tooltip="longer or shorter time window, 1 minute to 31 days"),
        Binding("minus", "zoom(-1)"),
        Binding("tab,shift+tab", "table", "table", key_display="Tab", tooltip="the next table: GPUs, runs, processes"),
    ]  # fmt: skip
    page_name = OVERVIEW

    def __init__(self, view: View) -> None:
        super().__init__(view)
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
        self._plan: OverviewPlan | None = None

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        """All parts, in the order of an `OverviewPlan`."""
        return self.gpus, self.charts, self.attention, self.runs, self.processes, self.ranks, self.epochs, self.events

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys that currently have no effect: there is no other table, no strips or charts, or no GPU."""
        if self._plan is None:
            return frozenset()
        hidden = {"Tab"} if len(self._tables()) < 2 else set()
        if not (self._plan.charts.rows > 0 or self.gpus.has_strips):
            hidden.add("+ -")
        if not self.view.samples:
            hidden.add("g G")
        return frozenset(hidden)

    def forget(self) -> None:
        """Reset for frames of another source."""
        for part in (self.gpus, self.charts, self.runs, self.processes, self.ranks):
            part.forget()

    def activate(self, part: Section) -> None:
        """Move the focus to a part."""
        self.active = part
        for table in (self.gpus, self.runs, self.processes):
            table.active = table is part

    def _tables(self) -> list[Section]:
        """Return the visible parts that have rows and can thus take the focus."""
        plan = self._plan
        if plan is None:
            return []
        parts = ((self.gpus, plan.gpus), (self.runs, plan.runs), (self.processes, plan.processes))
        return [part for part, area in parts if area.rows > 0 and self.has_rows(part)]

    def has_rows(self, part: Section) -> bool:
        """Whether a focusable part has anything to select."""
        view = self.view
        if part is self.gpus:
            return bool(view.samples)
        return bool(view.ranks if part is self.runs else view.processes)

    def action_table(self) -> None:
        """Move the focus of the keys to the next part on screen."""
        if tables := self._tables():
            index = tables.index(self.active) + 1 if self.active in tables else 0
            table = tables[index % len(tables)]
            self.activate(table)
            if table is self.processes and table.selected not in table.keys_of_rows():
                table.move(1)  # makes the new focus visible

    @property
    def page_rows(self) -> int:
        return self.active.page

    def action_move(self, step: int) -> None:
        """Move the cursor of the focused part."""
        self.active.move(step)
        if self.active is self.gpus:
            self._select_run_of_gpu()

    def action_zoom(self, step: int) -> None:
        """Show a shorter or longer window in all parts."""
        if step < 0 and self.view.overview_window == MIN_OVERVIEW_WINDOW:
            self.view.show_message("this is the shortest window here: the chart page has shorter ones")
        else:
            self.view.zoom(step, MIN_OVERVIEW_WINDOW)
        self.post_message(self.Changed())

    def action_open(self) -> None:
        """Open the GPU, run or process under the cursor on its own page."""
        name = {self.gpus: CHART, self.runs: RUNS, self.processes: PROCESSES}.get(self.active)
        if name:
            return_target = ReturnTarget(OVERVIEW) if name == CHART else None
            self.post_message(self.OpenRequested(PAGES.index(name) + 1, return_target, opens=True))

    def action_copy(self) -> None:
        """Copy the GPU, run or process under the cursor to the terminal's clipboard."""
        self.copy(self.active.row_text())

    def on_section_chosen(self, message: Section.Chosen) -> None:
        """Handle a click in a table; a finding opens, as does the row under the cursor."""
        message.stop()
        section = message.section
        if (message.opens or section is self.attention) and section.opens[0]:
            self.post_message(self.KeyClicked(section.opens[0]))
            return
        if message.is_again:
            self.action_open()
            return
        if section is self.gpus:
            self._select_run_of_gpu()
        if section in (self.gpus, self.runs, self.processes):
            self.activate(section)
        self.post_message(self.Changed())

    @property
    def is_laid_out(self) -> bool:
        """Whether every part has its final size and is drawn at that size."""
        areas = zip(self.line_widgets, self._plan or (), strict=False)
        return super().is_laid_out and all(
            part.drawn_size == (area.cells, area.rows) for part, area in areas if area.rows > 0
        )

    def lay_out(self, size: Size) -> None:
        """Lay out the parts; nothing moves while the plan stays the same."""
        plan = self.plan(*size)
        if plan == self._plan:
            return
        self._plan = plan
        for part, area in zip(self.line_widgets, plan, strict=True):
            self._put(part, area)

    @staticmethod
    def _put(part: Lines, area: Area) -> None:
        part.display = area.rows > 0
        part.styles.offset = Offset(area.x, area.y)
        part.styles.width, part.styles.height = area.cells, area.rows

    def plan(self, cells: int, rows: int) -> OverviewPlan:
        """Lay out the parts between header and footer, and keep the focus on a part that has rows."""
        view = self.view
        self._follow()
        for part in self.line_widgets:
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

    def _select_run_of_gpu(self) -> None:
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
            self._select_run_of_gpu()
            view.selected_run = view.selected_run or view.ranks[0].first.id
        if view.frame is not None and not self.has_rows(self.active):
            self.activate(next((part for part in (self.gpus, self.runs) if self.has_rows(part)), self.gpus))
