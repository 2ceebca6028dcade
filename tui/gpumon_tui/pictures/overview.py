"""The overview: every GPU, what needs attention, runs and processes, and the room that each gets."""

from __future__ import annotations

from functools import partial

from gpumon_tui.layout import OverviewPlan, overview_plan
from gpumon_tui.pictures.gpu_table import GpuTablePicture
from gpumon_tui.pictures.overview_charts import ChartsPicture
from gpumon_tui.pictures.overview_past import EpochPicture, EventPicture
from gpumon_tui.pictures.overview_ranks import RanksPicture
from gpumon_tui.pictures.overview_sections import AttentionPicture, ProcessPicture, RunPicture
from gpumon_tui.pictures.picture import Picture
from gpumon_tui.pictures.section import SectionPicture
from gpumon_tui.renderables.lean_section import margin
from gpumon_tui.view import View

ActivePicture = GpuTablePicture | SectionPicture


class OverviewPicture:
    """All there is of now, in parts."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.gpus = GpuTablePicture(view)
        self.charts = ChartsPicture(view)
        self.attention = AttentionPicture(view)
        self.runs = RunPicture(view)
        self.processes = ProcessPicture(view)
        self.ranks = RanksPicture(view)
        self.epochs = EpochPicture(view)
        self.events = EventPicture(view)
        self.active: ActivePicture = self.gpus
        """Where keys go."""

    @property
    def parts(self) -> tuple[Picture, ...]:
        """All parts, in the order of a plan."""
        return self.gpus, self.charts, self.attention, self.runs, self.processes, self.ranks, self.epochs, self.events

    def forget(self) -> None:
        """Begin anew, as with frames of another source."""
        for part in (self.gpus, self.charts, self.runs, self.processes, self.ranks):
            part.forget()

    def activate(self, part: ActivePicture) -> None:
        """Send keys to a part."""
        self.active = part
        for one in (self.gpus, self.runs, self.processes):
            one.active = one is part

    def plan(self, cells: int, rows: int) -> OverviewPlan:
        """Give each part its room between header and footer, with the selection where there are rows."""
        view = self.view
        self._follow()
        for part in self.parts:
            if isinstance(part, SectionPicture):
                part.left = margin(cells)
        share_out = partial(
            overview_plan, cells, rows, len(view.samples),
            problem_rows=0 if view.samples else self.gpus.problem_rows(cells, rows),
            findings=len(view.found.groups()), runs=len(view.ranks), processes=len(view.processes),
            ranks=self._rank_count(), tells_holders=view.tells_holders or not view.samples,
        )  # fmt: skip
        plan = share_out()
        if not plan.epochs.rows:
            return plan
        return share_out(epochs=self.epochs.many(), events=len(self.events.rows()))  # read where they are shown

    def selectable(self, plan: OverviewPlan | None) -> list[ActivePicture]:
        """Return the parts on screen that have rows, for keys to go to."""
        rooms = dict(zip(self.parts, plan, strict=True)) if plan is not None else {}
        parts: tuple[ActivePicture, ...] = (self.gpus, self.runs, self.processes)
        return [part for part in parts if part in rooms and rooms[part].rows > 0 and self.has_rows(part)]

    def withheld(self, plan: OverviewPlan | None) -> frozenset[str]:
        """Return the keys that do nothing just now: without another table, strips or charts, or a GPU."""
        if plan is None:
            return frozenset()
        found = {"Tab"} if len(self.selectable(plan)) < 2 else set()
        has_charts = any(place.rows > 0 for part, place in zip(self.parts, plan, strict=True) if part is self.charts)
        if not (has_charts or self.gpus.has_strips):
            found.add("+ -")
        if not self.view.samples:
            found.add("g G")
        return frozenset(found)

    def has_rows(self, part: ActivePicture) -> bool:
        """Whether there is something to select in a part that takes keys."""
        view = self.view
        if part is self.gpus:
            return bool(view.samples)
        return bool(view.ranks if part is self.runs else view.processes)

    def take_run(self) -> None:
        """Select the run of the selected GPU, if it has one."""
        sample = self.view.sample
        run = self.view.run_on(sample) if sample is not None else None
        if run is not None:
            self.view.selected_run = run.id

    def _rank_count(self) -> int:
        """GPUs of the ranks of the selected run."""
        found = next((one for one in self.view.ranks if one.first.id == self.view.selected_run), None)
        return sum(len(run.gpus) for run in found.all) if found else 0

    def _follow(self) -> None:
        """Keep a run selected, and the keys where there are rows."""
        view = self.view
        if view.ranks and all(ranks.first.id != view.selected_run for ranks in view.ranks):
            view.selected_run = ""
            self.take_run()
            view.selected_run = view.selected_run or view.ranks[0].first.id
        if view.frame is not None and not self.has_rows(self.active):
            self.activate(next((one for one in (self.gpus, self.runs) if self.has_rows(one)), self.gpus))
