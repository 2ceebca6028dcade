"""All charts of the page, stacked on one time grid."""

from __future__ import annotations

from string import ascii_lowercase

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Availability
from gpumon_tui import theme
from gpumon_tui.appearance import ColorDepth
from gpumon_tui.cache import Cache
from gpumon_tui.render.axis import ValueAxis, number_format
from gpumon_tui.render.cells import draw_cursor, draw_text, to_line
from gpumon_tui.render.line_plot import OverlaidLine, PlotCurve, plot
from gpumon_tui.render.strip import heat_scale, heat_strip
from gpumon_tui.render.text_width import READING_HISTORY, Line, fit, length, safe
from gpumon_tui.render.time_axis import draw_history_start, epochs_above, observed_halves, phases_below, times_below
from gpumon_tui.screens.chart.layouts import SMALL_NAMES, role_of
from gpumon_tui.screens.chart.state import UNKNOWN, ChartState, Overlay, ReadOut
from gpumon_tui.widgets.lines import Lines

_LINE = "⠒⠒"
_PEER_MARK, _OWN_MARK = "o", "#"
"""Markers for the line of the run's other GPUs, and for the own line if the GPU's number has several digits."""
_WORDS_FROM = 60
"""Width in cells from which there is room for words."""


def line_mark(state: ChartState, index: int) -> str:
    """Return the marker of an overlaid line on a terminal without colors; empty with colors, or if the lines are too
    many to mark.

    The marker is the GPU's number if all numbers have one digit.
    """
    if state.view.appearance.depth is not ColorDepth.NONE:
        return ""
    if state.overlay is Overlay.PEERS:
        return _PEER_MARK
    if state.role_at(index) == "faint":
        return ""
    labels = {sample.device.uuid: sample.device.label for sample in state.view.samples}
    if all(len(label) == 1 for label in labels.values()):
        return labels.get(state.overlaid[index], "")
    return ascii_lowercase[index % len(ascii_lowercase)]


def own_mark(state: ChartState) -> str:
    """Return the marker of the chart's own line on a terminal without colors; empty if there are no overlaid lines."""
    sample = state.view.sample
    if not state.overlaid or sample is None or state.view.appearance.depth is not ColorDepth.NONE:
        return ""
    return sample.device.label if len(sample.device.label) == 1 else _OWN_MARK


def combine_readouts(values: list[ReadOut]) -> ReadOut:
    """Combine read-outs: the minimum, the mean of the means, and the maximum."""
    available = [value for value in values if is_known(value.mean)]
    if not available:
        return UNKNOWN
    mean = sum(value.mean for value in available) / len(available)
    return ReadOut(min(value.low for value in available), mean, max(value.high for value in available))


def overlaid_values(state: ChartState) -> list[ReadOut]:
    """Return the values of the overlaid GPUs at the cursor, or the current ones."""
    name, readouts = state.metric.name, state.readouts()
    if readouts:
        return [readouts.get(uuid, {}).get(name, UNKNOWN) for uuid in state.overlaid]
    return [UNKNOWN._replace(mean=state.now(uuid, name)) for uuid in state.overlaid]


def peers_line(state: ChartState, cells: int) -> Line:
    """Return the legend and value of the line of the run's other GPUs; empty if there is none."""
    if state.overlay is not Overlay.PEERS or not state.overlaid:
        return []
    values = [value for value in overlaid_values(state) if is_known(value.mean)]
    mean = combine_readouts(values).mean
    value_format = number_format(state.metric, mean if is_known(mean) else 0.0)
    label_text = f" {'mean of ' if cells >= _WORDS_FROM else ''}{len(values)} peers " if values else " its peers "
    text = " its peer " if len(values) == 1 else label_text
    line = f"{_LINE[0]}{_PEER_MARK}{_LINE[1]}" if line_mark(state, 0) else _LINE
    return [
        Segment(f"  {line}", theme.FAINT),
        Segment(text, theme.DIM),
        Segment(f"{value_format.text(mean)} {value_format.unit}"),
    ]


def legend_row(state: ChartState, cells: int) -> Line:
    """Return the legend of the overlaid GPUs in their colors, with values if there is room."""
    margin = " " if cells < 100 else "  "
    labels = {value.device.uuid: value.device.label for value in state.view.samples}
    values = overlaid_values(state)
    value_format = number_format(
        state.metric, max((value.mean for value in values if is_known(value.mean)), default=0.0)
    )
    entries: list[tuple[str, str, str]] = [
        (
            state.role_at(index),
            _marked_label(line_mark(state, index), labels.get(uuid, "")),
            value_format.text(value.mean),
        )
        for index, (uuid, value) in enumerate(zip(state.overlaid, values, strict=True))
    ]
    colored = [value for value in entries if value[0] != "faint"]
    other_count = len(entries) - len(colored)
    head = [Segment(margin), Segment(f"{_LINE} GPU ", theme.DIM)]
    unit = (
        [Segment(value_format.unit if value_format.unit == "%" else f" {value_format.unit}", theme.FAINT)]
        if value_format.unit
        else []
    )
    other_text: Line = [Segment(f"  {_LINE} {other_count} others", theme.FAINT)] if other_count else []
    for line in (
        [*head, *_legend_entries(colored, "  ", has_values=True), *unit, *other_text],
        [*head, *_legend_entries(colored, "  ", has_values=False), *other_text],
    ):
        if length(line) <= cells:
            return line
    return [Segment(margin), *_legend_entries(colored, " ", has_values=False), *other_text]


def _marked_label(mark: str, label: str) -> str:
    """Return the GPU's label, preceded by the marker of its line (`marker=label`) if the marker differs from the
    label.
    """
    return f"{mark}={label}" if mark not in ("", label) else label


def _legend_entries(entries: list[tuple[str, str, str]], gap: str, *, has_values: bool) -> Line:
    line: Line = []
    for role, label, value in entries:
        line.append(Segment(f"{gap if line else ''}{label}", theme.ink(role, bold=True)))
        if has_values:
            line.append(Segment(f" {value}", theme.PLAIN))
    return line


_CHIP = theme.ink("ground", "key", bold=True)
_REPLACEABLE = " ▁▂▃▄▅▆▇█▌·─"
"""Glyphs that the cursor line may replace: everything except lines and letters."""


class ChartBoard(Lines):
    """Draws the charts; redrawn when a column is complete or the content changes."""

    DEFAULT_CSS = "ChartBoard { height: 100%; width: 1fr; }"

    def __init__(self, state: ChartState) -> None:
        super().__init__(state.view)
        self.state = state
        self._cache: Cache[list[Line]] = Cache()
        self._with_cursor: Cache[list[Line]] = Cache()

    def lines(self) -> list[Line]:
        state, view = self.state, self.view
        if view.frame is None:
            return [[], [Segment("  "), Segment(safe(view.freshness.text), theme.DIM)]]
        marks, _ = view.chart_epochs()
        edge = "" if view.chart_time.is_past else view.freshness.edge
        inputs = (
            state.plan, state.grid, state.until, state.metric.name, view.subject, state.overlay,
            view.is_loading and view.history.end, marks.marks, marks.spans, marks.faults, edge,
            str(view.limit_of(state.metric)), len(view.samples), state.interval, tuple(state.overlaid),
        )  # fmt: skip
        base = self._cache.get(0, inputs, lambda: board(state))
        return self._with_cursor.get(0, (id(base), state.cursor, state.grid), lambda: with_cursor(state, base))


def board(state: ChartState) -> list[Line]:
    """Return all rows, from the epoch marks to the last small chart."""
    plan, view, grid = state.plan, state.view, state.grid
    marks, _ = view.chart_epochs()
    curves = state.curves()
    margin: Line = [Segment(" " * plan.left)]
    lines: list[Line] = [margin + epochs_above(marks.marks, grid, marks.faults)]
    curve = curves[state.metric.name]
    lines += _large(state, curve, state.large_axis)
    lines.append(margin + phases_below(marks.spans_within(grid.begin, grid.end), grid, view.now))
    edge = "" if view.chart_time.is_past else view.freshness.edge
    lines.append(margin + times_below(grid, view.now, edge))
    if plan.gpus:
        lines += [[] for _ in range(plan.heat_title - len(lines))]
        lines += _heat(state)
    for index, metric in enumerate(state.smalls()):
        small_curve = curves[metric.name]
        rows = plot(small_curve, state.axis(metric, small_curve.high), plan.small_rows, role_of(metric.name))
        lines += [[] for _ in range(plan.first_small + index * (plan.small_rows + 1) - len(lines))]
        name = fit(SMALL_NAMES.get(metric.name, metric.column), plan.left - 2, right=True) + "  "
        for row_index, row in enumerate(rows):
            lines.append([Segment(name if not row_index else " " * plan.left, theme.DIM), *to_line(row)])
    return lines


def _large(state: ChartState, curve: PlotCurve, axis: ValueAxis) -> list[Line]:
    plan, view = state.plan, state.view
    rows = plot(
        curve, axis, plan.rows, role_of(state.metric.name), _overlaid(state), state.limits(state.metric),
        mark=own_mark(state),
    )  # fmt: skip
    labels = axis.labels(plan.rows, plan.left - 1)
    lines = [
        [Segment(fit(labels.get(position, ""), plan.left - 1, right=True) + " ", theme.FAINT), *to_line(row)]
        for position, row in enumerate(rows)
    ]
    middle = plan.rows // 2
    if not any(map(is_known, curve.mean)):
        sample = view.sample
        sleep_reason = sample.reason if sample is not None and sample.state is Availability.ASLEEP else ""
        no_samples = "no samples in this window" if view.has_full_history else READING_HISTORY
        reason = (view.why_missing(state.metric) or sleep_reason or no_samples)[: plan.cells]
        position = plan.left + max(0, (plan.cells - len(reason)) // 2)
        lines[middle] = draw_text(lines[middle], position, reason, theme.DIM)
    else:
        lines[middle] = draw_history_start(lines[middle], plan.left, state.grid, view.history.begin, curve.mean)
    return lines


def _overlaid(state: ChartState) -> list[OverlaidLine]:
    """Return the overlaid lines; the other GPUs of a run are joined to one."""
    lines = enumerate(state.overlaid_curves())
    overlaid = [OverlaidLine(line, state.role_at(index), line_mark(state, index)) for index, line in lines]
    return overlaid[::-1]  # the first lines have distinct colors, so they are drawn on top


def _lower_title(title: str) -> str:
    """Lower-case a title for use in a sentence, except abbreviations: `memory activity`, but `PCIe received` and `SM
    clock`.
    """
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _heat(state: ChartState) -> list[Line]:
    plan, view, metric = state.plan, state.view, state.heat_metric
    first, count = heat_gpus(state)
    axis = state.heat_axis([sample.device.uuid for sample in view.samples[first : first + count]])
    title: Line = [Segment("  All GPUs", theme.STRONG), Segment(f"   {_lower_title(metric.title)}", theme.DIM)]
    hidden = len(view.samples) - first - count
    if hidden or first:
        title.append(Segment(f"   +{first} ▲" * bool(first) + f"   +{hidden} ▼" * bool(hidden), theme.DIM))
    range_texts = (axis.format.text(axis.low), f"{axis.format.text(axis.high)} {axis.format.unit}".rstrip())
    color_scale: Line = [
        Segment(f"{range_texts[0]} ", theme.FAINT),
        *heat_scale(),
        Segment(f" {range_texts[1]}", theme.FAINT),
    ]
    color_scale = color_scale if axis.intervals else []  # without values there is no color scale
    room = plan.left + plan.cells - length(title) - length(color_scale)
    lines: list[Line] = [[*title, Segment(" " * room), *color_scale] if room > 0 else title]
    # If a column is shorter than the sampling interval, the part after the newest sample is not a gap, but still to
    # come.
    observed = observed_halves(state.grid, view.history.begin, min(state.until, view.now))
    for sample in view.samples[first : first + count]:
        uuid = sample.device.uuid
        is_subject = uuid == view.subject
        mark = Segment("▌" if is_subject else " ", theme.ink("key"))
        label = fit(sample.device.label, plan.left - 2, right=True) + " "
        shares = [axis.share(value) for value in state.curve_of(uuid).mean[observed]]
        blank = Segment(" " * (observed.start // 2))
        label_segment = Segment(label, theme.STRONG if is_subject else theme.PLAIN)
        lines.append([mark, label_segment, blank, *heat_strip(shares, is_read=view.has_full_history)])
    return lines


def heat_gpus(state: ChartState) -> tuple[int, int]:
    """Return the first GPU in the heat strip and the number of GPUs shown; the subject is always included."""
    samples, count = state.view.samples, min(state.plan.gpus, len(state.view.samples))
    indexes = [index for index, sample in enumerate(samples) if sample.device.uuid == state.view.subject]
    index = indexes[0] if indexes else 0
    first = min(max(0, index - count + 1), max(0, len(samples) - count))
    return first, count


def with_cursor(state: ChartState, base: list[Line]) -> list[Line]:
    """Draw the cursor line through the charts, and its time above."""
    cursor = state.cursor
    if cursor < 0 or not base:
        return base
    plan = state.plan
    cell = plan.left + cursor
    lines = list(base)
    crossed_rows = [*range(1, 1 + plan.rows), *range(plan.heat_title + 1, plan.bottom)]
    for row in crossed_rows:
        if row < len(lines):
            lines[row] = draw_cursor(lines[row], cell, _REPLACEABLE)
    chip = f" {cursor_time(state)} "
    begin = min(max(0, cell - len(chip) // 2), plan.left + plan.cells - len(chip))
    lines[0] = draw_text(_without_halves(lines[0], begin, begin + len(chip)), max(0, begin), chip, _CHIP)
    return lines


def _without_halves(line: Line, begin: int, end: int) -> Line:
    """Remove epoch marks that a text from `begin` to `end` would cover only partly."""
    text = "".join(part for part, _, _ in line).ljust(end)
    first = text.rfind(" ", 0, begin) + 1
    next_blank = text.find(" ", end)
    last = len(text) if next_blank < 0 else next_blank
    line = draw_text(line, first, " " * (begin - first), None)
    return draw_text(line, end, " " * (last - end), None)


def cursor_time(state: ChartState) -> str:
    """Return the time of the cursor at the precision of a column, with the day if columns are hours long."""
    begin, step = state.column.begin, state.grid.step
    if not is_known(begin):
        return ""
    text = units.moment(begin)
    if step >= 3600 or state.view.now - begin > 86400:
        return text[5:16]
    fraction = f"{begin % 1:.2f}"[1:] if step < 1 else ""
    return text[11:] + fraction
