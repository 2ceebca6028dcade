"""The heading of the chart page: metric, GPU and time, with clickable areas."""

from __future__ import annotations

from rich.segment import Segment

from gpumon.model import units
from gpumon.storage.history.query import HOST, Query
from gpumon_tui import theme
from gpumon_tui.render.gpu_status import level
from gpumon_tui.render.text_width import ClickRange, Line, cut, length, safe
from gpumon_tui.render.time_axis import column_text, window_text
from gpumon_tui.screens.chart.board import legend_row
from gpumon_tui.screens.chart.layouts import WIDE
from gpumon_tui.screens.chart.readout import readout_line
from gpumon_tui.screens.chart.state import ChartState
from gpumon_tui.widgets.lines import Lines

_KEY = theme.ink("key", bold=True)
_WHOSE = theme.ink("text", bold=True)
_BUTTONS = {"‹ ": "pan(-1)", " ›": "pan(1)", "− ": "zoom(1)", " +": "zoom(-1)"}
"""Clickable texts of the title, with their actions."""


class ChartHeading(Lines):
    """The title, and the readout below it if there is no room for a panel."""

    DEFAULT_CSS = "ChartHeading { height: 1; }"

    def __init__(self, state: ChartState) -> None:
        super().__init__(state.view)
        self.state = state

    def lines(self) -> list[Line]:
        plan, cells = self.state.plan, self.size.width
        if self.view.frame is None:
            return [[]]
        line, self.click_ranges = title(self.state, cells)
        readout_lines: list[Line] = [] if plan.panel_cells else [cut(readout_line(self.state, cells), cells)]
        readout_lines += [cut(legend_row(self.state, cells), cells)] if plan.legend else []
        return [[], line, *readout_lines, []] if plan.has_blanks else [line, *readout_lines]


def title(state: ChartState, cells: int) -> tuple[Line, list[ClickRange]]:
    """Return the title line and its clickable areas; parts that also appear elsewhere are dropped first."""
    plan = state.plan
    margin, width = (2 if cells >= WIDE else 1), plan.left + plan.cells
    name, subject = state.metric.title, _subject(state)
    own_parts: Line = [Segment(" " * margin), Segment(name, theme.STRONG), Segment("   "), Segment(subject, _WHOSE)]
    now, times, zoom, column = _now(state), _times(state), _zoom(state), _column(state)
    value = [Segment("   "), *now[1:]]
    forms = (
        ([*own_parts, *_run(state), *now], [*times, *zoom, *column]), ([*own_parts, *now], [*times, *zoom, *column]),
        ([*own_parts, *now], [*times, *zoom]), ([*own_parts, *now], [*zoom, *column]), ([*own_parts, *now], zoom),
        *([([*own_parts, *value], zoom)] if now else []),
        ([*own_parts, *(_unit(state) if cells < WIDE else ())], zoom), (own_parts, zoom),
    )  # fmt: skip
    left, right = next((form for form in forms if length(form[0]) + length(form[1]) + 2 <= width), forms[-1])
    left = cut(left, max(0, width - length(right) - 1))
    begin = width - length(right)
    position = margin + len(name) + 3
    row = plan.has_blanks
    ranges = [
        ClickRange(margin, position - 3, "choose", row),
        ClickRange(position, position + len(subject), "subject(1)", row),
    ]
    position = begin
    for text, _, _ in right:
        if text in _BUTTONS:
            ranges.append(ClickRange(position, position + len(text), _BUTTONS[text], row))
        position += len(text)
    return [*left, Segment(" " * max(0, begin - length(left))), *right], ranges


def _now(state: ChartState) -> Line:
    """Return the current value; empty while the past is shown."""
    view, metric = state.view, state.metric
    if view.chart_time.is_past:
        return []
    now = state.now(view.subject, metric.name)
    badness = level(metric, now, view.limit_of(metric))
    style = theme.LEVELS[badness] if badness else theme.STRONG
    return [Segment(f"   {state.newest} ", theme.FAINT), Segment(units.metric(now, metric), style)]


def _unit(state: ChartState) -> Line:
    """Return the unit of the axis, if no value in the title shows it."""
    return [Segment(f"   {state.large_axis.format.unit}", theme.DIM)]


def _times(state: ChartState) -> Line:
    grid, view = state.grid, state.view
    end = grid.end if view.chart_time.is_past else view.now
    return [Segment("‹ ", _KEY), Segment(_between(grid.begin, end), theme.PLAIN), Segment(" ›", _KEY), Segment("   ")]


def _zoom(state: ChartState) -> Line:
    return [Segment("− ", _KEY), Segment(window_text(state.view.window), theme.STRONG), Segment(" +", _KEY)]


def _column(state: ChartState) -> Line:
    """Return the duration of a column, and the resolution of the stored data if that is coarser."""
    grid, view = state.grid, state.view
    stretches = view.history.coarse(Query(view.subject, (state.metric.name,), grid.begin, view.now, grid=grid))
    coarse = [stretch for stretch in stretches if stretch.step > state.interval]
    resolution = ""
    if coarse:
        resolution = f", kept by {units.long_duration(max(stretch.step for stretch in coarse))}"
        end = max(stretch.end for stretch in coarse)
        if end < min(grid.end, view.now) - grid.step:
            moment = units.moment(end)
            resolution += f" before {moment[5:16] if grid.end - grid.begin >= 86400 else moment[11:16]}"
    return [Segment(f"   {column_text(grid.step)} a column{resolution}", theme.FAINT)]


def _subject(state: ChartState) -> str:
    if state.view.subject == HOST:
        return f"host {safe(state.view.hostname)}".rstrip()
    sample = state.view.sample
    return f"GPU {sample.device.label}" if sample else ""


def _run(state: ChartState) -> Line:
    """Return the subject's current run with rank and user; empty while the past is shown."""
    view = state.view
    if view.chart_time.is_past or view.subject == HOST:
        return []
    for status in view.statuses:
        if status.sample.device.uuid == view.subject and status.runs:
            ranks = status.runs[0]
            subject_ranks = [run for run in ranks.all if view.subject in run.gpus]
            rank = f"rank {subject_ranks[0].rank} of " if subject_ranks and ranks.is_distributed else ""
            name, user = safe(ranks.first.name), safe(ranks.first.user)
            return [Segment(f"   {rank}", theme.DIM), Segment(name, theme.RUN), Segment(f"   {user}", theme.DIM)]
    return []


def _between(begin: float, end: float) -> str:
    first, last = units.moment(begin), units.moment(end)
    if end - begin >= 86400:
        return f"{first[5:16]} – {last[5:16]}"
    return f"{first[11:]} – {last[11:]}"
