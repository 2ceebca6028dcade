"""The pane of a running cell: each GPU now and over the last minutes, and the runs of the notebook."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from html import escape

from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import BY_KEY, GPU_BY_KEY, Column
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import Availability, Unit
from gpumon.notebook.cell_report import gpu_name, html_table
from gpumon.reports.text_table import SEPARATOR, draw, text_column

COLUMNS: tuple[Column, ...] = (
    GPU_BY_KEY["gpu"], BY_KEY["utilization_mean"], GPU_BY_KEY["memory_used"], GPU_BY_KEY["power"],
    GPU_BY_KEY["temperature"],
)  # fmt: skip
_SECONDS = 120.0
"""Seconds shown by the chart of a GPU."""
_STEP = 0.9
"""Minimum seconds between two points of the chart."""
_WIDTH, _HEIGHT = 240, 20
_MAX_METRICS = 4
_NAME_LENGTH = 40


class Pane:
    """The newest frames as a table. Updated in place while a cell runs.

    `is_member`: function that returns whether a process (pid) belongs to the notebook.
    """

    def __init__(self, is_member: Callable[[int], bool]) -> None:
        self._is_member = is_member
        self._newest: Frame | None = None
        self._points: dict[str, deque[tuple[float, float]]] = {}
        """Points of each GPU's chart, by UUID: seconds since 1970 and utilization."""
        self.problem = ""
        """Why there are no values, or no new ones. Shown below the table, or instead of it."""

    def add(self, frames: Sequence[Frame]) -> None:
        """Add new frames, oldest first."""
        for frame in frames:
            self._newest = frame
            for sample in frame.samples:
                points = self._points.setdefault(sample.device.uuid, deque())
                value = sample.value("gpu.utilization")
                if is_known(value) and not (points and frame.time - points[-1][0] < _STEP):
                    points.append((frame.time, value))
                while points and frame.time - points[0][0] > _SECONDS:
                    points.popleft()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def text(self) -> str:
        """Return the GPUs and runs as plain text."""
        rows = [_cells(sample) for sample in self._samples()]
        lines = list(draw([text_column(column) for column in COLUMNS], rows)) if rows else []
        return "\n".join([*lines, *self._notes()])

    def html(self) -> str:
        rows = [_cells(sample) for sample in self._samples()]
        if not rows:
            return "".join(f"<div>{escape(line)}</div>" for line in self._notes())
        charts = [self._chart(sample.device.uuid) for sample in self._samples()]
        return html_table(COLUMNS, rows, list(self._notes()), charts)

    def _samples(self) -> list[Sample]:
        samples = self._newest.samples if self._newest else ()
        return [sample for sample in samples if not sample.device.is_divided]

    def _notes(self) -> Iterator[str]:
        """Yield the lines below the table: the running runs of the notebook, and the problem if there is one."""
        for run in self._newest.runs if self._newest else ():
            if run.state is RunState.RUNNING and run.pid and self._is_member(run.pid):
                yield SEPARATOR.join(_run_parts(run))
        if self.problem:
            yield self.problem

    def _chart(self, uuid: str) -> str:
        """Return the utilization of a GPU over time as an SVG in the color of the text."""
        end = self._newest.time if self._newest else 0.0
        points = [
            f"{_WIDTH * (1 - (end - time) / _SECONDS):.0f},{_HEIGHT - 1 - (_HEIGHT - 2) * value:.1f}"
            for time, value in self._points.get(uuid, ())
        ]
        return (
            f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="utilization of the last two minutes">'
            f'<polyline points="{" ".join(points)}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        )


def _cells(sample: Sample) -> list[str]:
    name = gpu_name(sample.device.label, sample.device.name)
    if sample.state is not Availability.OK:
        return [name, sample.reason, "", "", ""]
    used, total = sample.value("gpu.memory_used"), sample.value("gpu.memory_total")
    memory = units.number(used, Unit.BYTES)
    return [
        name,
        units.number(sample.value("gpu.utilization"), Unit.RATIO),
        f"{memory} of {units.number(total, Unit.BYTES)}" if is_known(total) else memory,
        units.number(sample.value("gpu.power"), Unit.WATTS),
        units.number(sample.value("gpu.temperature"), Unit.CELSIUS),
    ]


def _run_parts(run: Run) -> Iterator[str]:
    yield clean(run.name, _NAME_LENGTH)
    if run.epoch >= 0:
        yield f"epoch {run.epoch_text}"
    if run.step_text:
        yield f"step {run.step_text}"
    if run.phase:
        yield clean(run.phase, _NAME_LENGTH)
    for name in list(run.metrics)[:_MAX_METRICS]:
        yield f"{clean(name, _NAME_LENGTH)} {units.logged_number(run.metrics[name])}"
