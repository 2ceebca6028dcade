"""A chart of one metric: title, epochs, area, time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
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
from gpumon.missing import NAN, is_known
from gpumon_tui import theme
from gpumon_tui.freshness import NOW
from gpumon_tui.levels import level
from gpumon_tui.renderables.axis import between, clock_labels, lay, time_labels, value_labels
from gpumon_tui.renderables.braille import area
from gpumon_tui.renderables.buckets import columns, standing
from gpumon_tui.renderables.envelope import EnvelopeRow, envelope
from gpumon_tui.renderables.marks import EpochAxis, epoch_row
from gpumon_tui.renderables.text_width import Line, cut, fit, length, rule, width

PAINTED = 0.5
"""The share of a cell that phases take from which it is painted as phase."""
BEGINS = "history begins here"
_LEAST_NAME = 20
"""Cells that are left for the name of a chart in the past, where it says more than its times."""
BRIEF = 2
"""Cells below which a phase may have none that is painted: then those that it touches are tinted."""
SEVERAL = 5.0
"""Intervals between samples from which a column shows its lowest and its highest value too. Shorter ones, as in the
usual window, do without: that would cost CPU each second, and zooming in shows every sample."""


class ChartCurve(NamedTuple):
    """The content of a chart."""

    metric: Metric
    subject: str
    """Owner of the metric, for the title."""
    read: Callable[[Grid], Series]
    """Asks the history what each column shows."""
    cell: Callable[[Grid], float]
    """Asks it for the seconds of the cells that are kept of most of that time; 0 of samples."""
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
    end: float = NAN
    """Where the window ends (s since 1970), if it stands still in the past; else NaN."""


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
    return [title(curve, cells, place.grid), *picture(curve, place, epochs_of(curve, place))]


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
        grid=standing(curve.window, 2 * inner, curve.end)
        if is_known(curve.end)
        else columns(curve.window, 2 * inner, curve.now),
    )


def title(curve: ChartCurve, cells: int, grid: Grid) -> Line:
    """Return the title of a chart, with its newest value; of one in the past with its times instead.

    Where cells of kept history are longer than samples and the columns of `grid`, it says how long, if there is room.
    """
    name: Line = [Segment(curve.metric.title, theme.TITLE), Segment(f"  {curve.subject}", theme.PLAIN)]
    if curve.epochs_of:
        name.append(Segment(f"  epochs of {curve.epochs_of}", theme.DIM))
    if is_known(curve.end):
        times: Line = [Segment(f"past  {between(curve.end - curve.window, curve.end)}", theme.WARN)]
        if cells >= length(times) + length(coarse := _coarse(curve, grid)) + _LEAST_NAME:
            times = [*coarse, *times]
        return rule(cut(name, max(0, cells - length(times) - 7)), times, cells, theme.RULE)
    style = theme.LEVELS[level(curve.metric, curve.newest, curve.limit)]
    value = units.metric(curve.newest, curve.metric)
    window = f"last {units.ago(curve.window).removeprefix('-')}"
    right: Line = [Segment(value, style), Segment(f"  {window}", theme.DIM)]
    if cells >= length(name) + length(right) + length(coarse := _coarse(curve, grid)) + 7:
        right = [*coarse, *right]
    return rule(name, right, cells, theme.RULE)


def _coarse(curve: ChartCurve, grid: Grid) -> Line:
    cell = curve.cell(grid)
    return [Segment(f"means of {units.words(cell)}  ", theme.WARN)] if cell > max(grid.step, curve.interval) else []


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
    drawn = _rows(curve, series, rows) if rows > 0 else []
    pictures = [text for text, _ in drawn]
    for at, ((dotted, faint), style) in enumerate(zip(drawn, _row_styles(curve, rows), strict=True)):
        label = Segment(fit(labels.get(at, ""), margin - 1, right=True) + " ", theme.DIM)
        lines.append([label, *_with_epochs(dotted, row, style, () if style in theme.LEVELS else faint)])
    if rows > 0 and all(map(str.isspace, pictures)):  # a known value has at least one dot
        reason = (curve.missing or "no samples in this window").center(inner)[:inner]
        lines[-1 - rows // 2] = [Segment(" " * margin), Segment(reason, theme.DIM)]
    elif rows > 0:
        _tell_begin(lines, curve, place, pictures)
    lines.append([Segment(" " * margin), *_time_line(curve, grid, inner)])
    return lines


def _rows(curve: ChartCurve, series: Series, rows: int) -> list[EnvelopeRow]:
    """The area from the top down; columns of many samples show their extremes, others their mean or their peak."""
    if series.step > SEVERAL * curve.interval:
        return envelope(series.low, series.mean, series.high, rows, curve.top)
    dots = series.high if curve.metric.warn < float("inf") else series.mean
    return [EnvelopeRow(text, ()) for text in area(dots, rows, curve.top)]


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


def _with_epochs(picture: str, row: EpochAxis, style: Style, faint: Sequence[bool] = ()) -> Line:
    line: Line = []
    done = 0
    for cell, upright in row.lines:
        if cell > done:
            line += _inked(picture, done, cell, style, faint)
        line.append(upright)
        done = cell + 1
    if done < len(picture):
        line += _inked(picture, done, len(picture), style, faint)
    return line


def _inked(picture: str, begin: int, end: int, style: Style, faint: Sequence[bool]) -> Line:
    """A part of a row; cells above the lowest value are nearer to the ground."""
    if not any(faint[begin:end]):
        return [Segment(picture[begin:end], style)]
    line: Line = []
    for is_faint, cells in groupby(range(begin, end), faint.__getitem__):
        text = "".join(picture[cell] for cell in cells)
        line.append(Segment(text, theme.faint(style) if is_faint else style))
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
    past = is_known(curve.end)
    labels = clock_labels(grid, cells) if past else time_labels(grid, cells, curve.now, curve.edge)
    text = lay(labels, "".join(ground))
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
