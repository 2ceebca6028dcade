"""The list of metrics from which one is chosen, over the charts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from gpumon.model import units
from gpumon.model.metrics import Metric
from gpumon.model.vendors import find_vendor, recovery_text
from gpumon_tui import palette
from gpumon_tui.pages.chart.state import ChartState
from gpumon_tui.renderables.text_width import Line, fit, width
from gpumon_tui.widgets.lines import Lines

STEPS = {"up": -1, "k": -1, "M": -1, "down": 1, "j": 1, "m": 1}
"""Keys that go to the next row, around the end."""
FAR = 1_000
JUMPS = {"home": -FAR, "g": -FAR, "end": FAR, "G": FAR, "pageup": -10, "ctrl+u": -5, "pagedown": 10, "ctrl+d": 5}
"""Keys that go some rows at once, no further than the first and the last."""
_EDGE = Segment("▌", palette.ink("key", "panel"))


class MetricChooser(Lines):
    """A pop-up; the page shows and hides it, and gives it the keys meanwhile."""

    ROWS, CELLS = 21, 56
    """At most, with the heading."""
    DEFAULT_CSS = "MetricChooser { layer: above; offset: 2 3; width: 56; height: 10; }"

    def __init__(self, state: ChartState) -> None:
        super().__init__(state.view)
        self.state = state
        self.known: Sequence[Metric] = ()
        self.place = 0
        self.most = self.ROWS
        """Rows that there is room for."""
        self.display = False  # from the first key on, which may come before the styles of its class do

    def open(self) -> None:
        """Show what can be chosen, from the metric of the chart on."""
        self.known = self.state.metrics()
        self.place = self.known.index(self.state.metric)
        self.styles.height = min(self.most, len(self.known) + 1)
        self.display = True

    def move(self, step: int) -> None:
        """Move the cursor, around the end."""
        self.place = (self.place + step) % max(1, len(self.known))

    def jump(self, step: int) -> None:
        """Move the cursor by some rows, as far as there are any."""
        self.place = max(0, min(self.place + step, len(self.known) - 1))

    def choose(self) -> None:
        """Show the metric under the cursor, and close."""
        self.state.show(self.known[self.place])
        self.display = False

    def row_of(self, y: int) -> int:
        """Return the metric in a row of the widget; -1 in none."""
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
        """The value of now; of what the driver requires its words, where they have room."""
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
