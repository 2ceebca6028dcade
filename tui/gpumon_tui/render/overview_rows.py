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
from gpumon.model.frame import Run, RunState
from gpumon.model.process import Process
from gpumon.reports import epoch_text
from gpumon.reports.run_tables import OPEN
from gpumon_tui import palette, theme
from gpumon_tui.data.process_facts import ProcessFacts
from gpumon_tui.data.run_rows import COLUMNS
from gpumon_tui.render import process_columns
from gpumon_tui.render.lean_section import Told
from gpumon_tui.render.table import TableColumn, table_column
from gpumon_tui.render.text_width import SENTENCE, Line, Placed, fit, safe, width

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import StretchRow


GOES_ON = " ▸"
_EPOCH, _CHANGE = BY_KEY["epoch"], BY_KEY["change"]
_ALWAYS = ("seconds", "utilization_mean")
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
    found: dict[str, float] = {}
    for line in lines:
        for key, value in line.values.items():
            if is_known(value):
                found[key] = max(value, found.get(key, value))
    return found


def columns(lines: Sequence[EpochLine], metrics: Sequence[str]) -> tuple[TableColumn, ...]:
    """Return the columns for which any row has a value, including at most two logged `metrics`."""
    known = largest(lines).keys() | _ALWAYS
    first, *others = (table_column(column) for column in COLUMNS if column.key in known)
    return (
        table_column(_EPOCH, 8)._replace(right=True),
        first._replace(cells=7),
        *((table_column(_CHANGE, 7),) if any(is_known(line.change) for line in lines) else ()),
        *others,
        *(
            TableColumn(name, 8, right=True, keep=97 - place, wish=min(width(name), 20))
            for place, name in enumerate(map(safe, metrics[:2]))
        ),
    )


def texts(line: EpochLine, of: Sequence[TableColumn], largest: Mapping[str, float]) -> list[Told | Line]:
    """Return the texts of a row for the columns `of` a table; `largest` has the largest number of each column."""
    style = theme.STRONG if line.goes_on else theme.PLAIN

    def known(text: str, style: Style = theme.PLAIN) -> Told:
        return (units.MISSING, theme.FAINT) if text in ("", units.MISSING) else (text, style)

    by_title = {
        _EPOCH.short: (line.title + (GOES_ON if line.goes_on else ""), theme.RUN),
        _CHANGE.short: (units.change_of_value(line.change) if is_known(line.change) else "", theme.DIM),
    }
    for column in COLUMNS:
        value = line.values.get(column.key, NAN)
        text = column.write(value, largest.get(column.key, value), is_narrow=True)
        sign = line.signs.get(column.key, "") if text != units.MISSING else ""
        by_title[column.short] = known(sign + text, style if column.key == "seconds" else theme.PLAIN)
    logged = iter([known(text, style) for text in line.logged[:2]])
    return [by_title[column.title] if column.title in by_title else next(logged, known("")) for column in of]


def of_ledger(row: StretchRow) -> EpochLine:
    """Convert a row of an opened run."""
    return EpochLine(
        row.title + (OPEN if row.goes_on and not row.is_running else ""),
        {column.key: epoch_text.number(column.key, row.summary) for column in COLUMNS},
        row.seconds_change,
        row.logged,
        row.is_running,
        {column.key: epoch_text.sign(column.key, row.summary) for column in COLUMNS},
    )


LEAST_SUBJECT, _SUBJECT = 14, 20
"""Minimum width of a finding's subject, on a narrow screen and on others."""
MARKS = {Severity.CRITICAL: "▲", Severity.WARNING: "△", Severity.INFO: "·"}
INKS = {Severity.CRITICAL: theme.CRITICAL, Severity.WARNING: palette.ink("warn", bold=True), Severity.INFO: theme.DIM}
_AROUND_SUBJECT = 6
"""Cells for mark, gaps and margins around a finding's subject and sentence."""
ACTION_FROM = 100
"""Width from which a finding is shown with its recommended action."""

_NAME = 32
"""Maximum width of a run name; independent of the current runs, so that columns do not move."""
LOSS = 7
"""Width of the loss column."""
RUN_COLUMNS = (
    TableColumn("run", 15, keep=12, wish=_NAME),
    TableColumn("user", 8, keep=5),
    TableColumn("GPUs", 6, keep=7),
    TableColumn("", 0, keep=4, wish=20, least=10),
    TableColumn("epoch", 11, right=True, keep=11),
    TableColumn("phase", 8, keep=3),
    TableColumn("steps/s", 7, right=True, keep=8),
    TableColumn("loss", LOSS, right=True, keep=9),
    TableColumn("change", 7, right=True, keep=6),
    TableColumn("left", 11, right=True, keep=10),
    TableColumn("ends", 5, right=True, keep=2),
)
EPOCH_CELLS = next(column.cells for column in RUN_COLUMNS if column.title == "epoch")
NARROW_RUN_COLUMNS = tuple(
    one._replace(keep=99, cells=min(one.cells, 13)) if one.title in ("run", "", "left") else one for one in RUN_COLUMNS
)
"""Columns for narrow screens: name, progress, and time left."""
PROCESS_NAMES = ("pid", "gpu", "user", "mem", "sm", "cpu", "host", "time", "run", "program")
"""Process columns of the overview."""
_KEPT = (9, 10, 8, 7, 6, 3, 1, 2, 0, 11)
_RUN_CELLS, _PROGRAM, _WISHES = 14, 12, {"run": _NAME, "program": 24}


def _lean(name: str, keep: int) -> TableColumn:
    of = process_columns.BY_NAME[name]
    cells = _RUN_CELLS if name == "run" else max(of.cells, len(of.title)) if of.right else of.cells
    return TableColumn(of.title, cells, of.right, keep, wish=_WISHES.get(name, 0), least=_PROGRAM)


PROCESS_COLUMNS = tuple(_lean(name, keep) for name, keep in zip(PROCESS_NAMES, _KEPT, strict=True))
STATES = {
    RunState.FINISHED: ("finished", theme.DIM),
    RunState.FAILED: ("failed", theme.CRITICAL),
    RunState.DIED: ("died", theme.CRITICAL),
    RunState.INTERRUPTED: ("interrupted", theme.DIM),
    RunState.STOPPED: ("stopped", theme.DIM),
}
"""Words for ended runs, shown in place of the time left."""


def subject_cells(found: Sequence[FindingGroup], place: int, cells: int) -> int:
    """Return the width of a finding's subject: that of the longest one, if there is room.

    A long subject is truncated in favor of the sentence that states the problem.
    """
    sizes = [width(safe(one.title)) for one in found]
    if cells >= ACTION_FROM:
        left = cells - _AROUND_SUBJECT - max(width(safe(one.first.summary)) for one in found)
        return min(max(sizes), max(_SUBJECT, min(_NAME, left)))
    room = cells - _AROUND_SUBJECT - width(safe(found[place].first.summary))
    return min(sizes[place], max(LEAST_SUBJECT, room))


def finding_row(group: FindingGroup, cells: int, left: int, subject: int) -> Placed:
    """Return one finding, about one or several GPUs: severity, subject and summary, and the action if there is room."""
    row, found = Placed(), group.first
    row.put(left, MARKS[found.severity], INKS[found.severity])
    row.put(left + 2, fit(safe(group.title), subject), theme.STRONG)
    at = left + 2 + subject + 2
    end = cells - left
    summary = safe(found.summary)
    at = row.put(at, fit(summary, max(0, end - at)).rstrip(), theme.PLAIN)
    action = safe(callable_commands(group.action), SENTENCE)
    if cells >= ACTION_FROM and action and at + 3 + width(action) <= end:
        row.right(end, action, theme.DIM)
    return row


def empty_of_runs(of: Sequence[Ranks]) -> frozenset[str]:
    """Return the titles of columns for which no run has a value."""
    has_loss, goes_on = any(loss_text(one.first)[0] for one in of), any(one.state is RunState.RUNNING for one in of)
    found = () if has_loss else ("loss", "change")
    return frozenset(found if goes_on else (*found, "phase", "steps/s", "ends"))


_PROCESS_HAS: Mapping[str, Callable[[Process], bool]] = {
    "sm": lambda one: is_known(one.sm_utilization), "cpu": lambda one: is_known(one.cpu_utilization),
    "host": lambda one: is_known(one.host_memory), "time": lambda one: is_known(one.started),
    "user": lambda one: bool(one.user),
}  # fmt: skip


def empty_of_processes(of: Sequence[Process]) -> frozenset[str]:
    """Return the titles of columns for which no process has a value."""
    names = (name for name, has in _PROCESS_HAS.items() if not any(map(has, of)))
    return frozenset(process_columns.BY_NAME[name].title for name in names)


def progress_bar(done: float, cells: int) -> Line:
    """Draw a progress bar to half a cell; an empty track if the progress is unknown."""
    full = round(2 * min(1.0, max(0.0, done)) * cells) if isfinite(done) else 0
    halves = "━" * (full // 2) + "╸" * (full % 2)
    line: Line = [Segment(halves, theme.RUN)] if halves else []
    rest = cells - len(halves)
    return [*line, Segment("━" * rest, theme.TRACK)] if rest else line


def run_texts(
    ranks: Ranks, far: Progress, gpus: str, *, now: float, bar_cells: int, pace: str, change: float
) -> tuple[Told | Line, ...]:  # fmt: skip
    """Return the texts of a run by `RUN_COLUMNS`; progress is that of its slowest rank.

    `pace`: steps per second as text; `change`: relative change of the loss against the previous epoch; NaN if unknown.
    """
    first, slowest = ranks.first, ranks.slowest
    goes_on = ranks.state is RunState.RUNNING
    ended = STATES.get(ranks.state, ("", theme.PLAIN))
    by_steps = slowest.epoch < 0 and not slowest.epochs
    number = slowest.epoch, slowest.epochs, slowest.base
    place = slowest.step_text if by_steps else ""
    if slowest.epoch >= 0:
        place = units.epoch_position(*number)
    loss, ink = loss_text(first)
    has_left = goes_on and isfinite(far.left)
    return (
        (safe(first.name), theme.RUN),
        (safe(first.user), theme.PLAIN),
        (gpus, theme.PLAIN),
        progress_bar(far.done, bar_cells),
        (place or units.MISSING, theme.STRONG if place else theme.FAINT),
        (safe(slowest.phase) if goes_on else "", theme.PLAIN),
        (pace if goes_on else "", theme.PLAIN),
        (loss, ink),
        (units.change_of_value(change) if is_known(change) else "", theme.GOOD if change < 0 else theme.PLAIN),
        (units.short_duration(far.left), theme.PLAIN)
        if has_left
        else (units.MISSING, theme.FAINT)
        if goes_on
        else ended,
        (units.clock(now + far.left).rpartition(":")[0], theme.DIM) if has_left else ("", theme.DIM),
    )


def loss_name(run: Run) -> str:
    """Return the name of the loss among a run's logged metrics; empty if there is none."""
    return next((one for one in run.metrics if "loss" in one.lower()), "")


def loss_text(run: Run) -> Told:
    """Return the loss, or else the first logged value; a non-finite value takes precedence and is marked as an
    alarm.
    """
    odd = next(((name, value) for name, value in run.metrics.items() if not isfinite(value)), None)
    if odd is not None:
        return units.logged_number(odd[1]), theme.CRITICAL
    name = loss_name(run)
    if not name:
        return "", theme.PLAIN
    value = run.metrics[name]
    texts = (units.padded_logged_number(value), *(units.signed(f"{value:.{digits}e}") for digits in (1, 0)))
    return next((text for text in texts if len(text) <= LOSS), texts[-1]), theme.PLAIN


def run_brief(ranks: Ranks, far: Progress) -> Line:
    """Return a run in short form: `resnet50 8/90 2 h 13 m`."""
    slowest = ranks.slowest
    place = (
        units.epoch_position(slowest.epoch, slowest.epochs, slowest.base) if slowest.epoch >= 0 else slowest.step_text
    )
    line: Line = [Segment(fit(safe(ranks.first.name), min(16, width(safe(ranks.first.name)))), theme.RUN)]
    if place:
        line += [Segment(f" {place}", theme.STRONG)]
    if ranks.state is not RunState.RUNNING:
        word, style = STATES[ranks.state]
        line.append(Segment(f" {word}", style))
    elif isfinite(far.left):
        line.append(Segment(f" {units.short_duration(far.left)}", theme.DIM))
    return line


def said_beside(process: Process, facts: ProcessFacts) -> tuple[object, ...]:
    """Return everything that `process_texts` takes from `facts`; a row is redrawn if it or the process changes."""
    run = facts.runs.get(process.run) if process.run else None
    return (
        facts.label(process),
        process.uuid in facts.silent,
        facts.is_own(process),
        facts.program(process),
        run.name if run else process_columns.about_idle(facts.idle.get(process.uuid)),
        process_columns.elapsed(facts.now - process.started),
    )


def process_texts(process: Process, facts: ProcessFacts) -> tuple[Told | Line, ...]:
    """Return the texts of a process by `PROCESS_COLUMNS`."""
    cells = (process_columns.BY_NAME[name].cell(process, facts) for name in PROCESS_NAMES)
    return tuple((cell.text, cell.style) for cell in cells)
