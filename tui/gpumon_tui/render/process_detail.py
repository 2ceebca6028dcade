"""Details of one process: facts next to or above the charts of its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment

from gpumon_tui import palette
from gpumon_tui.render.axis import ValueAxis
from gpumon_tui.render.cells import PaintedCell, Row, Tint, painted
from gpumon_tui.render.line_plot import PlotCurve, plot
from gpumon_tui.render.text_width import Line, cut, fit, length, width

BESIDE_FROM = 100
"""Width from which facts are shown next to the charts."""
LEAST_FACTS, MAX_FACTS = 40, 60
"""Width of the facts next to charts; with less than the minimum, memory and its peak would be truncated."""
LABEL = 11
"""Width of the labels next to a chart."""
NAME = 12
"""Width of the name of a fact."""
LEAST_CHART = 2
"""Minimum rows of a chart."""
GOOD_CHART, FIRST_CHARTS = 3, 3
"""Rows each of the first charts gets before further charts are added, and the number of first charts."""
SPLIT_ROWS = 15
"""Rows for a process below the table."""
_STRONG, _BOLD = palette.ink("strong", bold=True), palette.ink("text", bold=True)
_TEXT, _DIM, _FAINT = palette.ink("text"), palette.ink("dim"), palette.ink("faint")
_WARN = palette.ink("warn")
_KEY, _RULE = palette.ink("key", bold=True), palette.ink("rule")


class KnownFact(NamedTuple):
    """A fact with its name."""

    name: str
    text: str
    role: str = "text"
    rows: int = 1
    """Maximum rows for a long text."""


class TrailCurve(NamedTuple):
    """A chart of the process."""

    name: str
    now: str
    """The current value."""
    role: str
    curve: PlotCurve | None
    """None until it has been read."""
    axis: ValueAxis
    unit: str


class OpenedProcess(NamedTuple):
    """Content of the picture."""

    pid: int
    about: str
    gpu: str
    keys: Sequence[tuple[str, str]]
    """Keys shown at the right, with their descriptions."""
    facts: Sequence[KnownFact]
    curves: Sequence[TrailCurve]
    epochs: Line
    times: Line
    cells: int
    """Width of the charts."""
    said: str
    """Why there is no history (yet); empty if there is."""
    begins: str = ""
    """Text in the first chart before its first point; empty if the process started there."""
    is_gone: bool = False
    """Whether the process has ended, so that everything shown is from the past."""


def chart_cells(cells: int, edge: int) -> int:
    """Return the width of the charts in a picture of the given width."""
    wide = cells - 2 * edge - LABEL - 1
    return max(8, wide - _facts_cells(cells) if cells >= BESIDE_FROM else wide)


def opened(of: OpenedProcess, edge: int, cells: int, rows: int) -> list[Line]:
    """Return the picture in the given number of rows; charts that do not fit are dropped, the last first."""
    lines: list[Line] = [_title(of, edge, cells)]
    if cells >= BESIDE_FROM:
        facts = _facts(of, _facts_cells(cells), rows - 1)
        charts = _charts(of, rows - 1)
        for place in range(max(len(facts), len(charts))):
            left = facts[place] if place < len(facts) else []
            pad = Segment(" " * (_facts_cells(cells) - length(left)))
            lines.append([Segment(" " * edge), *left, pad, *(charts[place] if place < len(charts) else [])])
        return lines[:rows]
    facts = _facts(of, cells - 2 * edge, max(3, rows - 1 - 2 - 2 * (LEAST_CHART + 1)))
    lines += [[Segment(" " * edge), *line] for line in facts]
    lines += [[Segment(" " * edge), *line] for line in _charts(of, rows - len(lines))]
    return lines[:rows]


def _facts_cells(cells: int) -> int:
    return min(MAX_FACTS, max(LEAST_FACTS, cells // 3))


def _title(of: OpenedProcess, edge: int, cells: int) -> Line:
    keys: Line = []
    for key, does in of.keys:
        keys += [Segment("   " if keys else " "), Segment(key, _KEY), Segment(f" {does}", _DIM)]
    pid, text, gpu = (_DIM, _DIM, _DIM) if of.is_gone else (_STRONG, _TEXT, _BOLD)
    line: Line = [
        Segment(" " * edge), Segment(str(of.pid), pid), Segment(f"  {of.about}   ", text), Segment(of.gpu, gpu),
        *([Segment("  ended", _WARN)] if of.is_gone else []),
    ]  # fmt: skip
    room = cells - edge - length(keys)
    if length(line) + 4 > room:
        return cut(line, cells - edge)
    return [*line, Segment(" " + "─" * (room - length(line) - 2) + " ", _RULE), *keys]


def _facts(of: OpenedProcess, cells: int, rows: int) -> list[Line]:
    lines: list[Line] = []
    room = max(1, cells - NAME - 2)
    for name, text, usual, most in of.facts[:rows]:
        role = "dim" if of.is_gone and usual != "warn" else usual
        begin, left = name, text
        for row in range(most):
            is_last = row == most - 1
            part = left if is_last else _beginning(left, room)
            lines.append([Segment(fit(begin, NAME), _FAINT), Segment(fit(part, room).rstrip(), palette.ink(role))])
            begin, left = "", left[len(part) :].lstrip()
            if not left:
                break
    if len(lines) > rows > 0 and not lines[rows][0].text.strip():  # the rest of a text that started above
        last, rest = lines[rows - 1][1], lines[rows][1]
        lines[rows - 1][1] = Segment(fit(f"{last.text} {rest.text}", room).rstrip(), last.style)
    return lines[:rows]


def _beginning(text: str, cells: int) -> str:
    """Return as many whole words as fit; a longer word is split."""
    if width(text) <= cells:
        return text
    cut_off = next(place for place in range(len(text), 0, -1) if width(text[:place]) <= cells)
    at = text.rfind(" ", 0, cut_off + 1)
    return text[:at] if at > 0 else text[:cut_off]


def _charts(of: OpenedProcess, rows: int) -> list[Line]:
    """Return the epochs, the charts below each other, and the time axis."""
    blank: Line = [Segment(" " * (LABEL + 1))]
    inner = rows - 2
    many = max(1, min(inner // (LEAST_CHART + 1), max(FIRST_CHARTS, inner // (GOOD_CHART + 1)), len(of.curves)))
    each = max(1, min(12, (inner - (many - 1)) // many))
    lines: list[Line] = [[*blank, *of.epochs]]
    for place, one in enumerate(of.curves[:many]):
        if place:
            lines.append([])
        lines += _chart(one, each, of, is_first=place == 0)
    return [*lines, [*blank, *of.times]]


def _note_begin(row: Row, curve: PlotCurve, text: str) -> None:
    """Write a text before the first point of a curve, if there is room."""
    first = next(place for place, value in enumerate(curve.high) if value == value)
    begin = first * len(row) // len(curve.high) - len(text) - 1
    if text and begin >= 0:
        row[begin : begin + len(text)] = [PaintedCell(letter, Tint("dim")) for letter in text]


def _chart(one: TrailCurve, rows: int, of: OpenedProcess, is_first: bool) -> list[Line]:
    scale = one.axis.shown
    top = f"0–{one.axis.high / scale.divisor:.4g} {one.unit}"
    labels = [(one.now, _DIM if of.is_gone else _STRONG), (one.name, _DIM), (top, _FAINT)]
    # NaN != NaN; no call of is_known, as in plot
    if one.curve is None or all(value != value for value in one.curve.high):
        drawn: list[Line] = [[] for _ in range(rows)]
        drawn[rows // 2] = [Segment(fit(of.said, of.cells).rstrip() if is_first else "", _DIM)]
    else:
        cells = plot(one.curve, one.axis, rows, one.role)
        if is_first:
            _note_begin(cells[rows // 2], one.curve, of.begins)
        drawn = [painted(row) for row in cells]
    lines = []
    for at, line in enumerate(drawn):
        text, style = labels[at] if at < len(labels) else ("", _DIM)
        lines.append([Segment(fit(text, LABEL, right=True), style), Segment(" "), *line])
    return lines
