"""Details of one process: facts next to or above the charts of its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment

from gpumon_tui import palette
from gpumon_tui.render.axis import ValueAxis
from gpumon_tui.render.cells import PaintedCell, Row, Tint, to_line
from gpumon_tui.render.line_plot import PlotCurve, plot
from gpumon_tui.render.text_width import Line, cut, fit, length, width

SIDE_BY_SIDE_FROM = 100
"""Minimum width, in columns, at which facts are shown next to the charts."""
MIN_FACTS, MAX_FACTS = 40, 60
"""Minimum and maximum width, in columns, of the facts next to charts. In less than the minimum, memory and its peak
would be truncated.
"""
LABEL = 11
"""Width of the labels next to a chart."""
NAME = 12
"""Width of the name of a fact."""
MIN_CHART = 2
"""Minimum rows of a chart."""
PREFERRED_CHART, FIRST_CHARTS = 3, 3
"""Rows each of the first charts gets before further charts are added, and the number of first charts."""
SPLIT_ROWS = 15
"""Rows for a process below the table."""
_STRONG, _BOLD = palette.ink("strong", bold=True), palette.ink("text", bold=True)
_TEXT, _DIM, _FAINT = palette.ink("text"), palette.ink("dim"), palette.ink("faint")
_WARN = palette.ink("warn")
_KEY, _RULE = palette.ink("key", bold=True), palette.ink("rule")


class ProcessFact(NamedTuple):
    """A fact with its name."""

    name: str
    text: str
    role: str = "text"
    rows: int = 1
    """Maximum rows for a long text."""


class ProcessCurve(NamedTuple):
    """A chart of the process."""

    name: str
    now: str
    """The current value."""
    role: str
    curve: PlotCurve | None
    """None until it has been read."""
    axis: ValueAxis
    unit: str


class ProcessPicture(NamedTuple):
    """Content of the picture."""

    pid: int
    about: str
    gpu: str
    keys: Sequence[tuple[str, str]]
    """Keys shown at the right, with their descriptions."""
    facts: Sequence[ProcessFact]
    curves: Sequence[ProcessCurve]
    epochs: Line
    times: Line
    cells: int
    """Width of the charts."""
    note: str
    """Why there is no history (yet); empty if there is."""
    start_note: str = ""
    """Text in the first chart before its first point; empty if the process started there."""
    is_gone: bool = False
    """Whether the process has ended, so that everything shown is from the past."""


def chart_cells(cells: int, edge: int) -> int:
    """Return the width of the charts in a picture of the given width."""
    inner_cells = cells - 2 * edge - LABEL - 1
    return max(8, inner_cells - _facts_cells(cells) if cells >= SIDE_BY_SIDE_FROM else inner_cells)


def process_lines(process: ProcessPicture, margin: int, cells: int, rows: int) -> list[Line]:
    """Return the picture in the given number of rows; charts that do not fit are dropped, the last first."""
    lines: list[Line] = [_title(process, margin, cells)]
    if cells >= SIDE_BY_SIDE_FROM:
        facts = _facts(process, _facts_cells(cells), rows - 1)
        charts = _charts(process, rows - 1)
        for row in range(max(len(facts), len(charts))):
            left = facts[row] if row < len(facts) else []
            pad = Segment(" " * (_facts_cells(cells) - length(left)))
            lines.append([Segment(" " * margin), *left, pad, *(charts[row] if row < len(charts) else [])])
        return lines[:rows]
    facts = _facts(process, cells - 2 * margin, max(3, rows - 1 - 2 - 2 * (MIN_CHART + 1)))
    lines += [[Segment(" " * margin), *line] for line in facts]
    lines += [[Segment(" " * margin), *line] for line in _charts(process, rows - len(lines))]
    return lines[:rows]


def _facts_cells(cells: int) -> int:
    return min(MAX_FACTS, max(MIN_FACTS, cells // 3))


def _title(process: ProcessPicture, margin: int, cells: int) -> Line:
    keys: Line = []
    for key, description in process.keys:
        keys += [Segment("   " if keys else " "), Segment(key, _KEY), Segment(f" {description}", _DIM)]
    pid, text, gpu = (_DIM, _DIM, _DIM) if process.is_gone else (_STRONG, _TEXT, _BOLD)
    line: Line = [
        Segment(" " * margin), Segment(str(process.pid), pid), Segment(f"  {process.about}   ", text),
        Segment(process.gpu, gpu),
        *([Segment("  ended", _WARN)] if process.is_gone else []),
    ]  # fmt: skip
    room = cells - margin - length(keys)
    if length(line) + 4 > room:
        return cut(line, cells - margin)
    return [*line, Segment(" " + "─" * (room - length(line) - 2) + " ", _RULE), *keys]


def _facts(process: ProcessPicture, cells: int, rows: int) -> list[Line]:
    lines: list[Line] = []
    room = max(1, cells - NAME - 2)
    for name, text, fact_role, max_rows in process.facts[:rows]:
        role = "dim" if process.is_gone and fact_role != "warn" else fact_role
        label, remaining = name, text
        for row in range(max_rows):
            is_last = row == max_rows - 1
            part = remaining if is_last else _whole_words(remaining, room)
            lines.append([Segment(fit(label, NAME), _FAINT), Segment(fit(part, room).rstrip(), palette.ink(role))])
            label, remaining = "", remaining[len(part) :].lstrip()
            if not remaining:
                break
    if len(lines) > rows > 0 and not lines[rows][0].text.strip():  # the rest of a text that started above
        last_segment, continuation = lines[rows - 1][1], lines[rows][1]
        lines[rows - 1][1] = Segment(fit(f"{last_segment.text} {continuation.text}", room).rstrip(), last_segment.style)
    return lines[:rows]


def _whole_words(text: str, cells: int) -> str:
    """Return as many whole words as fit; a longer word is split."""
    if width(text) <= cells:
        return text
    length = next(length for length in range(len(text), 0, -1) if width(text[:length]) <= cells)
    word_end = text.rfind(" ", 0, length + 1)
    return text[:word_end] if word_end > 0 else text[:length]


def _charts(process: ProcessPicture, rows: int) -> list[Line]:
    """Return the epochs, the charts below each other, and the time axis."""
    blank: Line = [Segment(" " * (LABEL + 1))]
    inner = rows - 2
    count = max(
        1, min(inner // (MIN_CHART + 1), max(FIRST_CHARTS, inner // (PREFERRED_CHART + 1)), len(process.curves))
    )
    chart_rows = max(1, min(12, (inner - (count - 1)) // count))
    lines: list[Line] = [[*blank, *process.epochs]]
    for index, curve in enumerate(process.curves[:count]):
        if index:
            lines.append([])
        lines += _chart(curve, chart_rows, process, is_first=index == 0)
    return [*lines, [*blank, *process.times]]


def _write_note(row: Row, curve: PlotCurve, text: str) -> None:
    """Write `text` before the first point of a curve, if there is room."""
    first = next(index for index, value in enumerate(curve.high) if value == value)
    begin = first * len(row) // len(curve.high) - len(text) - 1
    if text and begin >= 0:
        row[begin : begin + len(text)] = [PaintedCell(letter, Tint("dim")) for letter in text]


def _chart(curve: ProcessCurve, rows: int, process: ProcessPicture, is_first: bool) -> list[Line]:
    scale = curve.axis.format
    top = f"0–{curve.axis.high / scale.divisor:.4g} {curve.unit}"
    labels = [(curve.now, _DIM if process.is_gone else _STRONG), (curve.name, _DIM), (top, _FAINT)]
    # NaN != NaN; no call of is_known, as in plot
    if curve.curve is None or all(value != value for value in curve.curve.high):
        plot_lines: list[Line] = [[] for _ in range(rows)]
        plot_lines[rows // 2] = [Segment(fit(process.note, process.cells).rstrip() if is_first else "", _DIM)]
    else:
        cells = plot(curve.curve, curve.axis, rows, curve.role)
        if is_first:
            _write_note(cells[rows // 2], curve.curve, process.start_note)
        plot_lines = [to_line(row) for row in cells]
    lines = []
    for index, line in enumerate(plot_lines):
        text, style = labels[index] if index < len(labels) else ("", _DIM)
        lines.append([Segment(fit(text, LABEL, right=True), style), Segment(" "), *line])
    return lines
