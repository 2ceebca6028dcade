"""Charts and tables that are on no page of the view but their own, all on one: for the tests of these parts."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from gpumon_tui.keys import OVERVIEW
from gpumon_tui.pages.page import TerminalPage
from gpumon_tui.view import View
from gpumon_tui.widgets.gpu_table import GpuTable
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.tables import EpochTable, RunTable
from tests.tui.former_layout import Plan, Tables, plan

BARS = 2
"""Rows of header and footer."""


class FormerPage(TerminalPage):
    """All there is of now, each part in the room that the others leave."""

    DEFAULT_CSS = """
    FormerPage Container { visibility: hidden; } /* Textual would paint it behind its parts */
    FormerPage #tables { layout: vertical; height: 1fr; }
    FormerPage #tables.beside { layout: horizontal; }
    FormerPage #processes, FormerPage EpochTable, FormerPage #trainings { height: 1fr; }
    FormerPage #tables.beside #trainings { margin-left: 2; }
    """
    name_shown = OVERVIEW

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.gpus = GpuTable(view)
        self.memory_split = Container(id="split")
        """Where the parts of memory were."""
        self.processes = Container(id="processes")
        """Where processes were."""
        self.runs = RunTable(view, id="runs")
        self.epochs = EpochTable(view, self.runs)
        self.runs.active = True
        self._plan: Plan | None = None
        self._above = Container(id="above")
        """Where charts were."""
        self._trainings = Container(self.runs, self.epochs, id="trainings")
        self._tables = Container(self.processes, self._trainings, id="tables")

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.gpus, self.runs, self.epochs)

    def compose(self) -> ComposeResult:
        """Yield what lies on the page."""
        yield from (self.gpus, self.memory_split, self._above, self._tables)

    def do_move(self, step: int) -> None:
        """Move the cursor of the table of runs."""
        self.runs.move(step)

    def do_page(self, pages: int) -> None:
        """Move it by pages."""
        self.runs.move(pages * self.runs.page)

    def do_open(self) -> None:
        """Open or close the run under the cursor."""
        self.runs.toggle()

    def share_out(self, size: Size) -> None:
        """Give each part its room; nothing moves as long as the plan is the same."""
        view = self.view
        self.runs.follow()
        problem_rows = 0 if view.samples else self.gpus.problem_rows(size.width)
        new = plan(
            size.width, size.height + BARS, gpus=len(view.samples), problem_rows=problem_rows,
            processes=len(view.processes),
            runs=len(view.ranks), below=self.runs.room_wanted(), split=view.tells_processes,
        )  # fmt: skip
        if new == self._plan:
            return
        self._plan = new
        self.gpus.styles.height = new.gpu_rows
        self.memory_split.display = new.split_rows > 0
        self.memory_split.styles.height = new.split_rows
        self._above.display = new.chart_rows > 0
        self._above.styles.height = new.chart_rows
        self._tables.set_class(new.tables is Tables.BESIDE, "beside")
        alone = new.tables is Tables.ONE
        self.processes.display = not alone
        self._trainings.styles.height = new.training_rows or "1fr"
        self.runs.styles.height = new.run_rows
        self.epochs.display = new.epochs
