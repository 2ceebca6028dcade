"""All GPUs, as cards or as lines; one widget, since many small ones cost a layout each."""

from __future__ import annotations

from math import ceil

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon.frame import Process, Sample
from gpumon_tui.layout import Plan
from gpumon_tui.memo import Memo
from gpumon_tui.renderables import gpu
from gpumon_tui.renderables.cells import Line, length
from gpumon_tui.renderables.header import problem
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

GAP = 2
"""Cells between two GPUs side by side."""


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

    def lines(self) -> list[Line]:
        samples = self.view.samples
        if not samples:
            reason = self.view.origin.problem or self.view.state.text
            return problem(reason, self.size.width)
        if self.plan is None:
            return []
        held: dict[str, list[Process]] = {}
        for process in self.view.processes:
            held.setdefault(process.uuid, []).append(process)
        self._pictures.keep({sample.device.uuid for sample in samples})
        rows, cells, subject = self.plan.card_rows, self._cells(), self.view.subject
        lines: list[Line] = []
        for places in self._grid():
            across = [
                self._draw(samples[place], samples[place].device.uuid == subject, held, cells, rows) for place in places
            ]
            for row in range(rows):
                lines.append(_join([drawn[row] for drawn in across], cells))
        return lines[: self.size.height]

    def on_click(self, event: events.Click) -> None:
        """Select the GPU under the mouse."""
        if self.plan is None:
            return
        grid, row, column = self._grid(), event.y // self.plan.card_rows, event.x // (self._cells() + GAP)
        if row < len(grid) and column < len(grid[row]):
            self.post_message(self.Selected(self.view.samples[grid[row][column]].device.uuid))

    def _cells(self) -> int:
        columns = self.plan.columns if self.plan else 1
        return (self.size.width - GAP * (columns - 1)) // columns

    def _grid(self) -> list[list[int]]:
        """Places of the GPUs by row: cards read across, lines read down.

        Where not all fit, the selected one is among those on screen.
        """
        if self.plan is None:
            return []
        count, columns = len(self.view.samples), self.plan.columns
        if self.plan.card_rows > 1:
            grid = [list(range(first, min(first + columns, count))) for first in range(0, count, columns)]
        else:
            down = ceil(count / columns)
            grid = [list(range(row, count, down)) for row in range(down)]
        shown = max(1, self.size.height // self.plan.card_rows)
        subject = self.view.subject
        selected = next((i for i, s in enumerate(self.view.samples) if s.device.uuid == subject), 0)
        row = next(i for i, places in enumerate(grid) if selected in places)
        first = max(0, row - shown + 1)
        return grid[first : first + shown]

    def _draw(
        self, sample: Sample, selected: bool, held: dict[str, list[Process]], cells: int, rows: int
    ) -> list[Line]:
        view, uuid = self.view, sample.device.uuid
        run = view.epochs.run(sample.run) if sample.run else None
        processes = held.get(uuid, ())
        drawn = gpu.Gpu(
            sample, run, processes, view.judged(sample, processes), view.age,
            view.history, view.now, view.window, view.state.interval, selected, view.filling, self._pictures,
        )  # fmt: skip
        return [gpu.line(drawn, cells)] if rows == 1 else gpu.card(drawn, cells, rows)


def _join(parts: list[Line], cells: int) -> Line:
    line: Line = []
    for part in parts:
        line += part
        line.append(Segment(" " * (cells - length(part) + GAP)))
    return line
