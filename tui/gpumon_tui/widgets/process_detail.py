"""Details of the opened process: facts, and charts over the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.segment import Segment

from gpumon.analysis.processes import TITLE, job_or_container, missing_value_reasons
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.model.frame import RunState
from gpumon.model.metrics import BY_NAME, PROCESS_SHARES
from gpumon.model.process import Process
from gpumon.storage.history.buckets import WINDOWS
from gpumon.storage.history.query import Series
from gpumon.storage.processes.blocks import MEASURES
from gpumon_tui import theme
from gpumon_tui.data.process_history import ProcessTrail
from gpumon_tui.data.processes import is_same_process
from gpumon_tui.render.axis import NumberFormat, ValueAxis, value_axis
from gpumon_tui.render.cells import PaintedCell, Row, Tint, to_line
from gpumon_tui.render.line_plot import PlotCurve, plot
from gpumon_tui.render.process_columns import elapsed
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import Line, cut, fit, length, safe, width
from gpumon_tui.render.time_axis import HISTORY_START, epochs_above, halves, live_columns, times_below
from gpumon_tui.state import RECENT_FRAMES, View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.process_table import ProcessTable

CHARTS = {"sm_utilization": "util", "cpu_utilization": "temp", "memory_used": "memory", "host_memory": "run"}
"""Metrics in the order of their charts, with their color roles."""
DAY = 86400.0
START_TOLERANCE = 10.0
"""A process first seen within this many seconds of its start counts as seen from the start."""
COMMAND_ROWS = 6
"""Maximum rows for the command line."""
_RATIO = NumberFormat(0.01, "%", 0)
_BYTES = BY_NAME["gpu.memory_used"]


class ProcessDetail(Lines):
    """Shows the opened process, even after it has ended. If none is open, shows the process under the cursor."""

    def __init__(self, view: View, table: ProcessTable) -> None:
        super().__init__(view, id="process-detail")
        self.table = table
        self.is_below = True
        """Whether it is below the table, after a blank row; otherwise it covers the table."""
        self.message = ""
        """Text in the last row, if it covers the table."""
        self.trail = ProcessTrail(lambda: view.ledger_runs.queries.on_answer())
        self.is_open = False
        """Whether a process is open; otherwise the one under the cursor is previewed if there is room."""
        self._process: Process | None = None
        """Last known state of the process."""
        self._is_gone = False
        self._last_seen = 0.0
        """Time of the last known state (s since 1970)."""
        self._command = ""
        """Command line; known only for the user's own processes."""

    def open(self, process: Process) -> None:
        """Open a process."""
        self.is_open = True
        self.preview(process)

    def preview(self, process: Process) -> None:
        """Show a process without opening it."""
        if self._process is not None and not self._is_gone and is_same_process(self._process, process):
            return
        self._process, self._is_gone, self._last_seen = process, False, self.view.now
        self._command = self.view.programs.command(process) if self.view.process_facts().me else ""

    def close(self) -> None:
        """Close the process."""
        self.is_open, self._process = False, None

    @property
    def process(self) -> Process | None:
        """Last known state of the opened process."""
        return self._process

    @property
    def window(self) -> int:
        """Seconds shown by its charts: the window of all charts, limited to the available process history."""
        view = self.view
        if view.chart_time.length or view.history_path:
            return view.window
        recorded = view.now - view.recent_snapshots.begin
        available = max(RECENT_FRAMES * view.interval, recorded if is_known(recorded) else 0.0)
        return min(
            view.window,
            next((chart_window.seconds for chart_window in WINDOWS if chart_window.seconds >= available), view.window),
        )

    def follow(self) -> None:
        """Update the process from the frame on screen."""
        previous = self._process
        if previous is None:
            return
        current = self.table.find((previous.pid, previous.uuid))
        is_same = current is not None and is_same_process(previous, current)
        self._is_gone = not is_same
        if current is not None and is_same:
            self._process, self._last_seen = current, self.view.now

    def lines(self) -> list[Line]:
        """Return the facts and charts of the process."""
        cells, height = self.size
        if self.is_below:
            return [[], *self._process_lines(cells, height - 1)]
        message = fit(clean(self.message), cells - 2)
        foot: list[Line] = [[Segment(" "), Segment(message, theme.ink("key"))]] if self.message else []
        return [*self._process_lines(cells, height - 1), *foot]

    def _process_lines(self, cells: int, rows: int) -> list[Line]:
        self.follow()
        process, view, edge = self._process, self.view, margin(cells)
        if process is None or rows < 1:
            return []
        facts = view.process_facts()
        plot_cells = chart_cells(cells, edge)
        grid = live_columns(self.window, plot_cells, view.now)
        answer = self.trail.lines(process, halves(grid), view.recent_frames, view.history_path, view.recent_snapshots)
        history = answer.result[1] if answer.result else None
        note = answer.problem or ("" if history else "reading its history …")
        if history and not note:
            note = history.problem or "no history of it in this window"
        run = facts.run(process)
        marks = view.epochs.chart_marks([run.key]).marks if run else ()
        keys = [("Esc", "close")] if self.is_open else [(view.appearance.key("↵"), "open")]
        if view.can_signal:
            keys.insert(0, ("K", "end or signal…"))
        picture = ProcessPicture(
            pid=process.pid,
            about="   ".join(text for text in (safe(process.user), safe(facts.program(process))) if text),
            gpu=f"GPU {facts.label(process) or units.MISSING}",
            keys=keys,
            facts=self._facts(process, history.series if history else {}),
            curves=[
                _curve(name, process, history.series.get(name) if history else None, is_gone=self._is_gone)
                for name in CHARTS
            ],
            epochs=epochs_above(marks, grid),
            times=times_below(grid, view.now, view.freshness.edge),
            cells=plot_cells,
            note=note,
            start_note=_start_note(process, history.series["sm_utilization"]) if history else "",
            is_gone=self._is_gone,
        )
        return process_lines(picture, edge, cells, rows)

    def _facts(self, process: Process, series: Mapping[str, Series]) -> list[ProcessFact]:
        view, facts = self.view, self.view.process_facts()
        run, rows = facts.run(process), []
        if self._is_gone:
            seen = units.clock(self._last_seen)
            text = f"or released GPU {facts.label(process)}, after {seen}; all values are from then"
            rows.append(ProcessFact("ended", text, "warn", rows=2))
        if run:
            rank = f", rank {run.rank} of {run.world_size}" if run.world_size > 1 else ""
            rows.append(ProcessFact("run", f"{safe(run.name)}{rank}", "run"))
            epoch = run.epoch_text
            phase = f", {safe(run.phase)}" if run.phase else ""
            rows.append(ProcessFact("epoch", f"{epoch}{phase}"))
        elif last_run := facts.runs.get(process.run):
            was = "was " if last_run.state in (RunState.INTERRUPTED, RunState.STOPPED) else ""
            rows.append(
                ProcessFact("run", f"was part of {safe(last_run.name)}, which {was}{last_run.state.name.lower()}")
            )
        if location := job_or_container(process):
            rows.append(ProcessFact(TITLE.split(" ")[0].lower(), safe(location)))
        if is_known(process.started):
            age = elapsed(view.now - process.started)
            is_recent = view.now - process.started < DAY
            start_text = units.clock(process.started) if is_recent else units.moment(process.started)[:16]
            rows.append(ProcessFact("started", f"{start_text}, {age} ago"))
        memory = series["memory_used"].high if "memory_used" in series else ()
        peak = max(filter(is_known, memory), default=NAN)
        peak_text = f", peak {PROCESS_BY_KEY['memory_peak'].write(peak)}" if is_known(peak) else ""
        rows.append(ProcessFact("GPU memory", f"{_text('memory_used', process)}{peak_text}"))
        rows.append(ProcessFact("bandwidth", _text("memory_utilization", process)))
        if process.encoder_utilization > 0 or process.decoder_utilization > 0:
            encodes, decodes = _text("encoder_utilization", process), _text("decoder_utilization", process)
            rows.append(ProcessFact("video", f"encodes {encodes}, decodes {decodes}"))
        rows.append(ProcessFact("host memory", _text("host_memory", process)))
        if idle := facts.idle.get(process.uuid):
            seconds = f"{'for at least ' if idle.at_least else ''}{units.long_duration(idle.seconds)}"
            rows.append(ProcessFact("state", f"GPU allocated, idle {seconds}", "warn"))
        ancestors = self.table.parents.above(process) if facts.me else ()
        if ancestors:
            rows.append(ProcessFact("started by", f"{safe(ancestors[0].name)} ({ancestors[0].pid})"))
        devices = {sample.device.uuid: sample.device for sample in view.samples}
        device = devices.get(process.uuid)
        if unknown := missing_value_reasons(process, device.missing.get(PROCESS_SHARES) if device else None):
            rows.append(ProcessFact("unknown", unknown, "dim", rows=2))
        if self._command:
            rows.append(ProcessFact("command", self._command, rows=COMMAND_ROWS))
        return rows


def _text(key: str, process: Process) -> str:
    return PROCESS_BY_KEY[key].write(getattr(process, key), is_narrow=True)


def _curve(name: str, process: Process, series: Series | None, *, is_gone: bool) -> ProcessCurve:
    measure = next(measure_of for measure_of in MEASURES if measure_of.key == name)
    value = NAN if is_gone else getattr(process, name)
    values = [measure_of for measure_of in (*(series.high if series else ()), value) if is_known(measure_of)]
    largest = max(values, default=NAN)
    if name in ("memory_used", "host_memory"):
        axis = value_axis(_BYTES, largest)
        text, unit = axis.format.text(value), axis.format.unit
    else:
        top = 1.0 if name == "sm_utilization" or not largest > 1 else _power_of_two(largest)
        axis, text, unit = ValueAxis(0.0, top, 2, _RATIO), units.rounded(value * 100), "%"
    title = f"{measure.title} %" if unit == "%" else measure.title
    curve = PlotCurve(series.low, series.mean, series.high) if series else None
    return ProcessCurve(title, text, CHARTS[name], curve, axis, unit)


def _start_note(process: Process, series: Series) -> str:
    """Return the text before the first point of a chart; empty if the process started there."""
    first = next((time for time, value in zip(series.times, series.high, strict=True) if is_known(value)), NAN)
    return HISTORY_START if first - process.started > series.step + START_TOLERANCE else ""


def _power_of_two(value: float) -> float:
    """Return the next power of two, for a scale in whole CPUs."""
    top = 1.0
    while top < value and top < 1e6:
        top *= 2
    return top


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
_STRONG, _BOLD = theme.ink("strong", bold=True), theme.ink("text", bold=True)
_TEXT, _DIM, _FAINT = theme.ink("text"), theme.ink("dim"), theme.ink("faint")
_WARN = theme.ink("warn")
_KEY, _RULE = theme.ink("key", bold=True), theme.ink("rule")


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
            lines.append([Segment(fit(label, NAME), _FAINT), Segment(fit(part, room).rstrip(), theme.ink(role))])
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
