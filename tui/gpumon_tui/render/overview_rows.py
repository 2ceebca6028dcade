"""Rows of the overview's sections: epochs, findings, runs and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.progress import Progress
from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.common.program import callable_commands
from gpumon.diagnosis.finding import FindingGroup, Severity
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.model.frame import RunState
from gpumon.model.process import Process
from gpumon.reports import epoch_text
from gpumon.reports.run_tables import OPEN
from gpumon_tui import theme
from gpumon_tui.data.processes import ProcessFacts
from gpumon_tui.data.run_rows import COLUMNS
from gpumon_tui.render import process_columns
from gpumon_tui.render.bars import progress_line
from gpumon_tui.render.table import Cell, PlacedColumn, Row, TableColumn, row_line, table_column
from gpumon_tui.render.text_width import SENTENCE, Line, fit, length, safe, width

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import StretchRow


ACTIVE_MARK = " ▸"
_EPOCH, _CHANGE = BY_KEY["epoch"], BY_KEY["change"]
_ALWAYS_SHOWN = ("seconds", "utilization_mean")
"""Columns that are shown even if no row has a value."""


class EpochLine(NamedTuple):
    """An epoch as a row."""

    title: str
    """Name: `e6`."""
    values: Mapping[str, float]
    """Values by column key; unknown ones are missing or NaN."""
    change: float = NAN
    """Change of its duration against the previous epoch, as a share of it."""
    logged: Sequence[str] = ()
    """Formatted values of the logged metrics that have columns; empty where not logged."""
    goes_on: bool = False
    signs: Mapping[str, str] = {}
    """Prefixes of numbers that are bounds or may still change, by column key."""


def largest(lines: Iterable[EpochLine]) -> Mapping[str, float]:
    """Return the largest number of each column; columns without known values are missing."""
    maxima: dict[str, float] = {}
    for line in lines:
        for key, value in line.values.items():
            if is_known(value):
                maxima[key] = max(value, maxima.get(key, value))
    return maxima


def columns(lines: Sequence[EpochLine], metrics: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return the columns for which any row has a value, including at most two logged `metrics`."""
    keys = largest(lines).keys() | _ALWAYS_SHOWN
    first, *others = (table_column(column) for column in COLUMNS if column.key in keys)
    return (
        table_column(_EPOCH, 8)._replace(right=True),
        first._replace(cells=7),
        *((table_column(_CHANGE, 7),) if any(is_known(line.change) for line in lines) else ()),
        *others,
        *(
            TableColumn(name, 8, right=True, keep=97 - index, preferred=min(width(name), 20))
            for index, name in enumerate(map(safe, metrics[:2]))
        ),
    )


def texts(line: EpochLine, columns: Sequence[TableColumn], maxima: Mapping[str, float]) -> Row:
    """Return the cells of a row for `columns` of a table; `maxima` has the largest number of each column."""
    style = theme.STRONG if line.goes_on else theme.PLAIN

    def styled(text: str, style: Style = theme.PLAIN) -> Cell:
        return Cell(units.MISSING, theme.FAINT) if text in ("", units.MISSING) else Cell(text, style)

    by_key = {
        _EPOCH.key: Cell(line.title + (ACTIVE_MARK if line.goes_on else ""), theme.RUN),
        _CHANGE.key: Cell(units.change_of_value(line.change) if is_known(line.change) else "", theme.DIM),
    }
    for column in COLUMNS:
        value = line.values.get(column.key, NAN)
        text = column.write(value, maxima.get(column.key, value), is_narrow=True)
        sign = line.signs.get(column.key, "") if text != units.MISSING else ""
        by_key[column.key] = styled(sign + text, style if column.key == "seconds" else theme.PLAIN)
    logged = iter([styled(text, style) for text in line.logged[:2]])
    return tuple(by_key[column.key] if column.key in by_key else next(logged, styled("")) for column in columns)


def from_stretch(row: StretchRow) -> EpochLine:
    """Convert a row of an opened run."""
    return EpochLine(
        row.title + (OPEN if row.goes_on and not row.is_running else ""),
        {column.key: epoch_text.number(column.key, row.summary) for column in COLUMNS},
        row.seconds_change,
        row.logged,
        row.is_running,
        {column.key: epoch_text.sign(column.key, row.summary) for column in COLUMNS},
    )


MIN_SUBJECT, _SUBJECT = 14, 20
"""Minimum width of a finding's subject, on a narrow screen and on others."""
MARKS = {Severity.CRITICAL: "▲", Severity.WARNING: "△", Severity.INFO: "·"}
MARK_STYLES = {
    Severity.CRITICAL: theme.CRITICAL,
    Severity.WARNING: theme.ink("warn", bold=True),
    Severity.INFO: theme.DIM,
}
_SUBJECT_MARGINS = 6
"""Cells for mark, gaps and margins around a finding's subject and sentence."""
ACTION_FROM = 100
"""Minimum width, in columns, at which a finding is shown with its recommended action."""

_NAME = 32
"""Maximum width of a run name; independent of the current runs, so that columns do not move."""
LOSS = 7
"""Width of the loss column."""
RUN_COLUMNS = (
    TableColumn("run", 15, keep=12, preferred=_NAME, key="run"),
    TableColumn("user", 8, keep=5, key="user"),
    TableColumn("GPUs", 6, keep=7, key="gpus"),
    TableColumn("", 0, keep=4, preferred=20, minimum=10, key="progress"),
    TableColumn("epoch", 11, right=True, keep=11, key="epoch"),
    TableColumn("phase", 8, keep=3, key="phase"),
    TableColumn("steps/s", 7, right=True, keep=8, key="pace"),
    TableColumn("loss", LOSS, right=True, keep=9, key="loss"),
    TableColumn("change", 7, right=True, keep=6, key="change"),
    TableColumn("left", 11, right=True, keep=10, key="left"),
    TableColumn("ends", 5, right=True, keep=2, key="ends"),
)
EPOCH_CELLS = next(column.cells for column in RUN_COLUMNS if column.key == "epoch")
NARROW_RUN_COLUMNS = tuple(
    column._replace(keep=99, cells=min(column.cells, 13)) if column.key in ("run", "progress", "left") else column
    for column in RUN_COLUMNS
)
"""Columns for narrow screens: name, progress, and time left."""
PROCESS_NAMES = ("pid", "gpu", "user", "mem", "sm", "cpu", "host", "time", "run", "program")
"""Process columns of the overview."""
_PRIORITIES = (9, 10, 8, 7, 6, 3, 1, 2, 0, 11)
_RUN_CELLS, _PROGRAM, _WISHES = 14, 12, {"run": _NAME, "program": 24}


def _process_column(name: str, keep: int) -> TableColumn:
    column = process_columns.BY_NAME[name]
    cells = _RUN_CELLS if name == "run" else max(column.cells, len(column.title)) if column.right else column.cells
    return TableColumn(
        column.title, cells, column.right, keep, preferred=_WISHES.get(name, 0), minimum=_PROGRAM, key=name
    )


PROCESS_COLUMNS = tuple(_process_column(name, keep) for name, keep in zip(PROCESS_NAMES, _PRIORITIES, strict=True))
ENDED_STATES = {
    RunState.FINISHED: ("finished", theme.DIM),
    RunState.FAILED: ("failed", theme.CRITICAL),
    RunState.DIED: ("died", theme.CRITICAL),
    RunState.INTERRUPTED: ("interrupted", theme.DIM),
    RunState.STOPPED: ("stopped", theme.DIM),
}
"""Words for ended runs, shown in place of the time left."""


def subject_cells(groups: Sequence[FindingGroup], row: int, cells: int) -> int:
    """Return the width of a finding's subject: the longest subject, if there is room.

    A long subject is truncated to show the sentence that states the problem.
    """
    sizes = [width(safe(group.title)) for group in groups]
    if cells >= ACTION_FROM:
        free_cells = cells - _SUBJECT_MARGINS - max(width(safe(group.first.summary)) for group in groups)
        return min(max(sizes), max(_SUBJECT, min(_NAME, free_cells)))
    room = cells - _SUBJECT_MARGINS - width(safe(groups[row].first.summary))
    return min(sizes[row], max(MIN_SUBJECT, room))


def finding_line(group: FindingGroup, cells: int, side: int, subject: int) -> Line:
    """Return one finding, about one or several GPUs: severity, subject and summary, and the action if there is room."""
    finding, begin = group.first, side + 2 + subject + 2
    end = cells - side
    summary = fit(safe(finding.summary), max(0, end - begin)).rstrip()
    action = safe(callable_commands(group.action), SENTENCE)
    texts: Line = [Segment(summary, theme.PLAIN)]
    if cells >= ACTION_FROM and action and length(texts) + 3 + width(action) <= end - begin:
        texts += [Segment(" " * (end - begin - length(texts) - width(action))), Segment(action, theme.DIM)]
    row = (
        Cell(MARKS[finding.severity], MARK_STYLES[finding.severity]), Cell(safe(group.title), theme.STRONG),
        Cell("", parts=texts),
    )  # fmt: skip
    widths = ((side, 1), (side + 2, subject), (begin, max(1, end - begin)))
    columns = [PlacedColumn(index, first, TableColumn("", room)) for index, (first, room) in enumerate(widths)]
    return row_line(row, columns, cells)


def empty_run_columns(runs: Sequence[Ranks]) -> frozenset[str]:
    """Return the keys of columns for which no run has a value."""
    has_loss = any(loss_cell(ranks.metrics).text for ranks in runs)
    has_active = any(ranks.state is RunState.RUNNING for ranks in runs)
    keys = () if has_loss else ("loss", "change")
    return frozenset(keys if has_active else (*keys, "phase", "pace", "ends"))


_PROCESS_HAS_VALUE: Mapping[str, Callable[[Process], bool]] = {
    "sm": lambda process: is_known(process.sm_utilization), "cpu": lambda process: is_known(process.cpu_utilization),
    "host": lambda process: is_known(process.host_memory), "time": lambda process: is_known(process.started),
    "user": lambda process: bool(process.user),
}  # fmt: skip


def empty_process_columns(processes: Sequence[Process]) -> frozenset[str]:
    """Return the keys of columns for which no process has a value."""
    return frozenset(name for name, has_value in _PROCESS_HAS_VALUE.items() if not any(map(has_value, processes)))


def run_row(
    ranks: Ranks, run_progress: Progress, gpus: str, *, now: float, bar_cells: int, pace: str, change: float
) -> Row:  # fmt: skip
    """Return the cells of a run by `RUN_COLUMNS`; progress is the slowest rank's.

    `pace`: steps per second as text; `change`: relative change of the loss against the previous epoch; NaN if unknown.
    """
    first, slowest = ranks.first, ranks.slowest
    is_active = ranks.state is RunState.RUNNING
    progress_text = slowest.step_text if slowest.epoch < 0 and not slowest.epochs else ""
    if slowest.epoch >= 0:
        progress_text = units.epoch_position(slowest.epoch, slowest.epochs, slowest.base)
    has_left = is_active and isfinite(run_progress.left)
    left = Cell(units.short_duration(run_progress.left)) if has_left else Cell(units.MISSING, theme.FAINT)
    return (
        Cell(safe(first.name), theme.RUN),
        Cell(safe(first.user)),
        Cell(gpus),
        Cell("", parts=progress_line(run_progress.done, bar_cells, theme.RUN)),
        Cell(progress_text or units.MISSING, theme.STRONG if progress_text else theme.FAINT),
        Cell(safe(slowest.phase) if is_active else ""),
        Cell(pace if is_active else ""),
        loss_cell(ranks.metrics),
        Cell(units.change_of_value(change) if is_known(change) else "", theme.GOOD if change < 0 else theme.PLAIN),
        left if is_active else Cell(*ENDED_STATES.get(ranks.state, ("", theme.PLAIN))),
        Cell(units.clock(now + run_progress.left).rpartition(":")[0] if has_left else "", theme.DIM),
    )


def loss_name(metrics: Mapping[str, float]) -> str:
    """Return the name of the loss among the logged metrics of a run; empty if there is none."""
    return next((name for name in metrics if "loss" in name.lower()), "")


def loss_cell(metrics: Mapping[str, float]) -> Cell:
    """Return the loss, or else the first logged value; a non-finite value takes precedence and is marked as an
    alarm.
    """
    non_finite = next(((name, value) for name, value in metrics.items() if not isfinite(value)), None)
    if non_finite is not None:
        return Cell(units.logged_number(non_finite[1]), theme.CRITICAL)
    name = loss_name(metrics)
    if not name:
        return Cell("")
    value = metrics[name]
    texts = (units.padded_logged_number(value), *(units.signed(f"{value:.{digits}e}") for digits in (1, 0)))
    return Cell(next((text for text in texts if len(text) <= LOSS), texts[-1]))


def run_brief(ranks: Ranks, run_progress: Progress) -> Line:
    """Return a run in short form: `resnet50 8/90 2 h 13 m`."""
    slowest = ranks.slowest
    position = (
        units.epoch_position(slowest.epoch, slowest.epochs, slowest.base) if slowest.epoch >= 0 else slowest.step_text
    )
    line: Line = [Segment(fit(safe(ranks.first.name), min(16, width(safe(ranks.first.name)))), theme.RUN)]
    if position:
        line += [Segment(f" {position}", theme.STRONG)]
    if ranks.state is not RunState.RUNNING:
        word, style = ENDED_STATES[ranks.state]
        line.append(Segment(f" {word}", style))
    elif isfinite(run_progress.left):
        line.append(Segment(f" {units.short_duration(run_progress.left)}", theme.DIM))
    return line


def process_row(process: Process, facts: ProcessFacts) -> Row:
    """Return the cells of a process by `PROCESS_COLUMNS`."""
    return tuple(process_columns.BY_NAME[name].cell(process, facts) for name in PROCESS_NAMES)
