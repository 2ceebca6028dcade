"""The overview: every GPU, what needs attention, runs and processes, and the room that each gets."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import Offset, Size

from gpumon_tui.keys import CHART, OVERVIEW, PAGES, PROCESSES, RUNS
from gpumon_tui.layout import OverviewPlan, PartRoom, overview_plan
from gpumon_tui.pages.overview_charts import OverviewCharts
from gpumon_tui.pages.overview_ranks import RunHeat
from gpumon_tui.pages.page import TerminalPage
from gpumon_tui.renderables.lean_section import margin
from gpumon_tui.view import View
from gpumon_tui.widgets.gpu_table import GpuTable
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.overview_sections import AttentionSection, ProcessSection, RunSection
from gpumon_tui.widgets.section import Section


class OverviewPage(TerminalPage):
    """All there is of now. Keys go to GPUs, runs or processes; Tab goes on to the next of them."""

    DEFAULT_CSS = "OverviewPage Lines { position: absolute; }"
    name_shown = OVERVIEW

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.gpus = GpuTable(view, id="gpus")
        self.charts = OverviewCharts(view, id="charts")
        self.attention = AttentionSection(view, id="attention")
        self.runs = RunSection(view, id="runs")
        self.processes = ProcessSection(view, id="processes")
        self.ranks = RunHeat(view, id="ranks")
        self.active: GpuTable | Section = self.gpus
        """Where keys go."""
        self._plan: OverviewPlan | None = None

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return self.gpus, self.charts, self.attention, self.runs, self.processes, self.ranks

    def compose(self) -> ComposeResult:
        """Yield what lies on the page."""
        yield from self.drawn

    def forget(self) -> None:
        """Begin anew, as with frames of another source."""
        self.charts.forget()
        self.ranks.forget()

    def do_table(self) -> None:
        """Keys go to the next part that is on screen."""
        parts = [one for one in (self.gpus, self.runs, self.processes) if one.display and self._has_rows(one)]
        if parts:
            at = parts.index(self.active) + 1 if self.active in parts else 0
            self.activate(parts[at % len(parts)])

    def do_move(self, step: int) -> None:
        """Move the cursor of the part that has the keys."""
        self.active.move(step)
        if self.active is self.gpus:
            self._take_run()

    def do_page(self, pages: int) -> None:
        """Move it by pages."""
        self.do_move(pages * self.active.page)

    def do_open(self) -> None:
        """Open what is under the cursor on its own page: the chart of a GPU, a run, a process."""
        name = {self.gpus: CHART, self.runs: RUNS, self.processes: PROCESSES}.get(self.active)
        if name:
            self.post_message(self.Wanted(PAGES.index(name) + 1))

    def on_gpu_table_selected(self, message: GpuTable.Selected) -> None:
        """A GPU was clicked."""
        message.stop()
        self.view.select(message.uuid)
        self._take_run()
        self.activate(self.gpus)
        self.post_message(self.Changed())

    def on_section_chosen(self, message: Section.Chosen) -> None:
        """A section was clicked."""
        message.stop()
        section = message.section
        if message.opens and section.opens[0]:
            self.post_message(self.Clicked(section.opens[0]))
            return
        if section is not self.attention:
            self.activate(section)
        self.post_message(self.Changed())

    def activate(self, part: GpuTable | Section) -> None:
        """Send keys to a part."""
        self.active = part
        for one in (self.gpus, self.runs, self.processes):
            one.active = one is part

    def share_out(self, size: Size) -> None:
        """Give each part its room; nothing moves as long as the plan is the same."""
        view = self.view
        self._follow()
        new = overview_plan(
            size.width, size.height, len(view.samples),
            problem_rows=0 if view.samples else self.gpus.problem_rows(size.width),
            findings=len(view.findings()), runs=len(view.ranks), processes=len(view.processes),
            ranks=self._rank_count(),
        )  # fmt: skip
        if new == self._plan:
            return
        self._plan = new
        for part, place in zip(self.drawn, new, strict=True):
            self._put(part, place)
            if isinstance(part, Section):
                part.left = margin(size.width)

    @staticmethod
    def _put(part: Lines, place: PartRoom) -> None:
        part.display = place.rows > 0
        part.styles.offset = Offset(place.x, place.y)
        part.styles.width, part.styles.height = place.cells, place.rows

    def _rank_count(self) -> int:
        """GPUs of the ranks of the selected run."""
        found = next((one for one in self.view.ranks if one.first.id == self.view.selected_run), None)
        return sum(len(run.gpus) for run in found.all) if found else 0

    def _has_rows(self, part: GpuTable | Section) -> bool:
        view = self.view
        if part is self.gpus:
            return bool(view.samples)
        return bool(view.ranks if part is self.runs else view.processes)

    def _follow(self) -> None:
        """Keep a run selected, and the keys where there are rows."""
        view = self.view
        if view.ranks and all(ranks.first.id != view.selected_run for ranks in view.ranks):
            view.selected_run = ""
            self._take_run()
            view.selected_run = view.selected_run or view.ranks[0].first.id
        if view.frame is not None and not self._has_rows(self.active):
            self.activate(next((one for one in (self.gpus, self.runs) if self._has_rows(one)), self.gpus))

    def _take_run(self) -> None:
        """Select the run of the selected GPU, if it has one."""
        sample = self.view.sample
        run = self.view.epochs.run(sample.run) if sample is not None and sample.run else None
        if run is not None:
            self.view.selected_run = run.id
