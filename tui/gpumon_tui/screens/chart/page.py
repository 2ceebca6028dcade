"""The chart page: the charts, the list of metrics, and the actions of keys and mouse."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Metric
from gpumon.model.vendors import find_vendor, recovery_text
from gpumon_tui.keybindings import CHART, PAGES
from gpumon_tui.render.text_width import width
from gpumon_tui.screens.chart.board import ChartBoard, heat_gpus
from gpumon_tui.screens.chart.heading import ChartHeading
from gpumon_tui.screens.chart.layouts import ChartPlan
from gpumon_tui.screens.chart.readout import ChartReadOut
from gpumon_tui.screens.chart.state import ChartState
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.screens.window import ListWindow, open_window
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

LIST_CELLS = 56
"""Width of the list of metrics."""


class ChartPage(TerminalPage):
    """One metric over time, with a cursor that shows its values."""

    DEFAULT_CSS = """
    ChartPage #charted { layout: horizontal; height: 1fr; visibility: hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", "cursor", key_display="← →",
            tooltip="move the cursor, which reads out a time; shift: ten columns; also Home End"),
        Binding("right", "cursor(1)"),
        Binding("shift+left", "cursor(-10)"),
        Binding("shift+right", "cursor(10)"),
        Binding("home", "cursor(-1_000_000)"),
        Binding("end", "cursor(1_000_000)"),
        Binding("left_square_bracket,less_than_sign,comma,pageup,ctrl+u", "pan(-1)", "pan", key_display="[ ]",
            tooltip="back or forward half a window, as by dragging; { } move a recording"),
        Binding("right_square_bracket,greater_than_sign,full_stop,pagedown,ctrl+d", "pan(1)"),
        Binding("plus,equals_sign", "zoom(1)", "zoom", key_display="+ -",
            tooltip="longer or shorter time window, 2 seconds to 31 days; the wheel too"),
        Binding("minus,underscore", "zoom(-1)"),
        Binding("enter", "choose", "metrics", key_display="↵", tooltip="the list of metrics"),
        Binding("g,down,j", "subject(1)", "GPU", key_display="g G",
            tooltip="next or previous GPU, also ↓ ↑; the host follows the last"),
        Binding("G,up,k", "subject(-1)"),
        Binding("c", "overlay", "overlay", key_display="c",
            tooltip="overlay: the mean of the run's other GPUs, each GPU, or nothing"),
        Binding("escape", "back", "live", key_display="Esc 0",
            tooltip="back to now, without a cursor; Esc also returns to the page that opened the chart"),
        Binding("0", "to_now"),
        Binding("p", "preset(1)", "preset", key_display="p P",
            tooltip="the next set of metrics: training, memory, power and heat, traffic"),
        Binding("P", "preset(-1)"),
        Binding("w", "window(1)", "window", key_display="w W",
            tooltip="the next window, up to the length of the history: 1 min to 31 d"),
        Binding("W", "window(-1)"),
        Binding("f", "layout", "layout", key_display="f",
            tooltip="layout: all charts, without small charts, or one chart"),
        Binding("m", "panel(1)", "metric", key_display="m M", tooltip="next or previous metric"),
        Binding("M", "panel(-1)"),
    ]  # fmt: skip
    page_name: ClassVar[str] = CHART
    has_past: ClassVar[bool] = True

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.state = ChartState(view)
        self.heading = ChartHeading(self.state)
        self.board = ChartBoard(self.state)
        self.readout = ChartReadOut(self.state)
        self._plan: ChartPlan | None = None
        self._drag: tuple[int, float, float] | None = None
        """During a mouse drag: the column where it started, the window's end at that time, and the duration of a
        column.
        """
        self._is_dragged = False

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return (self.heading, self.board, self.readout)

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """The key that returns to the page from which the chart was opened."""
        target = self.view.return_target
        return (("Esc", f"back to {target.label}" if target.label else "back"),) if target else ()

    def compose_page(self) -> ComposeResult:
        """Yield the widgets of the page."""
        yield self.heading
        yield Container(self.board, self.readout, id="charted")

    def forget(self) -> None:
        self.state.forget()

    def lay_out(self, size: Size) -> None:
        """Lay out the panel, and update the time window."""
        self.state.lay_out(size.width, size.height)
        plan = self.state.plan
        if plan == self._plan:
            return
        self._plan = plan
        self.heading.styles.height = plan.title
        self.readout.display = plan.panel_cells > 0
        self.readout.styles.width = plan.panel_cells

    def action_choose(self) -> None:
        """Open the list of metrics."""
        state, metrics = self.state, self.state.metrics()

        def rows() -> list[tuple[str, str]]:
            return [(metric.title, self._value(metric)) for metric in metrics]

        window = ListWindow(
            self.view, "Metric", rows, metrics.index(state.metric), lambda index: state.show(metrics[index]),
            cells=LIST_CELLS, hints=("enter shows it, Esc closes", "enter shows it"),
        )  # fmt: skip
        open_window(self.app, window)

    def _value(self, metric: Metric) -> str:
        """Return the current value; for the recovery action, its name if it fits."""
        value, sample = self.state.now(self.view.subject, metric.name), self.view.sample
        if metric.name == "gpu.recovery_action" and sample is not None:
            action = recovery_text(find_vendor(sample.device.name, sample.device.uuid), value)
            if action and width(action) + width(metric.title) + 7 <= LIST_CELLS:
                return action
        return units.metric(value, metric)

    def action_panel(self, step: int) -> None:
        """Show the next or previous metric."""
        self.state.step_metric(step)

    def action_cursor(self, columns: int) -> None:
        """Move the cursor."""
        self.state.move_cursor(columns)

    def action_pan(self, halves: int) -> None:
        """Move the window by half windows; the cursor keeps its position on screen."""
        state, chart_time = self.state, self.view.chart_time
        previous_begin = state.grid.begin
        self.view.pan(halves)
        if is_known(chart_time.cursor):
            cursor = chart_time.cursor
            state.follow()
            chart_time.cursor = min(cursor + state.grid.begin - previous_begin, self.view.now)

    def action_zoom(self, step: int) -> None:
        """Show a shorter or longer window, centered on the cursor if there is one."""
        view, chart_time = self.view, self.view.chart_time
        window = view.window
        view.zoom(step)
        if is_known(chart_time.cursor) and (chart_time.is_past or chart_time.cursor < view.now - view.window):
            share = (chart_time.cursor - self.state.grid.begin) / (self.state.grid.end - self.state.grid.begin)
            end = chart_time.cursor + (1 - min(1.0, max(0.0, share))) * view.window
            if end < view.now and window != view.window:
                chart_time.fix(end, view.window)

    def action_back(self) -> None:
        """Return to the page that opened the chart, else as `action_to_now`."""
        target = self.view.return_target
        if target is None:
            self.action_to_now()
            return
        if target.window is None:
            self.action_to_now()
        else:
            self.view.chart_time.restore(target.window)
        self.post_message(self.OpenRequested(PAGES.index(target.page) + 1))

    def action_to_now(self) -> None:
        """Return to the present, without a cursor."""
        self.view.chart_time.follow_now()

    def action_preset(self, step: int) -> None:
        """Show the next or previous preset of metrics."""
        self.state.step_preset(step)

    def action_layout(self) -> None:
        """Switch to the next layout."""
        self.state.step_layout()

    def action_window(self, step: int) -> None:
        """Switch to the next window with a button."""
        self.view.step_window(step)

    def action_overlay(self) -> None:
        """Switch to the next overlay."""
        self.state.step_overlay()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Start dragging the window."""
        column = event.screen_x - self.board.region.x - self.state.plan.left
        is_on_chart = event.button == 1 and 0 <= column < self.state.plan.cells and self.board.region.contains_point(
            (event.screen_x, event.screen_y)
        )  # fmt: skip
        chart_time = self.view.chart_time
        end = chart_time.end if chart_time.is_past else self.view.now
        self._drag = (event.screen_x, end, self.state.grid.step) if is_on_chart else None
        self._is_dragged = False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the window while the mouse button is down."""
        if self._drag is None or event.button != 1:
            self._drag = None
            return
        event.stop()
        start, end, step = self._drag
        view, chart_time = self.view, self.view.chart_time
        new_end = end - (event.screen_x - start) * step
        view.pan(2 * (new_end - (chart_time.end if chart_time.is_past else view.now)) / view.window)
        self._is_dragged = True
        self.post_message(self.Changed())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show a shorter window."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show a longer window."""
        self._wheel(event, 1)

    async def on_click(self, event: events.Click) -> None:
        """Set the cursor, select a GPU or a metric, or press a button of the title."""
        event.stop()
        self._drag = None
        if self._is_dragged:
            self._is_dragged = False
            return
        state, plan = self.state, self.state.plan
        if self.heading.region.contains(event.screen_x, event.screen_y):
            x, y = event.screen_x - self.heading.region.x, event.screen_y - self.heading.region.y
            if action := self.heading.action_at(x, y):
                await self.run_action(action)
        else:
            column = event.screen_x - self.board.region.x - plan.left
            row = event.screen_y - self.board.region.y - plan.heat_title - 1
            if plan.gpus and 0 <= row < plan.gpus and (column < 0 or column >= plan.cells):
                first, count = heat_gpus(state)
                if row < count:
                    self.view.select(self.view.samples[first + row].device.uuid)
            elif 0 <= column < plan.cells:
                state.point(min(state.grid.begin + (column + 0.5) * state.grid.step, self.view.now))
        self.post_message(self.Changed())

    def _wheel(self, event: events.MouseEvent, step: int) -> None:
        event.stop()
        self.action_zoom(step)
        self.post_message(self.Changed())
