"""The parts of the screen, and the room that each gets."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from gpumon_tui import theme
from gpumon_tui.keys import FOOT
from gpumon_tui.layout import Plan, Tables, plan
from gpumon_tui.view import View
from gpumon_tui.widgets.bars import HeaderBar, Keys
from gpumon_tui.widgets.chart import Chart
from gpumon_tui.widgets.gpus import Gpus
from gpumon_tui.widgets.split import SplitBar
from gpumon_tui.widgets.table import Table
from gpumon_tui.widgets.tables import EpochTable, Processes, RunTable

CHARTS = 3
CSS = f"""
    Screen {{ background: {theme.BACKGROUND}; color: {theme.TEXT}; overflow: hidden; }}
    Scrolled {{ background: {theme.BACKGROUND} 60%; }}
    HeaderBar, Keys {{ background: {theme.PANEL}; }}
    Container {{ visibility: hidden; }} /* they only share out room: Textual would paint each behind its widgets */
    Lines {{ visibility: visible; }}
    #charts {{ layout: horizontal; height: 8; }}
    #tables {{ layout: vertical; height: 1fr; }}
    #tables.beside {{ layout: horizontal; }}
    Chart {{ height: 100%; }}
    Processes, EpochTable, #trainings {{ height: 1fr; }}
    #chart1, #chart2, #tables.beside #trainings {{ margin-left: 2; }}
    """


class ScreenParts:
    """The widgets of a view, from top to bottom."""

    def __init__(self, view: View) -> None:
        self.header = HeaderBar(view)
        self.gpus = Gpus(view)
        self.split = SplitBar(view)
        self.charts = [Chart(view, place) for place in range(CHARTS)]
        self.processes = Processes(view, id="processes")
        self.runs = RunTable(view, id="runs")
        self.epochs = EpochTable(view, self.runs)
        self.keys = Keys(view, FOOT)
        self.drawn = (self.header, self.gpus, self.split, *self.charts, self.processes, self.runs, self.epochs)
        """Those that the view fills."""
        self.table: Table = self.processes
        """The table to which keys go."""
        self.processes.active = True
        self._view = view
        self._plan: Plan | None = None
        self._chart_row = Container(*self.charts, id="charts")
        self._trainings = Container(self.runs, self.epochs, id="trainings")
        self._tables = Container(self.processes, self._trainings, id="tables")

    def compose(self) -> ComposeResult:
        """Yield what lies on the screen."""
        yield from (self.header, self.gpus, self.split, self._chart_row, self._tables, self.keys)

    def show(self) -> None:
        """Draw the view as it is now."""
        for part in self.drawn:
            part.show()

    def activate(self, table: Table) -> None:
        """Send keys to one of the tables; where only one has room, that is shown."""
        self.table = table
        for one in (self.processes, self.runs):
            one.active = one is table
        self._plan = None

    def arrange(self, size: Size) -> None:
        """Give each part its room; nothing moves as long as the plan is the same."""
        view = self._view
        problem_rows = 0 if view.samples else self.gpus.problem_rows(size.width)
        new = plan(
            *size, gpus=len(view.samples), problem_rows=problem_rows, processes=len(view.processes),
            runs=len(view.ranks), below=self.runs.room_wanted(), split=view.tells_processes,
        )  # fmt: skip
        if new == self._plan:
            return
        self._plan = self.gpus.plan = new
        self.gpus.styles.height = new.gpu_rows
        self.split.display = new.split_rows > 0
        self.split.styles.height = new.split_rows
        self._chart_row.display = new.chart_rows > 0
        self._chart_row.styles.height = new.chart_rows
        for chart in self.charts:
            chart.display = chart.place < new.charts
        self._tables.set_class(new.tables is Tables.BESIDE, "beside")
        alone = new.tables is Tables.ONE
        self.processes.display = not alone or self.table is self.processes
        self._trainings.display = not alone or self.table is self.runs
        self._trainings.styles.height = new.training_rows or "1fr"
        self.runs.styles.height = new.run_rows
        self.epochs.display = new.epochs
        self.processes.aside = "tab: runs" if alone else ""
        self.runs.aside = "tab: processes" if alone else ""
