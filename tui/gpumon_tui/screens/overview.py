"""The overview page: actions of its keys and clicks."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Offset, Size

from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.keybindings import CHART, OVERVIEW, PAGES, PROCESSES, RUNS
from gpumon_tui.render.overview_layout import Area, OverviewPlan
from gpumon_tui.screens.page import TerminalPage, half_pages
from gpumon_tui.state import MIN_OVERVIEW_WINDOW, View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import Section
from gpumon_tui.widgets.overview import OverviewParts


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
        self.parts = OverviewParts(view)
        self._plan: OverviewPlan | None = None

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return self.parts.all

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys without effect, because there is nothing to select or no window to change."""
        return self.parts.hidden_keys(self._plan)

    def forget(self) -> None:
        """Reset for frames of another source."""
        self.parts.forget()

    def action_table(self) -> None:
        """Move the focus of the keys to the next part on screen."""
        parts = self.parts
        tables = parts.selectable(self._plan)
        if tables:
            index = tables.index(parts.active) + 1 if parts.active in tables else 0
            table = tables[index % len(tables)]
            parts.activate(table)
            if table is parts.processes and table.selected not in table.keys_of_rows():
                table.move(1)  # makes the new focus visible

    def action_move(self, step: int) -> None:
        """Move the cursor of the focused part."""
        parts = self.parts
        parts.active.move(step)
        if parts.active is parts.gpus:
            parts.select_run_of_gpu()

    def action_move_page(self, halves: int) -> None:
        """Move the cursor by half pages."""
        self.action_move(half_pages(halves, self.parts.active.page))

    def action_zoom(self, step: int) -> None:
        """Show a shorter or longer window in all parts."""
        if step < 0 and self.view.overview_window == MIN_OVERVIEW_WINDOW:
            self.view.show_message("no shorter window here: the chart has some")
        else:
            self.view.zoom(step, MIN_OVERVIEW_WINDOW)
        self.post_message(self.Changed())

    def action_open(self) -> None:
        """Open the GPU, run or process under the cursor on its own page."""
        parts = self.parts
        name = {parts.gpus: CHART, parts.runs: RUNS, parts.processes: PROCESSES}.get(parts.active)
        if name:
            way_back = ReturnTarget(OVERVIEW) if name == CHART else None
            self.post_message(self.OpenRequested(PAGES.index(name) + 1, way_back, opens=True))

    def action_copy(self) -> None:
        """Copy the GPU, run or process under the cursor to the terminal's clipboard."""
        self.copy(self.parts.active.row_text())

    def on_section_chosen(self, message: Section.Chosen) -> None:
        """Handle a click in a table; a finding opens, as does the row under the cursor."""
        message.stop()
        section = message.section
        if (message.opens or section is self.parts.attention) and section.opens[0]:
            self.post_message(self.KeyClicked(section.opens[0]))
            return
        if message.is_again:
            self.action_open()
            return
        if section is self.parts.gpus:
            self.parts.select_run_of_gpu()
        if section in (self.parts.gpus, self.parts.runs, self.parts.processes):
            self.parts.activate(section)
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
        plan = self.parts.plan(*size)
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
