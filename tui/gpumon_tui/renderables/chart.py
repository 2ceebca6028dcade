"""A chart of one metric: title, epochs, area, time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon.analysis.epochs import EpochMark, Span
from gpumon.frame import Boundary
from gpumon.history.grid import Grid
from gpumon.history.query import Series
from gpumon.metrics import Metric
from gpumon_tui import theme
from gpumon_tui.freshness import NOW
from gpumon_tui.levels import level
from gpumon_tui.renderables.axis import lay, time_labels, value_labels
from gpumon_tui.renderables.braille import area
from gpumon_tui.renderables.buckets import columns
from gpumon_tui.renderables.marks import EpochAxis, epoch_row
from gpumon_tui.renderables.text_width import Line, fit, rule, width

PAINTED = 0.5
"""The share of a cell that phases take from which it is painted as phase."""
BEGINS = "history begins here"
BRIEF = 2
"""Cells below which a phase may have none that is painted: then those that it touches are tinted."""


class ChartCurve(NamedTuple):
    """The content of a chart."""

    metric: Metric
    subject: str
    """Owner of the metric, for the title."""
    read: Callable[[Grid], Series]
    """Asks the history what each column shows."""
    begin: float
    """When the oldest sample was (s since 1970), or NaN."""
    newest: float
    """The newest value, or NaN."""
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
    epochs_of: str = ""
    """Run whose epochs are marked, if the subject does not imply it."""
    edge: str = NOW
    """Label of the right edge: now, or the age of the newest sample."""


class Room(NamedTuple):
    """The division of a picture into cells."""

    rows: int
    """Of the area."""
    epochs: bool
    """Whether there is a row for them."""
    labels: dict[int, str]
    margin: int
    inner: int
    grid: Grid


def chart(curve: ChartCurve, cells: int, height: int) -> list[Line]:
    """The chart in `cells` × `height`; with less room it loses its labels first."""
    if not fits(cells, height):
        return []
    place = room(curve, cells, height)
    return [title(curve, cells), *picture(curve, place, epochs_of(curve, place))]


def fits(cells: int, height: int) -> bool:
    """Whether anything can be drawn."""
    return cells >= 16 and height >= 2


def room(curve: ChartCurve, cells: int, height: int) -> Room:
    """Where everything goes."""
    rows = height - 2
    epochs = bool(curve.marks or curve.faults) and rows > 1
    rows -= epochs
    labels = value_labels(curve.metric, curve.top, rows)
    margin = min(max([width(text) for text in labels.values()], default=4) + 1, cells // 2)
    inner = cells - margin
    return Room(
        rows=rows,
        epochs=epochs,
        labels=labels,
        margin=margin,
        inner=inner,
        grid=columns(curve.window, 2 * inner, curve.now),
    )


def title(curve: ChartCurve, cells: int) -> Line:
    """Return the title of a chart, with its newest value."""
    name: Line = [Segment(curve.metric.title, theme.TITLE), Segment(f"  {curve.subject}", theme.PLAIN)]
    if curve.epochs_of:
        name.append(Segment(f"  epochs of {curve.epochs_of}", theme.DIM))
    style = theme.LEVELS[level(curve.metric, curve.newest, curve.limit)]
    value = units.metric(curve.newest, curve.metric)
    window = f"last {units.ago(curve.window).removeprefix('-')}"
    return rule(name, [Segment(value, style), Segment(f"  {window}", theme.DIM)], cells, theme.RULE)


def epochs_of(curve: ChartCurve, place: Room, crowded: bool = False) -> EpochAxis:
    """The epochs of the picture; `crowded` as in the last one."""
    return epoch_row(curve.marks, place.grid, place.inner, curve.faults, crowded)


def picture(curve: ChartCurve, place: Room, row: EpochAxis) -> list[Line]:
    """All below the title."""
    rows, has_epochs, labels, margin, inner, grid = place
    lines: list[Line] = []
    if has_epochs:
        lines.append([Segment(" " * margin), *row.labels])
    series = curve.read(grid)
    dots = series.high if curve.metric.warn < float("inf") else series.mean
    pictures = area(dots, rows, curve.top) if rows > 0 else []
    for at, (dotted, style) in enumerate(zip(pictures, _row_styles(curve, rows), strict=True)):
        label = Segment(fit(labels.get(at, ""), margin - 1, right=True) + " ", theme.DIM)
        lines.append([label, *_with_epochs(dotted, row, style)])
    if rows > 0 and all(map(str.isspace, pictures)):  # a known value has at least one dot
        reason = (curve.missing or "no samples in this window").center(inner)[:inner]
        lines[-1 - rows // 2] = [Segment(" " * margin), Segment(reason, theme.DIM)]
    elif rows > 0:
        _tell_begin(lines, curve, place, pictures)
    lines.append([Segment(" " * margin), *_time_line(curve, grid, inner)])
    return lines


def _tell_begin(lines: list[Line], curve: ChartCurve, place: Room, pictures: Sequence[str]) -> None:
    """In the room before the oldest sample, why there is nothing."""
    free = place.grid.at(curve.begin) // 2
    row = -1 - place.rows // 2
    if free > len(BEGINS) + 2 and pictures[row][:free].isspace():
        label, *drawn = lines[row]
        rest: Line = []
        skipped = free
        for text, style, _ in drawn:
            rest.append(Segment(text[skipped:], style))
            skipped = max(0, skipped - len(text))
        lines[row] = [label, Segment(f"{BEGINS} ".rjust(free), theme.DIM), *rest]


def _row_styles(curve: ChartCurve, rows: int) -> list[Style]:
    """The hue of the metric; rows above a threshold of the table in its color."""
    styles = list(theme.ramp(theme.hue(curve.metric.name), rows))
    for row in range(rows):
        middle = curve.top * (rows - 0.5 - row) / rows
        badness = level(curve.metric, middle, curve.limit)
        if badness:
            styles[row] = theme.LEVELS[badness]
    return styles


def _with_epochs(picture: str, row: EpochAxis, style: Style) -> Line:
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


def _time_line(curve: ChartCurve, grid: Grid, cells: int) -> Line:
    """The axis; heavy where a run validated, tested or saved rather than trained, in a tint where that was brief."""
    styles = [theme.DIM] * cells
    ground = ["─"] * cells
    for cell, (share, brief) in _phases(curve, grid, cells).items():
        if share >= PAINTED:
            ground[cell], styles[cell] = "━", theme.PHASE
        elif brief:
            styles[cell] = theme.BRIEF_PHASE
    text = lay(time_labels(grid, cells, curve.now, curve.edge), "".join(ground))
    # Labels stand on the axis, and are not of its phases.
    inks = [style if letter in "─━" else theme.DIM for letter, style in zip(text, styles, strict=True)]
    line: Line = []
    begin = 0
    for end in range(1, cells + 1):
        if end == cells or inks[end] is not inks[begin]:
            line.append(Segment(text[begin:end], inks[begin]))
            begin = end
    return line


def _phases(curve: ChartCurve, grid: Grid, cells: int) -> dict[int, tuple[float, bool]]:
    """The share of each cell that is phase, and whether one of its phases is narrower than two cells."""
    found: dict[int, tuple[float, bool]] = {}
    for first, last in _merged(curve.spans):
        begin = max(0.0, (first - grid.begin) / grid.step / 2)
        end = min(float(cells), (min(last, curve.now) - grid.begin) / grid.step / 2)
        for cell in range(int(begin), ceil(end)):
            share, was_brief = found.get(cell, (0.0, False))
            share += min(end, cell + 1) - max(begin, cell)
            found[cell] = share, was_brief or end - begin < BRIEF
    return found


def _merged(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Begins and ends without overlaps: the ranks of a run validate at the same time."""
    found: list[tuple[float, float]] = []
    for begin, end, _ in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
