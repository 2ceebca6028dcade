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
from gpumon_tui.widgets.table import Table
from gpumon_tui.widgets.tables import EpochTable, Processes, RunTable
from tests.tui.former_layout import Plan, Tables, plan

BARS = 2
"""Rows of header and footer."""


class FormerPage(TerminalPage):
    """All there is of now, each part in the room that the others leave."""

    DEFAULT_CSS = """
    FormerPage Container { visibility: hidden; } /* Textual would paint it behind its parts */
    FormerPage #tables { layout: vertical; height: 1fr; }
    FormerPage #tables.beside { layout: horizontal; }
    FormerPage Processes, FormerPage EpochTable, FormerPage #trainings { height: 1fr; }
    FormerPage #tables.beside #trainings { margin-left: 2; }
    """
    name_shown = OVERVIEW

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.gpus = GpuTable(view)
        self.memory_split = Container(id="split")
        """Where the parts of memory were."""
        self.processes = Processes(view, id="processes")
        self.runs = RunTable(view, id="runs")
        self.epochs = EpochTable(view, self.runs)
        self.table: Table = self.processes
        """The table to which keys go."""
        self.processes.active = True
        self._plan: Plan | None = None
        self._has_gpus = True
        self._above = Container(id="above")
        """Where charts were."""
        self._trainings = Container(self.runs, self.epochs, id="trainings")
        self._tables = Container(self.processes, self._trainings, id="tables")

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.gpus, self.processes, self.runs, self.epochs)

    def compose(self) -> ComposeResult:
        """Yield what lies on the page."""
        yield from (self.gpus, self.memory_split, self._above, self._tables)

    def do_table(self) -> None:
        """Keys go to the other table."""
        self.activate(self.runs if self.table is self.processes else self.processes)

    def do_move(self, step: int) -> None:
        """Move the cursor of the table that has the keys."""
        self.table.move(step)

    def do_page(self, pages: int) -> None:
        """Move it by pages."""
        self.table.move(pages * self.table.page)

    def do_open(self) -> None:
        """Open or close the run under the cursor."""
        if self.table is self.runs:
            self.runs.toggle()

    def on_table_activated(self, message: Table.Activated) -> None:
        """A table was clicked."""
        message.stop()
        self.activate(message.table)
        self.post_message(self.Changed())

    def activate(self, table: Table) -> None:
        """Send keys to one of the tables; where only one has room, that is shown."""
        self.table = table
        for one in (self.processes, self.runs):
            one.active = one is table
        self._plan = None

    def share_out(self, size: Size) -> None:
        """Give each part its room; nothing moves as long as the plan is the same."""
        view = self.view
        self._follow_kind()
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
        self.processes.display = not alone or self.table is self.processes
        self._trainings.display = not alone or self.table is self.runs
        self._trainings.styles.height = new.training_rows or "1fr"
        self.runs.styles.height = new.run_rows
        self.epochs.display = new.epochs
        self.processes.aside = "tab: runs" if alone else ""
        self.runs.aside = "tab: processes" if alone else ""

    def _follow_kind(self) -> None:
        """Send keys to the past runs of a machine without a GPU, and to the processes of another."""
        view = self.view
        if view.frame is not None and self._has_gpus != bool(view.samples):
            self._has_gpus = not self._has_gpus
            self.activate(self.processes if self._has_gpus else self.runs)
