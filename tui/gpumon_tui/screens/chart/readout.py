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
from gpumon_tui import palette, theme
from gpumon_tui.render.axis import NumberFormat, number_format
from gpumon_tui.render.cells import Tint, style_of
from gpumon_tui.render.findings import STYLES, wrap_limited
from gpumon_tui.render.gpu_status import WITHOUT_VALUES, level
from gpumon_tui.render.line_plot import BAND
from gpumon_tui.render.text_width import SENTENCE, Line, cut, fit, length, safe, width
from gpumon_tui.render.time_marks import phase_role
from gpumon_tui.screens.chart.board import joined, moment, peers_line, shown_gpus
from gpumon_tui.screens.chart.layouts import SMALL_NAMES, role_of
from gpumon_tui.screens.chart.state import UNKNOWN, ChartState, Overlay, ReadOut
from gpumon_tui.widgets.lines import Lines


def place_in_run(state: ChartState, time: float, *, until: float = NAN, is_brief: bool = False) -> Line:
    """Return epoch, step and phase of the marked run at a time (s since 1970).

    `until` is the end of the column being read; an epoch that starts within the column counts, so that the start of a
    run is shown. Empty before the run and after its end, because the last epoch does not describe an idle GPU. For a
    run that has not reached its first epoch, the name is returned.
    """
    view = state.view
    drawn, _ = view.epochs_drawn()
    after = bisect_right(drawn.marks, time, key=attrgetter("time"))
    if not after and is_known(until):
        after = bisect_left(drawn.marks, until, key=attrgetter("time"))
    if not after:
        return _without_epoch(state, time, until)
    mark = drawn.marks[after - 1]
    time = max(time, mark.time)
    line: Line = [Segment(f"{'e' if is_brief else 'epoch '}{mark.epoch}", theme.RUN)]
    run = next((run for run in view.runs if view.subject in run.gpus and run.id == mark.run), None)
    if run is None:
        led = view.way_back
        is_of_led = led is not None and led.run == mark.run and not time >= led.ended
        return line if is_of_led else []  # for a run that frames do not contain, step and phase are unknown
    if run.state is not RunState.RUNNING and time >= run.updated:
        return []
    newest = (view.now, run.step) if run.step and not view.shown.is_past else None
    if step := step_at(state, run.key, time, newest):
        line.append(Segment(f"  step {step}", theme.PLAIN))
    phase = _phase(drawn, time)
    line.append(Segment(f"  {safe(phase)}", theme.PLAIN if phase == TRAINING else palette.ink(phase_role(phase))))
    return line


def _without_epoch(state: ChartState, time: float, until: float) -> Line:
    """Return the name of a run of the subject that has started, but not reached its first epoch."""
    view = state.view
    last = until if is_known(until) else time
    here = [run for run in view.runs if view.subject in run.gpus and run.started < last]
    run = max(here, key=lambda one: one.started, default=None)
    if run is None or (run.state is not RunState.RUNNING and time >= run.updated):
        return []
    return [Segment(safe(run.name), theme.RUN), Segment("  begins" if run.started >= time else "", theme.DIM)]


def _phase(drawn: EpochMarks, time: float) -> str:
    return next((span.phase for span in drawn.spans_within(time, time)), TRAINING)


def step_at(state: ChartState, key: str, time: float, newest: tuple[float, int] | None = None) -> str:
    """Return the step of a run at a time, from its known step times; `≈` marks interpolated values.

    Empty if unknown.

    `newest`: the time of the frame on screen, and the step reported there.
    """
    known = state.view.epochs.step_moments(key)
    if newest is not None and time >= newest[0]:
        return f"{newest[1]:,}"
    after = bisect_right(known, time, key=itemgetter(0))
    if after == 0:
        return ""
    begin, first = known[after - 1]
    later = known[after] if after < len(known) else None
    if newest is not None and (later is None or later[0] >= newest[0]):
        later = newest
    if later is None:
        return ""
    end, last = later
    if first == last or end <= begin:
        return f"{first:,}"
    return f"≈{round(first + (last - first) * (time - begin) / (end - begin)):,}"


_SIGNS = {Severity.CRITICAL: "▲", Severity.WARNING: "△"}
_VALUE = 7
"""Width of a number in the table."""
_ROOMY = 26
"""Panel width from which there is room for `epoch`."""
_LEAST_TABLE = 3
"""Minimum lines of a truncated table of GPUs: head, first GPU, and the number of further GPUs."""
_OF_GPU, _OF_UNIT, _USER = 4, 3, 7
"""Minimum widths of the GPU number and the unit, and the width of the user."""
_OF_FINDING, _OF_ADVICE = 3, 4
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
    values = state.read_out()
    if plan.gpus:
        lines += [[] for _ in range(plan.heat_title + 1 - len(lines))]
        lines += [[*gap, *line] for line in _gpus(state)]
    for place, metric in enumerate(state.smalls()):
        lines += [[] for _ in range(plan.first_small + place * (plan.small_rows + 1) - len(lines))]
        now = state.now(state.view.subject, metric.name)
        at = values.get(state.view.subject, {}).get(metric.name)
        how = number_format(metric, max((one for one in (now, at.mean if at else now) if is_known(one)), default=0.0))
        name = Segment(fit(SMALL_NAMES.get(metric.name, metric.title), 10), theme.DIM)
        unit = Segment(f" {how.unit}", theme.DIM)
        shown_now = Segment(fit(how.text(now), _VALUE, right=True), theme.PLAIN if at else theme.STRONG)
        first = Segment(fit(how.text(at.mean), _VALUE, right=True), theme.STRONG) if at else shown_now
        lines.append([*gap, name, first, unit])
        if at and state.cursor >= 0:
            lines.append([*gap, Segment(" " * 10), shown_now, Segment(f" {state.newest}", theme.DIM)])
    return lines


def readout_line(state: ChartState, cells: int) -> Line:
    """Return the readout in one line: time, minimum, mean and maximum, epoch, step and phase, other metrics."""
    view, subject = state.view, state.view.subject
    margin = " " if cells < 100 else "  "
    values = state.read_out()
    if state.cursor < 0:
        if view.shown.is_past:  # no current values: the run's position at the right edge
            told, when = place_in_run(state, min(state.grid.end, view.now)), units.clock(state.grid.end)
        else:
            told, when = [*place_in_run(state, view.now), *peers_line(state, cells)], view.freshness.edge
        return [Segment(f"{margin}{when}  ", theme.FAINT), *told] if told else []
    own = values[subject][state.metric.name]
    how = _shown(state, own)
    unit = how.unit if is_known(own.mean) else ""
    told = [
        *_three(state, own, how, unit, margin, "  "),
        Segment("  "),
        *place_in_run(state, state.column.begin, until=state.column.end),
    ]
    forms = (told, *(_three(state, own, how, unit, margin, gap) for gap in ("  ", " ")))
    bare = _three(state, own, how, "", margin, " ")  # the axis shows the unit
    line = next((form for form in forms if length(form) <= cells), bare)
    rest = [peers_line(state, cells)]
    for metric in state.smalls():
        rest.append([Segment(f"  {units.metric(values[subject][metric.name].mean, metric)}", theme.DIM)])
    for part in rest:  # a truncated value would be a wrong value
        if length(line) + length(part) > cells:
            break
        line += part
    return line


def _three(state: ChartState, own: ReadOut, how: NumberFormat, unit: str, margin: str, gap: str) -> Line:
    """Return the time and the minimum, mean and maximum at that time."""
    return [
        Segment(f"{margin}{moment(state)}", palette.ink("key", bold=True)),
        Segment(f"{gap}min ", theme.FAINT), Segment(how.text(own.low)), Segment(f"{gap}mean ", theme.FAINT),
        Segment(how.text(own.mean), theme.STRONG), Segment(f"{gap}max ", theme.FAINT),
        Segment(f"{how.text(own.high)} {unit}".rstrip()),
    ]  # fmt: skip


def _shown(state: ChartState, *values: ReadOut) -> NumberFormat:
    return number_format(state.metric, max((one.high for one in values if is_known(one.high)), default=0.0))


def _blocks(state: ChartState, cells: int, most: int) -> list[list[Line]]:
    """Return the blocks of lines next to the large chart, the most important first; together they may exceed `most`
    lines.
    """
    view = state.view
    is_then = state.place_read >= 0
    time = state.column.begin if is_then else view.now
    # The cursor color marks the time of the cursor, or now. With neither, the end of the window is read.
    style = theme.STRONG if is_then and state.cursor < 0 else palette.ink("key", bold=True)
    head: Line = [Segment(moment(state) if is_then else view.freshness.edge, style)]
    if is_then:
        head.append(Segment(f"  {_ago(view.now - time)}", theme.DIM))
    until = state.column.end if is_then else NAN
    place = place_in_run(state, time, until=until, is_brief=cells < _ROOMY)
    table, legend = _table(state, most - 3), _legend(state)
    rest = most - 2 - len(table) - len(legend) - 3  # with blank lines between blocks
    blocks = [[head, place], table, _attention(state, cells, rest), legend]
    return [block for block in blocks if block]


def _ago(seconds: float) -> str:
    """Format an age as `3 min 53 s ago`, with larger units for longer ones."""
    whole = max(0, round(seconds))
    if not 60 <= whole < 3600:
        return f"{units.long_duration(float(whole))} ago"
    return f"{whole // 60} min {whole % 60} s ago"


def _table(state: ChartState, most: int) -> list[Line]:
    """Return a line for each GPU with a line in the chart; if there are more than `most`, the last one shows how
    many more.
    """
    view, name = state.view, state.metric.name
    values = state.read_out()
    rows: list[tuple[str, str, ReadOut]] = []

    def at(subject: str) -> ReadOut:
        if values:
            return values.get(subject, {}).get(name, UNKNOWN)
        return UNKNOWN._replace(mean=state.now(subject, name))

    sample = view.sample
    rows.append((f"GPU {sample.device.label}" if sample else "host", role_of(name), at(view.subject)))
    others = [(uuid, at(uuid)) for uuid in state.overlaid]
    if state.overlay is Overlay.PEERS and others:
        rows.append(("peers", "faint", joined([value for _, value in others])))
    elif view.subject != HOST:
        labels = {one.device.uuid: one.device.label for one in view.samples}
        rows += [
            (f"GPU {labels.get(uuid, '')}", state.role_at(place), value) for place, (uuid, value) in enumerate(others)
        ]
    how = _shown(state, *(value for _, _, value in rows)) if values else number_format(
        state.metric, max((value.mean for _, _, value in rows if is_known(value.mean)), default=0.0)
    )  # fmt: skip
    titles = ("min", "mean", "max") if values else ("", state.newest, "")
    head = "".join(fit(title, _VALUE - 1, right=True) for title in titles)
    lines: list[Line] = [[Segment(fit(how.unit, 7) + head, theme.FAINT)]]
    for place, (label, role, value) in enumerate(rows):
        line: Line = [Segment(fit(label, 7), palette.ink(role, bold=not place))]
        for number, is_mean in ((value.low, False), (value.mean, True), (value.high, False)):
            text = how.text(number) if values or is_mean else ""
            style = theme.STRONG if is_mean and not place else theme.PLAIN if not place else theme.DIM
            line.append(Segment(fit(text, _VALUE - 1, right=True), style))
        lines.append(line)
    if len(lines) > most >= _LEAST_TABLE:
        lines[most - 1 :] = [[Segment(f"+{len(lines) - most + 1} GPUs", theme.DIM)]]
    return lines


def _attention(state: ChartState, cells: int, most: int) -> list[Line]:
    """Return the most severe finding about the subject or its run; empty while the past is shown."""
    view = state.view
    if view.shown.is_past or view.subject == HOST:
        return []
    runs = {run.id for run in view.runs if view.subject in run.gpus}
    found = [one for one in view.found.pressing() if one.subject.id in (view.subject, *runs)]
    if not found:
        return []
    worst = max(found, key=lambda one: one.severity)
    style = STYLES[worst.severity]
    head = wrap_limited(f"{safe(worst.subject.title)} {safe(worst.summary)}", cells - 2, _OF_FINDING)
    lines: list[Line] = [
        [Segment(f"{_SIGNS.get(worst.severity, ' ')} " if not at else "  ", style), Segment(text, style)]
        for at, text in enumerate(head)
    ]
    advice = wrap_limited(safe(worst.action, SENTENCE), cells - 2, max(_OF_ADVICE, most - len(lines)))
    lines += [[Segment(f"  {text}", theme.DIM)] for text in advice]
    return lines


def _legend(state: ChartState) -> list[Line]:
    role = role_of(state.metric.name)
    lines: list[Line] = [[
        Segment("⠒⠒", palette.ink(role)), Segment(" mean  ", theme.DIM),
        Segment("  ", style_of(None, Tint(role, BAND))), Segment(" min to max", theme.DIM),
    ]]  # fmt: skip
    if state.overlay is Overlay.PEERS and state.overlaid:
        lines.append([Segment("⠒⠒", theme.FAINT), Segment(" mean of the peers", theme.DIM)])
    for limit in state.limits(state.metric):
        text = units.metric(limit.value, state.metric)
        word = "limit" if limit.role == "faint" else "warm from" if limit.role == "warn" else "hot from"
        lines.append([Segment("──", palette.ink(limit.role)), Segment(f" {word} {text}", theme.DIM)])
    drawn, of = state.view.epochs_drawn()
    grid = state.grid
    kinds = {phase_role(span.phase): safe(span.phase) for span in drawn.spans_within(grid.begin, grid.end)}
    phases: Line = []
    for kind, name in kinds.items():
        phases += [Segment("▀▀", palette.ink(kind)), Segment(f" {name} ", theme.DIM)]
    if of:
        lines.append([Segment("╷e", theme.RUN), Segment(f" epochs of {of}", theme.DIM)])
    return [*lines, phases] if phases else lines


def _gpus(state: ChartState) -> list[Line]:
    """Return a line for each GPU in the heat strip: its value, and its user if the GPU was in use at that time."""
    view, metric = state.view, state.heat_metric
    read = state.read_out()
    top, count = shown_gpus(state)
    before = state.column.end if state.place_read >= 0 else view.now
    means = [
        read.get(one.sample.device.uuid, {}).get(metric.name, UNKNOWN).mean if read
        else state.now(one.sample.device.uuid, metric.name)
        for one in view.statuses
    ]  # fmt: skip
    how = number_format(metric, max((one for one in means if is_known(one)), default=0.0))
    room = max(_OF_GPU, *(width(how.text(one)) for one in means))
    of_unit = max(_OF_UNIT, width(how.unit))
    lines: list[Line] = []
    for status, mean in list(zip(view.statuses, means, strict=True))[top : top + count]:
        is_subject = status.sample.device.uuid == view.subject
        badness = level(metric, mean, view.limit_of(metric)) if not metric.limit else 0
        style = theme.LEVELS[badness] if badness else theme.STRONG if is_subject else theme.PLAIN
        quiet = not is_known(mean) or mean == 0
        line: Line = [Segment(fit(how.text(mean), room, right=True), theme.DIM if quiet else style)]
        unit = how.unit if is_known(mean) else ""
        line.append(Segment("%  " if unit == "%" else f" {fit(unit, of_unit)} ", theme.DIM))
        runs = [ranks for ranks in status.runs if ranks.first.started < before]
        processes = [process for process in status.processes if process.started < before]
        is_of_now = not read
        if is_of_now and status.state in WITHOUT_VALUES and not view.age > 0:
            label = view.label(status)
            line.append(Segment(label.word, label.style))
        elif runs:
            first = runs[0].first
            line += [Segment(fit(safe(first.user), _USER - 1) + " ", theme.DIM), Segment(safe(first.name), theme.RUN)]
        elif processes:
            user, name = safe(processes[0].user), safe(processes[0].name)
            line += [Segment(fit(user, _USER - 1) + " ", theme.DIM), Segment(name, theme.DIM)]
        elif is_of_now:
            free = status.state is GpuState.FREE
            line.append(Segment(status.word(view.freshness.frame_age), theme.GOOD if free else theme.DIM))
        lines.append(line)
    return lines
