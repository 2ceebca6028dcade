"""All GPUs, as cards or as lines; one widget, since many small ones cost a layout each."""

from __future__ import annotations

from functools import partial
from math import ceil

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.analysis.gpu_state import GpuState
from gpumon.frame import Process, Sample
from gpumon.history.windows import WINDOWS
from gpumon_tui.layout import Plan
from gpumon_tui.memo import Memo
from gpumon_tui.renderables import gpu, nogpu
from gpumon_tui.renderables.gpu import hidden
from gpumon_tui.renderables.text_width import Line, cut, length, spread
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

GAP = 2
"""Cells between two GPUs side by side."""
WHEEL = 3
"""Rows that the wheel scrolls, as elsewhere."""
FEWEST_MARKED = 3
"""Rows from which the mark of hidden GPUs has a line of its own; below, it stands at the end of the last."""


class Gpus(Lines):
    """A click on a GPU selects it."""

    class Selected(Message):
        """A GPU was clicked."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.plan: Plan | None = None
        self._pictures: Memo[list[Line]] = Memo()
        self._top = 0
        self._followed: tuple[str, int, int] = ("", 0, 0)

    def lines(self) -> list[Line]:
        samples = self.view.samples
        if not samples:
            return self._problem(self.size.width)[: self.size.height]
        if self.plan is None:
            return []
        held: dict[str, list[Process]] = {}
        for process in self.view.processes:
            held.setdefault(process.uuid, []).append(process)
        self._pictures.keep({sample.device.uuid for sample in samples})
        view, lines = self.view, list[Line]()
        rows, cells, subject = self.plan.card_rows, self._cells(), view.subject
        alike = partial(
            gpu.GpuCard, age=view.age, history=view.history, begin=view.history.begin, now=view.now,
            window=max(view.window, WINDOWS[0].seconds), interval=view.state.interval, filling=view.filling,
            pictures=self._pictures,
        )  # fmt: skip
        grid, shown = self._grid(), self._shown
        self._follow(grid)
        for places in grid[self._top : self._top + shown]:
            across = [
                self._draw(alike, samples[place], samples[place].device.uuid == subject, held, cells, rows)
                for place in places
            ]
            for row in range(rows):
                lines.append(_join([drawn[row] for drawn in across], cells))
        if len(grid) > shown:
            mark = self._mark(grid)
            width = self.size.width
            if len(lines) < self.size.height:
                lines.append(spread([], mark, width))
            else:
                lines[-1] = spread(lines[-1], mark, width)
        return lines[: self.size.height]

    def problem_rows(self, cells: int) -> int:
        """Rows that it takes to say why there is no GPU."""
        return len(self._problem(cells))

    def _problem(self, cells: int) -> list[Line]:
        view = self.view
        if view.frame is None:
            lines = nogpu.waiting(view.origin.problem or view.freshness.text, cells)
        else:
            lines = nogpu.problem(view.origin, view.has_simulation, cells)
            lines += nogpu.past(view.past, view.now, cells)
        return [cut(line, cells) for line in lines]

    def on_click(self, event: events.Click) -> None:
        """Select the GPU under the mouse."""
        if self.plan is None:
            return
        grid, row, column = self._grid(), event.y // self.plan.card_rows, event.x // max(1, self._cells() + GAP)
        if row >= self._shown:
            self._scroll(self._shown)
            return
        row += self._top
        if row < len(grid) and column < len(grid[row]):
            self.post_message(self.Selected(self.view.samples[grid[row][column]].device.uuid))

    def on_mouse_scroll_down(self) -> None:
        """Show GPUs further down."""
        self._scroll(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Show GPUs further up."""
        self._scroll(-WHEEL)

    def _scroll(self, rows: int) -> None:
        self._top += rows
        self.show()

    def _cells(self) -> int:
        columns = self.plan.columns if self.plan else 1
        return (self.size.width - GAP * (columns - 1)) // columns

    def _grid(self) -> list[list[int]]:
        """Places of the GPUs by row: cards read across, lines read down."""
        if self.plan is None:
            return []
        count, columns = len(self.view.samples), self.plan.columns
        if self.plan.card_rows > 1:
            return [list(range(first, min(first + columns, count))) for first in range(0, count, columns)]
        down = ceil(count / columns)
        return [list(range(row, count, down)) for row in range(down)]

    @property
    def _shown(self) -> int:
        """Rows of GPUs on screen; where not all fit, one line says how many are not there."""
        if self.plan is None:
            return 0
        room = max(1, self.size.height // self.plan.card_rows)
        needed = ceil(len(self.view.samples) / self.plan.columns)
        return room - 1 if needed > room >= FEWEST_MARKED and self.plan.card_rows == 1 else room

    def _follow(self, grid: list[list[int]]) -> None:
        """Bring a GPU on screen when it is selected; from then on the wheel decides."""
        subject, shown = self.view.subject, self._shown
        selection = subject, shown, len(grid)
        if selection != self._followed:
            self._followed = selection
            selected = next((i for i, s in enumerate(self.view.samples) if s.device.uuid == subject), -1)
            row = next((row for row, places in enumerate(grid) if selected in places), self._top)
            self._top = min(max(self._top, row - shown + 1), row)
        self._top = max(0, min(self._top, len(grid) - shown))

    def _mark(self, grid: list[list[int]]) -> Line:
        """Number of GPUs above and below those on screen, and of free ones among them."""
        samples = self.view.samples
        above = [samples[place] for places in grid[: self._top] for place in places]
        below = [samples[place] for places in grid[self._top + self._shown :] for place in places]
        states = [self.view.judged(sample) for sample in above + below]
        return hidden(len(above), len(below), states.count(GpuState.FREE))

    def _draw(
        self, alike: partial[gpu.GpuCard], sample: Sample, selected: bool, held: dict[str, list[Process]],
        cells: int, rows: int,
    ) -> list[Line]:  # fmt: skip
        view, uuid = self.view, sample.device.uuid
        run = view.epochs.run(sample.run) if sample.run else None
        processes = held.get(uuid, ())
        drawn = alike(sample=sample, run=run, processes=processes, state=view.judged(sample), selected=selected)
        return [gpu.line(drawn, cells)] if rows == 1 else gpu.card(drawn, cells, rows)


def _join(parts: list[Line], cells: int) -> Line:
    line: Line = []
    for part in parts:
        line += part
        line.append(Segment(" " * (cells - length(part) + GAP)))
    return line
