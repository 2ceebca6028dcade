"""The readout of the chart page: values at the cursor or now, the run's epoch, step and phase, and the worst
finding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter, itemgetter

from rich.segment import Segment

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.run_epochs import EpochMarks
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import Severity
from gpumon.model import units
from gpumon.model.frame import TRAINING, RunState
from gpumon.storage.history.query import HOST
from gpumon_tui import theme
from gpumon_tui.render.axis import NumberFormat, number_format
from gpumon_tui.render.cells import Tint, style_of
from gpumon_tui.render.gpu_status import WITHOUT_VALUES, level
from gpumon_tui.render.line_plot import BAND
from gpumon_tui.render.text_width import SENTENCE, Line, cut, fit, length, safe, width, wrap_limited
from gpumon_tui.render.time_axis import phase_role
from gpumon_tui.screens.chart.board import combine_readouts, cursor_time, heat_gpus, peers_line
from gpumon_tui.screens.chart.layouts import SMALL_NAMES, role_of
from gpumon_tui.screens.chart.state import UNKNOWN, ChartState, Overlay, ReadOut
from gpumon_tui.screens.findings import STYLES
from gpumon_tui.widgets.lines import Lines


def run_position(state: ChartState, time: float, *, column_end: float = NAN, is_brief: bool = False) -> Line:
    """Return epoch, step and phase of the marked run at a time (s since 1970).

    `column_end` is the end of the column being read; an epoch that starts within the column counts, so that the start
    of a run is shown. Empty before the run and after its end, because the last epoch does not describe an idle GPU.
    For a run that has not reached its first epoch, the name is returned.
    """
    view = state.view
    marks, _ = view.chart_epochs()
    mark_count = bisect_right(marks.marks, time, key=attrgetter("time"))
    if not mark_count and is_known(column_end):
        mark_count = bisect_left(marks.marks, column_end, key=attrgetter("time"))
    if not mark_count:
        return _without_epoch(state, time, column_end)
    mark = marks.marks[mark_count - 1]
    time = max(time, mark.time)
    line: Line = [Segment(f"{'e' if is_brief else 'epoch '}{mark.epoch}", theme.RUN)]
    run = next((run for run in view.runs if view.subject in run.gpus and run.id == mark.run), None)
    if run is None:
        target = view.return_target
        is_target = target is not None and target.run == mark.run and not time >= target.last_end
        return line if is_target else []  # for a run that frames do not contain, step and phase are unknown
    if run.state is not RunState.RUNNING and time >= run.updated:
        return []
    newest = (view.now, run.step) if run.step and not view.chart_time.is_past else None
    if step := step_text(state, run.key, time, newest):
        line.append(Segment(f"  step {step}", theme.PLAIN))
    phase = _phase(marks, time)
    line.append(Segment(f"  {safe(phase)}", theme.PLAIN if phase == TRAINING else theme.ink(phase_role(phase))))
    return line


def _without_epoch(state: ChartState, time: float, column_end: float) -> Line:
    """Return the name of a run of the subject that has started, but not reached its first epoch."""
    view = state.view
    last = column_end if is_known(column_end) else time
    runs_here = [run for run in view.runs if view.subject in run.gpus and run.started < last]
    run = max(runs_here, key=lambda candidate: candidate.started, default=None)
    if run is None or (run.state is not RunState.RUNNING and time >= run.updated):
        return []
    return [Segment(safe(run.name), theme.RUN), Segment("  begins" if run.started >= time else "", theme.DIM)]


def _phase(marks: EpochMarks, time: float) -> str:
    return next((span.phase for span in marks.spans_within(time, time)), TRAINING)


def step_text(state: ChartState, key: str, time: float, newest: tuple[float, int] | None = None) -> str:
    """Return the step of a run at a time, from its known step times; `≈` marks interpolated values.

    Empty if unknown.

    `newest`: the time of the frame on screen, and the step reported there.
    """
    moments = state.view.epochs.step_moments(key)
    if newest is not None and time >= newest[0]:
        return f"{newest[1]:,}"
    moment_count = bisect_right(moments, time, key=itemgetter(0))
    if moment_count == 0:
        return ""
    begin, first = moments[moment_count - 1]
    next_moment = moments[moment_count] if moment_count < len(moments) else None
    if newest is not None and (next_moment is None or next_moment[0] >= newest[0]):
        next_moment = newest
    if next_moment is None:
        return ""
    end, last = next_moment
    if first == last or end <= begin:
        return f"{first:,}"
    return f"≈{round(first + (last - first) * (time - begin) / (end - begin)):,}"


_SIGNS = {Severity.CRITICAL: "▲", Severity.WARNING: "△"}
_VALUE_CELLS = 7
"""Width of a number in the table."""
_LONG_EPOCH_FROM = 26
"""Panel width from which there is room for `epoch`."""
_MIN_TABLE = 3
"""Minimum lines of a truncated table of GPUs: head, first GPU, and the number of further GPUs."""
_MIN_VALUE_CELLS, _MIN_UNIT_CELLS, _USER_CELLS = 4, 3, 7
"""Minimum widths of the GPU number and the unit, and the width of the user."""
_FINDING_ROWS, _ADVICE_ROWS = 3, 4
"""Lines of a finding and of its advice; the advice may use more if there is room."""


class ChartReadOut(Lines):
    """The panel; redrawn with each frame, because it shows current values."""

    DEFAULT_CSS = "ChartReadOut { height: 100%; width: 32; }"

    def __init__(self, state: ChartState) -> None:
        super().__init__(state.view)
        self.state = state

    def lines(self) -> list[Line]:
        if self.view.frame is None:
            return []
        cells = self.size.width
        return [cut(line, cells) for line in panel(self.state, cells)]


def panel(state: ChartState, cells: int) -> list[Line]:
    """Return the rows of the panel, aligned with the charts: the GPUs with the heat strip, values with the small
    charts.
    """
    plan = state.plan
    gap: Line = [Segment("    ")]
    room = plan.heat_title if plan.gpus else 1 + plan.rows + 2
    lines: list[Line] = []
    for block in _blocks(state, cells - 6, room):
        if len(lines) + len(block) + bool(lines) <= room:
            lines += [[]] * bool(lines) + block
    lines = [[*gap, *line] if line else line for line in lines]
    values = state.readouts()
    if plan.gpus:
        lines += [[] for _ in range(plan.heat_title + 1 - len(lines))]
        lines += [[*gap, *line] for line in _gpus(state)]
    for index, metric in enumerate(state.smalls()):
        lines += [[] for _ in range(plan.first_small + index * (plan.small_rows + 1) - len(lines))]
        now = state.now(state.view.subject, metric.name)
        readout = values.get(state.view.subject, {}).get(metric.name)
        value_format = number_format(
            metric, max((number for number in (now, readout.mean if readout else now) if is_known(number)), default=0.0)
        )
        name = Segment(fit(SMALL_NAMES.get(metric.name, metric.title), 10), theme.DIM)
        unit = Segment(f" {value_format.unit}", theme.DIM)
        now_segment = Segment(
            fit(value_format.text(now), _VALUE_CELLS, right=True), theme.PLAIN if readout else theme.STRONG
        )
        first = (
            Segment(fit(value_format.text(readout.mean), _VALUE_CELLS, right=True), theme.STRONG)
            if readout
            else now_segment
        )
        lines.append([*gap, name, first, unit])
        if readout and state.cursor >= 0:
            lines.append([*gap, Segment(" " * 10), now_segment, Segment(f" {state.newest}", theme.DIM)])
    return lines


def readout_line(state: ChartState, cells: int) -> Line:
    """Return the readout in one line: time, minimum, mean and maximum, epoch, step and phase, other metrics."""
    view, subject = state.view, state.view.subject
    margin = " " if cells < 100 else "  "
    values = state.readouts()
    if state.cursor < 0:
        if view.chart_time.is_past:  # no current values: the run's position at the right edge
            run_line, time_text = run_position(state, min(state.grid.end, view.now)), units.clock(state.grid.end)
        else:
            run_line, time_text = [*run_position(state, view.now), *peers_line(state, cells)], view.freshness.edge
        return [Segment(f"{margin}{time_text}  ", theme.FAINT), *run_line] if run_line else []
    readout = values[subject][state.metric.name]
    value_format = _common_format(state, readout)
    unit = value_format.unit if is_known(readout.mean) else ""
    run_line = [
        *_min_mean_max(state, readout, value_format, unit, margin, "  "),
        Segment("  "),
        *run_position(state, state.column.begin, column_end=state.column.end),
    ]
    forms = (run_line, *(_min_mean_max(state, readout, value_format, unit, margin, gap) for gap in ("  ", " ")))
    bare = _min_mean_max(state, readout, value_format, "", margin, " ")  # the axis shows the unit
    line = next((form for form in forms if length(form) <= cells), bare)
    parts = [peers_line(state, cells)]
    for metric in state.smalls():
        parts.append([Segment(f"  {units.metric(values[subject][metric.name].mean, metric)}", theme.DIM)])
    for part in parts:  # a truncated value would be a wrong value
        if length(line) + length(part) > cells:
            break
        line += part
    return line


def _min_mean_max(
    state: ChartState, readout: ReadOut, value_format: NumberFormat, unit: str, margin: str, gap: str
) -> Line:
    """Return the time and the minimum, mean and maximum at that time."""
    return [
        Segment(f"{margin}{cursor_time(state)}", theme.ink("key", bold=True)),
        Segment(f"{gap}min ", theme.FAINT), Segment(value_format.text(readout.low)),
        Segment(f"{gap}mean ", theme.FAINT),
        Segment(value_format.text(readout.mean), theme.STRONG), Segment(f"{gap}max ", theme.FAINT),
        Segment(f"{value_format.text(readout.high)} {unit}".rstrip()),
    ]  # fmt: skip


def _common_format(state: ChartState, *values: ReadOut) -> NumberFormat:
    return number_format(state.metric, max((value.high for value in values if is_known(value.high)), default=0.0))


def _blocks(state: ChartState, cells: int, max_lines: int) -> list[list[Line]]:
    """Return the blocks of lines next to the large chart, the most important first; together they may be longer than
    `max_lines`.
    """
    view = state.view
    is_at_cursor = state.column_read >= 0
    time = state.column.begin if is_at_cursor else view.now
    # The cursor color marks the time of the cursor, or now. With neither, the end of the window is read.
    style = theme.STRONG if is_at_cursor and state.cursor < 0 else theme.ink("key", bold=True)
    head: Line = [Segment(cursor_time(state) if is_at_cursor else view.freshness.edge, style)]
    if is_at_cursor:
        head.append(Segment(f"  {_ago(view.now - time)}", theme.DIM))
    column_end = state.column.end if is_at_cursor else NAN
    position_line = run_position(state, time, column_end=column_end, is_brief=cells < _LONG_EPOCH_FROM)
    table, legend = _table(state, max_lines - 3), _legend(state)
    advice_lines = max_lines - 2 - len(table) - len(legend) - 3  # with blank lines between blocks
    blocks = [[head, position_line], table, _attention(state, cells, advice_lines), legend]
    return [block for block in blocks if block]


def _ago(seconds: float) -> str:
    """Format an age as `3 min 53 s ago`, with larger units for longer ones."""
    total = max(0, round(seconds))
    if not 60 <= total < 3600:
        return f"{units.long_duration(float(total))} ago"
    return f"{total // 60} min {total % 60} s ago"


def _table(state: ChartState, max_lines: int) -> list[Line]:
    """Return a line for each GPU with a line in the chart; if there are more than `max_lines`, the last one shows how
    many more.
    """
    view, name = state.view, state.metric.name
    values = state.readouts()
    rows: list[tuple[str, str, ReadOut]] = []

    def readout_of(subject: str) -> ReadOut:
        if values:
            return values.get(subject, {}).get(name, UNKNOWN)
        return UNKNOWN._replace(mean=state.now(subject, name))

    sample = view.sample
    rows.append((f"GPU {sample.device.label}" if sample else "host", role_of(name), readout_of(view.subject)))
    others = [(uuid, readout_of(uuid)) for uuid in state.overlaid]
    if state.overlay is Overlay.PEERS and others:
        rows.append(("peers", "faint", combine_readouts([value for _, value in others])))
    elif view.subject != HOST:
        labels = {sample_of.device.uuid: sample_of.device.label for sample_of in view.samples}
        rows += [
            (f"GPU {labels.get(uuid, '')}", state.role_at(index), value) for index, (uuid, value) in enumerate(others)
        ]
    value_format = _common_format(state, *(value for _, _, value in rows)) if values else number_format(
        state.metric, max((value.mean for _, _, value in rows if is_known(value.mean)), default=0.0)
    )  # fmt: skip
    titles = ("min", "mean", "max") if values else ("", state.newest, "")
    head = "".join(fit(title, _VALUE_CELLS - 1, right=True) for title in titles)
    lines: list[Line] = [[Segment(fit(value_format.unit, 7) + head, theme.FAINT)]]
    for index, (label, role, value) in enumerate(rows):
        line: Line = [Segment(fit(label, 7), theme.ink(role, bold=not index))]
        for number, is_mean in ((value.low, False), (value.mean, True), (value.high, False)):
            text = value_format.text(number) if values or is_mean else ""
            style = theme.STRONG if is_mean and not index else theme.PLAIN if not index else theme.DIM
            line.append(Segment(fit(text, _VALUE_CELLS - 1, right=True), style))
        lines.append(line)
    if len(lines) > max_lines >= _MIN_TABLE:
        lines[max_lines - 1 :] = [[Segment(f"+{len(lines) - max_lines + 1} GPUs", theme.DIM)]]
    return lines


def _attention(state: ChartState, cells: int, max_lines: int) -> list[Line]:
    """Return the most severe finding about the subject or its run; empty while the past is shown."""
    view = state.view
    if view.chart_time.is_past or view.subject == HOST:
        return []
    runs = {run.id for run in view.runs if view.subject in run.gpus}
    subject_findings = [finding for finding in view.findings.warnings() if finding.subject.id in (view.subject, *runs)]
    if not subject_findings:
        return []
    worst = max(subject_findings, key=lambda finding: finding.severity)
    style = STYLES[worst.severity]
    head = wrap_limited(f"{safe(worst.subject.title)} {safe(worst.summary)}", cells - 2, _FINDING_ROWS)
    lines: list[Line] = [
        [Segment(f"{_SIGNS.get(worst.severity, ' ')} " if not index else "  ", style), Segment(text, style)]
        for index, text in enumerate(head)
    ]
    advice = wrap_limited(safe(worst.action, SENTENCE), cells - 2, max(_ADVICE_ROWS, max_lines - len(lines)))
    lines += [[Segment(f"  {text}", theme.DIM)] for text in advice]
    return lines


def _legend(state: ChartState) -> list[Line]:
    role = role_of(state.metric.name)
    lines: list[Line] = [[
        Segment("⠒⠒", theme.ink(role)), Segment(" mean  ", theme.DIM),
        Segment("  ", style_of(None, Tint(role, BAND))), Segment(" min to max", theme.DIM),
    ]]  # fmt: skip
    if state.overlay is Overlay.PEERS and state.overlaid:
        lines.append([Segment("⠒⠒", theme.FAINT), Segment(" mean of the peers", theme.DIM)])
    for limit in state.limits(state.metric):
        text = units.metric(limit.value, state.metric)
        word = "limit" if limit.role == "faint" else "warm from" if limit.role == "warn" else "hot from"
        lines.append([Segment("──", theme.ink(limit.role)), Segment(f" {word} {text}", theme.DIM)])
    marks, run_name = state.view.chart_epochs()
    grid = state.grid
    kinds = {phase_role(span.phase): safe(span.phase) for span in marks.spans_within(grid.begin, grid.end)}
    phases: Line = []
    for kind, name in kinds.items():
        phases += [Segment("▀▀", theme.ink(kind)), Segment(f" {name} ", theme.DIM)]
    if run_name:
        lines.append([Segment("╷e", theme.RUN), Segment(f" epochs of {run_name}", theme.DIM)])
    return [*lines, phases] if phases else lines


def _gpus(state: ChartState) -> list[Line]:
    """Return a line for each GPU in the heat strip: its value, and its user if the GPU was in use at that time."""
    view, metric = state.view, state.heat_metric
    readouts = state.readouts()
    top, count = heat_gpus(state)
    end = state.column.end if state.column_read >= 0 else view.now
    means = [
        readouts.get(item.sample.device.uuid, {}).get(metric.name, UNKNOWN).mean if readouts
        else state.now(item.sample.device.uuid, metric.name)
        for item in view.statuses
    ]  # fmt: skip
    value_format = number_format(metric, max((item for item in means if is_known(item)), default=0.0))
    room = max(_MIN_VALUE_CELLS, *(width(value_format.text(item)) for item in means))
    unit_cells = max(_MIN_UNIT_CELLS, width(value_format.unit))
    lines: list[Line] = []
    for status, mean in list(zip(view.statuses, means, strict=True))[top : top + count]:
        is_subject = status.sample.device.uuid == view.subject
        badness = level(metric, mean, view.limit_of(metric)) if not metric.limit else 0
        style = theme.LEVELS[badness] if badness else theme.STRONG if is_subject else theme.PLAIN
        is_dim = not is_known(mean) or mean == 0
        line: Line = [Segment(fit(value_format.text(mean), room, right=True), theme.DIM if is_dim else style)]
        unit = value_format.unit if is_known(mean) else ""
        line.append(Segment("%  " if unit == "%" else f" {fit(unit, unit_cells)} ", theme.DIM))
        runs = [ranks for ranks in status.runs if ranks.first.started < end]
        processes = [process for process in status.processes if process.started < end]
        is_current = not readouts
        if is_current and status.state in WITHOUT_VALUES and not view.age > 0:
            label = view.label(status)
            line.append(Segment(label.word, label.style))
        elif runs:
            first = runs[0].first
            line += [
                Segment(fit(safe(first.user), _USER_CELLS - 1) + " ", theme.DIM),
                Segment(safe(first.name), theme.RUN),
            ]
        elif processes:
            user, name = safe(processes[0].user), safe(processes[0].name)
            line += [Segment(fit(user, _USER_CELLS - 1) + " ", theme.DIM), Segment(name, theme.DIM)]
        elif is_current:
            free = status.state is GpuState.FREE
            line.append(Segment(status.word(view.freshness.frame_age), theme.GOOD if free else theme.DIM))
        lines.append(line)
    return lines
