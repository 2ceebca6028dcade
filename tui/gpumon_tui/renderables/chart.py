"""A chart of one metric: title, epochs, area, time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon.epochs import EpochMark, Span
from gpumon.frame import Boundary
from gpumon.metrics import Metric
from gpumon_tui import theme
from gpumon_tui.freshness import NOW
from gpumon_tui.levels import level
from gpumon_tui.renderables.axis import lay, time_labels, value_labels
from gpumon_tui.renderables.braille import area
from gpumon_tui.renderables.buckets import Columns, columns, fill
from gpumon_tui.renderables.cells import Line, fit, rule, width
from gpumon_tui.renderables.marks import EpochRow, epoch_row


class Curve(NamedTuple):
    """What a chart shows."""

    metric: Metric
    subject: str
    """Whose metric it is, for the title."""
    times: Sequence[float]
    values: Sequence[float]
    now: float
    window: float
    interval: float
    top: float
    limit: float
    marks: Sequence[EpochMark]
    spans: Sequence[Span]
    missing: str = ""
    """Why there are no values, for people."""
    faults: Sequence[Boundary] = ()
    """Out-of-memory errors."""
    edge: str = NOW
    """What the right edge is: now, or how long ago the newest sample was."""


class Room(NamedTuple):
    """How the cells of a picture are shared out."""

    rows: int
    """Of the area."""
    epochs: bool
    """Whether there is a row for them."""
    labels: dict[int, str]
    margin: int
    inner: int
    grid: Columns


def chart(curve: Curve, cells: int, height: int) -> list[Line]:
    """The chart in `cells` × `height`; with less room it loses its labels first."""
    if not fits(cells, height):
        return []
    return [title(curve, cells), *picture(curve, room(curve, cells, height))]


def fits(cells: int, height: int) -> bool:
    """Whether anything can be drawn."""
    return cells >= 16 and height >= 2


def room(curve: Curve, cells: int, height: int) -> Room:
    """Where everything goes."""
    rows = height - 2
    epochs = bool(curve.marks or curve.faults) and rows > 1
    rows -= epochs
    labels = value_labels(curve.metric, curve.top, rows)
    margin = min(max([width(text) for text in labels.values()], default=4) + 1, cells // 2)
    inner = cells - margin
    return Room(rows, epochs, labels, margin, inner, columns(curve.window, 2 * inner, curve.now))


def title(curve: Curve, cells: int) -> Line:
    """What it shows, and the newest value."""
    newest = curve.values[-1] if curve.values else float("nan")
    name: Line = [Segment(curve.metric.title, theme.TITLE), Segment(f"  {curve.subject}", theme.PLAIN)]
    style = theme.LEVELS[level(curve.metric, newest, curve.limit)]
    value = units.metric(newest, curve.metric)
    window = f"last {units.ago(curve.window).removeprefix('-')}"
    return rule(name, [Segment(value, style), Segment(f"  {window}", theme.DIM)], cells, theme.RULE)


def picture(curve: Curve, place: Room) -> list[Line]:
    """All below the title."""
    rows, has_epochs, labels, margin, inner, grid = place
    lines: list[Line] = []
    row = epoch_row(curve.marks, grid, inner, curve.faults)
    if has_epochs:
        lines.append([Segment(" " * margin), *row.labels])
    dots = fill(curve.times, curve.values, grid, 2.2 * curve.interval, peaks=curve.metric.warn < float("inf"))
    pictures = area(dots, rows, curve.top) if rows > 0 else []
    for at, (dotted, style) in enumerate(zip(pictures, _row_styles(curve, rows), strict=True)):
        label = Segment(fit(labels.get(at, ""), margin - 1, right=True) + " ", theme.DIM)
        lines.append([label, *_with_epochs(dotted, row, style)])
    if rows > 0 and all(map(str.isspace, pictures)):  # a known value has at least one dot
        reason = (curve.missing or "no samples in this window").center(inner)[:inner]
        lines[-1 - rows // 2] = [Segment(" " * margin), Segment(reason, theme.DIM)]
    lines.append([Segment(" " * margin), *_time_line(curve, grid, inner)])
    return lines


def _row_styles(curve: Curve, rows: int) -> list[Style]:
    """The hue of the metric; rows above a threshold of the table in its colour."""
    styles = list(theme.ramp(theme.hue(curve.metric.name), rows))
    for row in range(rows):
        middle = curve.top * (rows - 0.5 - row) / rows
        badness = level(curve.metric, middle, curve.limit)
        if badness:
            styles[row] = theme.LEVELS[badness]
    return styles


def _with_epochs(picture: str, row: EpochRow, style: Style) -> Line:
    line: Line = []
    done = 0
    for cell, upright in row.lines:
        if cell > done:
            line.append(Segment(picture[done:cell], style))
        line.append(upright)
        done = cell + 1
    if done < len(picture):
        line.append(Segment(picture[done:], style))
    return line


def _time_line(curve: Curve, grid: Columns, cells: int) -> Line:
    """The axis; heavy where a run validated, tested or saved rather than trained."""
    ground = ["─"] * cells
    for span in curve.spans:
        for cell in range(max(0, grid.at(span.begin) // 2), min(cells, -(-grid.at(min(span.end, curve.now)) // 2))):
            ground[cell] = "━"
    text = lay(time_labels(grid, cells, curve.now, curve.edge), "".join(ground))
    if not curve.spans:
        return [Segment(text, theme.DIM)]
    line: Line = []
    begin = 0
    for end in range(1, cells + 1):
        if end == cells or (text[end] == "━") != (text[begin] == "━"):
            line.append(Segment(text[begin:end], theme.PHASE if text[begin] == "━" else theme.DIM))
            begin = end
    return line
