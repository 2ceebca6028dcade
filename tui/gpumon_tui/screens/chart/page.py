"""The chart page: the charts, the list of metrics, and the actions of keys and mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Metric
from gpumon.model.vendors import find_vendor, recovery_text
from gpumon_tui import palette
from gpumon_tui.keybindings import CHART, PAGES
from gpumon_tui.render.text_width import Line, fit, width
from gpumon_tui.screens.chart.board import ChartBoard, shown_gpus
from gpumon_tui.screens.chart.heading import ChartHeading
from gpumon_tui.screens.chart.layouts import ChartPlan
from gpumon_tui.screens.chart.readout import ChartReadOut
from gpumon_tui.screens.chart.state import ChartState
from gpumon_tui.screens.page import TerminalPage
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines

STEPS = {"up": -1, "k": -1, "M": -1, "down": 1, "j": 1, "m": 1}
"""Keys that move to the next or previous row, wrapping around."""
FAR = 1_000
JUMPS = {"home": -FAR, "g": -FAR, "end": FAR, "G": FAR, "pageup": -10, "ctrl+u": -5, "pagedown": 10, "ctrl+d": 5}
"""Keys that move by several rows, stopping at the first and last."""
_EDGE = Segment("▌", palette.ink("key", "panel"))


class MetricChooser(Lines):
    """Pop-up list of metrics; the page shows and hides it, and passes keys to it while it is open."""

    ROWS, CELLS = 21, 56
    """Maximum size, including the heading."""
    DEFAULT_CSS = "MetricChooser { layer: above; offset: 2 3; width: 56; height: 10; }"

    def __init__(self, state: ChartState) -> None:
        super().__init__(state.view)
        self.state = state
        self.known: Sequence[Metric] = ()
        self.place = 0
        self.most = self.ROWS
        """Rows available."""
        self.display = False  # hidden at once, because a key may arrive before the styles are applied

    def open(self) -> None:
        """Open the list with the cursor on the metric of the chart."""
        self.known = self.state.metrics()
        self.place = self.known.index(self.state.metric)
        self.styles.height = min(self.most, len(self.known) + 1)
        self.display = True

    def move(self, step: int) -> None:
        """Move the cursor, wrapping around."""
        self.place = (self.place + step) % max(1, len(self.known))

    def jump(self, step: int) -> None:
        """Move the cursor by several rows, stopping at the ends."""
        self.place = max(0, min(self.place + step, len(self.known) - 1))

    def choose(self) -> None:
        """Show the metric under the cursor, and close the list."""
        self.state.show(self.known[self.place])
        self.display = False

    def row_of(self, y: int) -> int:
        """Return the index of the metric in a row of the widget; -1 if there is none."""
        place = y - 1 + self._first()
        return place if 1 <= y < self.size.height and place < len(self.known) else -1

    def _first(self) -> int:
        rows = self.size.height - 1
        return min(max(0, self.place - rows + 1), max(0, len(self.known) - rows))

    def lines(self) -> list[Line]:
        cells, rows, first = self.size.width, self.size.height - 1, self._first()
        rest = len(self.known) - first - rows
        forms = ("enter shows it, Esc closes", "enter shows it") if rest <= 0 else (
            f"enter shows it, Esc closes  +{rest} ▼", f"enter shows it  +{rest} ▼",
        )  # fmt: skip
        keys = next((one for one in forms if width(one) + len("Metric") + 6 <= cells), forms[-1])
        lines: list[Line] = [self._line("Metric", keys, cells, "panel", is_head=True)]
        for place, metric in enumerate(self.known[first : first + rows], first):
            ground = "select" if place == self.place else "panel"
            lines.append(self._line(metric.title, self._value(metric, cells), cells, ground))
        return lines

    def _value(self, metric: Metric, cells: int) -> str:
        """Return the current value; for the recovery action, its name if it fits."""
        value, sample = self.state.now(self.view.subject, metric.name), self.view.sample
        if metric.name == "gpu.recovery_action" and sample is not None:
            words = recovery_text(find_vendor(sample.device.name, sample.device.uuid), value)
            if words and width(words) + width(metric.title) + 6 <= cells:
                return words
        return units.metric(value, metric)

    @staticmethod
    def _line(left: str, right: str, cells: int, ground: str, *, is_head: bool = False) -> Line:
        room = cells - 4 - width(right)
        return [
            _EDGE, Segment(" " + fit(left, room), palette.ink("strong" if is_head else "text", ground, bold=is_head)),
            Segment(f" {right} ", palette.ink("faint" if is_head else "dim", ground)),
        ]  # fmt: skip


_BUTTONS = {
    "enter": "do_choose", "g": "do_subject", "left_square_bracket": "do_pan", "right_square_bracket": "do_pan",
    "minus": "do_zoom", "plus": "do_zoom",
}  # fmt: skip
_BY = {"g": 1, "left_square_bracket": -1, "right_square_bracket": 1, "minus": 1, "plus": -1}


class ChartPage(TerminalPage):
    """One metric over time, with a cursor that shows its values."""

    DEFAULT_CSS = """
    ChartPage { layers: base above; }
    ChartPage #charted { layout: horizontal; height: 1fr; visibility: hidden; }
    """
    name_shown: ClassVar[str] = CHART
    has_past: ClassVar[bool] = True

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.state = ChartState(view)
        self.heading = ChartHeading(self.state)
        self.board = ChartBoard(self.state)
        self.read_out = ChartReadOut(self.state)
        self.chooser = MetricChooser(self.state)
        self._plan: ChartPlan | None = None
        self._held: tuple[int, float, float] | None = None
        """During a mouse drag: the column where it started, the window's end at that time, and the duration of a
        column.
        """
        self._is_dragged = False

    @property
    def drawn(self) -> tuple[Lines, ...]:
        return (self.heading, self.board, self.read_out, self.chooser)

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """The key that returns to the page from which the chart was opened."""
        way_back = self.view.way_back
        return (("Esc", f"back to {way_back.what}" if way_back.what else "back"),) if way_back else ()

    def compose(self) -> ComposeResult:
        """Yield the widgets of the page."""
        yield self.heading
        yield Container(self.board, self.read_out, id="charted")
        yield self.chooser

    def forget(self) -> None:
        self.state.forget()

    def share_out(self, size: Size) -> None:
        """Lay out the panel, and update the time window."""
        self.state.share_out(size.width, size.height)
        plan = self.state.plan
        if plan == self._plan:
            return
        self._plan = plan
        self.heading.styles.height = plan.title
        self.read_out.display = plan.side > 0
        self.read_out.styles.width = plan.side
        self.chooser.styles.width = min(MetricChooser.CELLS, size.width)
        self.chooser.most = max(2, min(MetricChooser.ROWS, size.height - 3))
        self.chooser.styles.offset = (min(2, max(0, size.width - MetricChooser.CELLS)), 1)

    def take(self, press: events.Key) -> bool:
        """Handle keys of the list of metrics while it is open."""
        if not self.chooser.display:
            return False
        if press.key in STEPS:
            self.chooser.move(STEPS[press.key])
        elif press.key in JUMPS:
            self.chooser.jump(JUMPS[press.key])
        elif press.key == "enter":
            self.chooser.choose()
        elif press.key in ("escape", "q"):
            self.chooser.display = False
        else:
            self.chooser.display = False
            return False
        return True

    def do_choose(self) -> None:
        """Open the list of metrics."""
        self.chooser.open()

    def do_panel(self, step: int) -> None:
        """Show the next or previous metric."""
        self.state.step_metric(step)

    def do_subject(self, step: int) -> None:
        """Show the next or previous GPU, or the host."""
        self.view.step_subject(step)

    def do_cursor(self, columns: int) -> None:
        """Move the cursor."""
        self.state.move_cursor(columns)

    def do_pan(self, halves: int) -> None:
        """Move the window by half windows; the cursor keeps its position on screen."""
        state, shown = self.state, self.view.shown
        before = state.grid.begin
        self.view.pan(halves)
        if is_known(shown.cursor):
            cursor = shown.cursor
            state.follow()
            shown.cursor = min(cursor + state.grid.begin - before, self.view.now)

    def do_zoom(self, step: int) -> None:
        """Show a shorter or longer window, centered on the cursor if there is one."""
        view, shown = self.view, self.view.shown
        window = view.window
        view.zoom(step)
        if is_known(shown.cursor) and (shown.is_past or shown.cursor < view.now - view.window):
            place = (shown.cursor - self.state.grid.begin) / (self.state.grid.end - self.state.grid.begin)
            end = shown.cursor + (1 - min(1.0, max(0.0, place))) * view.window
            if end < view.now and window != view.window:
                shown.hold(end, view.window)

    def do_back(self) -> None:
        """Return to the page that opened the chart, else as `do_to_now`."""
        way_back = self.view.way_back
        if way_back is None:
            self.do_to_now()
            return
        if way_back.window is None:
            self.do_to_now()
        else:
            self.view.shown.restore(way_back.window)
        self.post_message(self.Wanted(PAGES.index(way_back.page) + 1))

    def do_to_now(self) -> None:
        """Return to the present, without a cursor."""
        self.view.shown.to_now()

    def do_preset(self, step: int) -> None:
        """Show the next or previous preset of metrics."""
        self.state.step_preset(step)

    def do_layout(self) -> None:
        """Switch to the next layout."""
        self.state.step_layout()

    def do_window(self, step: int) -> None:
        """Switch to the next window with a button."""
        self.view.step_window(step)

    def do_overlay(self) -> None:
        """Switch to the next overlay."""
        self.state.step_overlay()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Start dragging the window."""
        column = event.screen_x - self.board.region.x - self.state.plan.left
        is_held = event.button == 1 and 0 <= column < self.state.plan.cells and self.board.region.contains_point(
            (event.screen_x, event.screen_y)
        )  # fmt: skip
        shown = self.view.shown
        end = shown.end if shown.is_past else self.view.now
        self._held = (event.screen_x, end, self.state.grid.step) if is_held else None
        self._is_dragged = False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the window while the mouse button is down."""
        if self._held is None or event.button != 1:
            self._held = None
            return
        event.stop()
        at, end, step = self._held
        view, shown = self.view, self.view.shown
        wanted = end - (event.screen_x - at) * step
        view.pan(2 * (wanted - (shown.end if shown.is_past else view.now)) / view.window)
        self._is_dragged = True
        self.post_message(self.Changed())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show a shorter window."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show a longer window."""
        self._wheel(event, 1)

    def on_click(self, event: events.Click) -> None:
        """Set the cursor, select a GPU or a metric, or press a button of the title."""
        event.stop()
        self._held = None
        if self._is_dragged:
            self._is_dragged = False
            return
        state, plan = self.state, self.state.plan
        if self.chooser.display and self.chooser.region.contains(event.screen_x, event.screen_y):
            place = self.chooser.row_of(event.screen_y - self.chooser.region.y)
            if place >= 0:
                self.chooser.place = place
                self.chooser.choose()
        elif self.heading.region.contains(event.screen_x, event.screen_y):
            key = self.heading.key_at(event.screen_x - self.heading.region.x, event.screen_y - self.heading.region.y)
            if key:
                do = getattr(self, _BUTTONS[key])
                do(_BY[key]) if key in _BY else do()
        else:
            column = event.screen_x - self.board.region.x - plan.left
            row = event.screen_y - self.board.region.y - plan.heat_title - 1
            if plan.gpus and 0 <= row < plan.gpus and (column < 0 or column >= plan.cells):
                first, count = shown_gpus(state)
                if row < count:
                    self.view.select(self.view.samples[first + row].device.uuid)
            elif 0 <= column < plan.cells:
                state.point(min(state.grid.begin + (column + 0.5) * state.grid.step, self.view.now))
        self.post_message(self.Changed())

    def _wheel(self, event: events.MouseEvent, step: int) -> None:
        event.stop()
        if self.chooser.display and self.chooser.region.contains(event.screen_x, event.screen_y):
            self.chooser.jump(step)
        else:
            self.do_zoom(step)
        self.post_message(self.Changed())
