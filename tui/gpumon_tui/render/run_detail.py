"""An opened run: live state of its ranks, the table of epochs, findings, configuration and legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.past_findings import is_partly_sampled, sampled_text
from gpumon.model import units
from gpumon.model.columns import BY_KEY, RANKS, View, shown
from gpumon.model.frame import TRAINING, Run
from gpumon.model.metrics import Unit
from gpumon.reports import epoch_text
from gpumon.reports.run_tables import OPEN
from gpumon_tui import theme
from gpumon_tui.cache import Cache
from gpumon_tui.data.run_rows import COLUMNS
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.run_list import SEVERITY_STYLES, UNSEEN
from gpumon_tui.render.table import (
    Cell,
    Row,
    TableColumn,
    fit_columns,
    heading,
    hidden_rows,
    margin,
    placed_cells,
    row_line,
    table_column,
)
from gpumon_tui.render.text_width import SENTENCE, Line, cut, length, safe, width, wrap_limited

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import OpenRun, StretchRow


EPOCH_CELLS = 11
STEP = 13
"""Width of a step."""
_CELLS = {"rank": 5, "gpus": 6, "epoch": EPOCH_CELLS, "phase": 10, "step": STEP, "pid": 8}
_KEEP = {"pid": 10, "wait": 35, "ooms": 30, "retries": 20}
"""Priorities of columns that matter less here than in the output of commands."""
_SHOWN = shown(RANKS, View.TERMINAL)
RANK_COLUMNS = (
    *(
        table_column(column, _CELLS.get(column.key, 0))._replace(keep=_KEEP.get(column.key, column.keep))
        for column in _SHOWN
    ),
    TableColumn("", 0),
)
ROWS = 3
"""Lines for a run with one process: description, headings, one row."""


def facts_line(ranks: Ranks, labels: Mapping[str, str], resumes: str, cells: int) -> Line:
    """Return a line about a run: ranks and GPUs, the run it resumes (`resumes`: its id), and memory."""
    first, line = ranks.first, [Segment(" " * (margin(cells) + 1))]
    gpus = numbers(ranks.gpus, labels)
    parts = [(f"{ranks.present} {'rank' if ranks.present == '1' else 'ranks'}", f" on GPU {gpus}" if gpus else "")]
    if ranks.ooms > 0:
        parts.append((units.counted(round(ranks.ooms), "out-of-memory error"), ""))
    if resumes or first.resumed:
        begin = f" from epoch {units.epoch(first.first_epoch, first.epochs, first.base)}" if first.resumed else ""
        parts.append((f"resumes {safe(resumes)}" if resumes else "resumed", begin))
    memory = _maximum(ranks.all, "reserved")
    if is_known(memory):
        description = " held by the framework" + (" of the fullest rank" if ranks.is_distributed else "")
        parts.append((units.number(memory, Unit.BYTES), description))
    for strong, detail in parts:
        line += [Segment("  ·  " if len(line) > 1 else "", theme.FAINT), Segment(strong, theme.STRONG)]
        line += [Segment(detail, theme.DIM)] if detail else []
    return cut(line, cells - margin(cells))


def live_lines(
    ranks: Ranks, labels: Mapping[str, str], resumes: str, cells: int, height: int, cache: Cache[Line]
) -> list[Line]:  # fmt: skip
    """Return the live state in at most `height` lines: the facts, and a row for each rank on this machine."""
    lines = [facts_line(ranks, labels, resumes, cells)]
    room = height - len(lines) - 1
    if room < 1:
        return lines[:height]
    rank_rows = [_row(run, labels) for run in ranks.all]
    empty = {
        column.key
        for index, column in enumerate(RANK_COLUMNS[:-1])
        if all(row[index].text in ("", units.MISSING) for row in rank_rows)
    }
    side = margin(cells)
    placed = fit_columns(RANK_COLUMNS, side, cells - side, empty=frozenset(empty))
    visible = len(rank_rows) if len(rank_rows) <= room else room - 1
    lines.append(heading(placed, cells))
    for index, rank_row in enumerate(rank_rows[:visible]):
        content = placed_cells(rank_row, placed), placed, cells
        lines.append(cache.get(index, content, partial(row_line, *content)))
    return [*lines, hidden_rows(len(rank_rows) - visible, 0, cells)] if visible < len(rank_rows) else lines


def _row(run: Run, labels: Mapping[str, str]) -> Row:
    memory = run.memory
    position = units.epoch_within(EPOCH_CELLS, run.epoch, run.epochs, run.base) if run.epoch >= 0 else ""
    cells = {
        "rank": Cell(str(run.rank), theme.STRONG),
        "gpus": Cell(numbers(run.gpus, labels), theme.STRONG),
        "epoch": Cell(position, theme.RUN),
        "phase": Cell(safe(run.phase)),
        "step": Cell(_step(run)),
        "wait": Cell(units.fine_duration(run.wait) if is_known(run.wait) else ""),
        **{key: Cell(units.number(getattr(memory, key), Unit.BYTES)) for key in ("allocated", "reserved", "peak")},
        "retries": Cell(_count(memory.retries), theme.DIM),
        "ooms": Cell(_count(memory.ooms), theme.WARN if memory.ooms > 0 else theme.DIM),
        "pid": Cell(str(run.pid), theme.DIM),
    }  # fmt: skip
    return (*(cells[column.key] for column in _SHOWN), Cell(""))


def _step(run: Run) -> str:
    """Format the step with thousands separators, as in the chart; without them if it does not fit."""
    with_separators = "/".join(units.count(int(number)) for number in run.step_text.split("/") if number)
    return with_separators if len(with_separators) <= STEP else run.step_text


def _count(value: float) -> str:
    return str(round(value)) if is_known(value) else ""


def _maximum(runs: Sequence[Run], name: str) -> float:
    return max((value for run in runs if is_known(value := getattr(run.memory, name))), default=NAN)


BAR = 10
HEAD_CELLS = 20
"""Maximum width of a metric name above its column."""
COST = 12
"""Width of an amount with currency."""
FINDINGS, FINDING_LINES = 2, 2
"""Maximum number of findings above the table, and lines of each."""
DEVICE_CELLS = 24
"""Minimum width, in columns, at which the GPUs of the run are named; a truncated name is useless."""
STRONG = theme.ink("strong", bold=True)
_TRAIN_STYLE, _WAIT_STYLE, _LONG_WAIT_STYLE = theme.tint("util", 0.42), theme.tint("warn", 0.42), theme.WARN
_PHASES = {
    "validate": theme.tint("power", 0.42), "evaluate": theme.tint("power", 0.42),
    "test": theme.tint("power", 0.42), "checkpoint": theme.tint("temp", 0.42),
}  # fmt: skip
_EPOCH, _CHANGE = BY_KEY["epoch"], BY_KEY["change"]
INPUT_BOUND = "input_bound"
LOGGED_CHANGE = "logged_change"
"""Key of the column with the change of the first logged metric."""
_ACTIVE_MARK = " ▸"
_WIDE_FROM, _MEDIUM_FROM, _NARROW = 130, 76, 10
"""Table widths from which titles have their full width, or most of it; and their width in a narrower table."""


def columns(run: OpenRun, cells: int) -> tuple[TableColumn, ...]:
    """Return the columns of the table of a run's epochs or steps."""
    longest = max((width(row.title.strip()) for row in (*run.rows[-1:], *run.other_rows)), default=0) + len(
        _ACTIVE_MARK
    )
    title_cells = min(max(8, longest), _title_cells(cells))
    metrics = [
        TableColumn(text, 8, right=True, keep=50 - index, preferred=min(width(text), HEAD_CELLS))
        for index, text in enumerate(map(safe, run.metrics))
    ]
    changes = [TableColumn(_CHANGE.short, 7, right=True, keep=52, key=LOGGED_CHANGE)] if metrics else []
    first, *others = map(table_column, COLUMNS)
    title = table_column(_EPOCH, title_cells)._replace(right=True)
    return (
        title._replace(title="steps") if run.is_by_steps else title,
        first,
        table_column(_CHANGE, 7),
        table_column(BY_KEY["phases"], BAR),
        *others,
        *(metrics[:1] and [metrics[0]._replace(keep=90)]),
        *changes,
        *metrics[1:],
        *(TableColumn(title, COST, right=True, keep=74 - index) for index, title in enumerate(run.costs)),
        table_column(BY_KEY["verdict"], 14),
    )


class RowScale(NamedTuple):
    """Scale shared by all rows of a run."""

    longest: float
    """Seconds of a full bar."""
    largest: Mapping[str, float]
    """Largest number of each column, by its key."""
    empty: frozenset[str]
    """Keys of columns for which no row has a value."""


def row_scale(run: OpenRun) -> RowScale:
    """Return the scale of a run's rows."""
    totals = run.totals
    empty = {column.key for column in COLUMNS[1:] if column.key not in totals.largest}
    if len(run.rows) < 2:
        empty |= {_CHANGE.key, LOGGED_CHANGE}
    return RowScale(totals.longest, totals.largest, frozenset(empty))


def row(stretch: StretchRow, scale: RowScale, *, is_old: bool = False) -> Row:
    """Return an epoch as a row.

    An active epoch ends where its ledger ends, so that all values refer to the same time.

    `is_old`: the frames are outdated, so it is unknown whether the run is still active.
    """
    summary = stretch.summary
    style = STRONG if stretch.is_running else theme.PLAIN
    sign = _ACTIVE_MARK if stretch.is_running and not is_old else OPEN if stretch.goes_on else ""
    row_verdict = stretch.verdict
    verdict = row_verdict.text if row_verdict is not None else ""
    if row_verdict is not None and row_verdict.kind == "running" and is_old:
        verdict = UNSEEN
    severity = row_verdict.severity if row_verdict is not None else None
    is_slow = row_verdict is not None and row_verdict.kind == INPUT_BOUND
    is_idle = row_verdict is not None and row_verdict.kind == "mostly_idle"
    styles = {
        "seconds": style, "utilization_mean": style, "energy": style,
        "wait_share": theme.WARN if is_slow else theme.DIM, "idle_share": theme.WARN if is_idle else theme.DIM,
    }  # fmt: skip
    first, *others = (
        Cell(epoch_text.cell(column, summary, scale.largest), styles.get(column.key, theme.DIM)) for column in COLUMNS
    )
    logged = [Cell(text, style) for text in stretch.logged]
    return (
        Cell(stretch.title + sign, theme.RUN),
        first,
        Cell(_change(stretch.seconds_change), theme.DIM),
        Cell("", parts=phase_bar(stretch, scale.longest, BAR)),
        *others,
        *logged[:1],
        *([Cell(_change_of_value(stretch.logged_change), theme.DIM)] if logged else []),
        *logged[1:],
        *(Cell(text, theme.DIM) for text in stretch.costs),
        Cell(safe(verdict), _severity_style(severity)),
    )


def summary_row(stretch: StretchRow, scale: RowScale, cells: int, *, is_whole: bool) -> Row:
    """Return a row below the epochs, for the whole run or the time between epochs, in a table of the given width."""
    summary = stretch.summary
    style = STRONG if is_whole else theme.PLAIN if stretch.title == stretch.title.strip() else theme.DIM
    first, *others = (Cell(epoch_text.cell(column, summary, scale.largest), style) for column in COLUMNS)
    logged = [Cell(text, style) for text in stretch.logged]
    return (
        Cell(safe(_title(stretch.title, cells)).strip(), style),
        first,
        Cell(""),
        Cell("", parts=[] if is_whole else phase_bar(stretch, scale.longest, BAR)) if stretch.parts else Cell(""),
        *others,
        *logged[:1],
        *([Cell("")] if logged else []),
        *logged[1:],
        *(Cell(text, style) for text in stretch.costs),
        Cell(sampled_text(summary) if is_whole and is_partly_sampled(summary) else "", theme.DIM),
    )


def _title_cells(cells: int) -> int:
    """Return the maximum width of a row title in a table of the given width."""
    return 17 if cells >= _WIDE_FROM else 14 if cells >= _MEDIUM_FROM else _NARROW


def _title(title: str, cells: int) -> str:
    """Return a title with its count, such as `checkpoint ×4`, if both fit."""
    return title if width(title.strip()) <= _title_cells(cells) else title.partition(" ×")[0]


def phase_bar(stretch: StretchRow, longest: float, cells: int) -> Line:
    """Draw the time as a bar: work, data wait, then each other phase."""
    seconds = stretch.summary.seconds
    if not longest > 0 or not seconds > 0:
        return []
    other_phases = [(name, length) for name, length in stretch.parts if name != TRAINING and length > 0]
    wait_seconds = min(seconds, stretch.summary.wait) if is_known(stretch.summary.wait) else 0.0
    work_seconds = max(0.0, seconds - wait_seconds - sum(length for _, length in other_phases))
    is_slow = stretch.verdict is not None and stretch.verdict.kind == INPUT_BOUND
    pieces = [
        (work_seconds, _TRAIN_STYLE),
        (wait_seconds, _LONG_WAIT_STYLE if is_slow else _WAIT_STYLE),
        *((length, _PHASES.get(name, theme.FAINT)) for name, length in other_phases),
    ]
    line: Line = []
    end_seconds = 0.0
    for part_seconds, style in pieces:
        first, end_seconds = round(end_seconds / longest * cells), end_seconds + part_seconds
        count = min(cells, round(end_seconds / longest * cells)) - first
        if count > 0:
            line.append(Segment("▆" * count, style))
    return line


def legend(run: OpenRun, cells: int) -> list[Line]:
    """Return the legend of the bars for the run's phases, in as many lines as needed."""
    names = [name for name in run.phases if name != TRAINING]
    pairs = [("train", _TRAIN_STYLE), ("waits for data", _WAIT_STYLE)]
    pairs += [(safe(name), _PHASES.get(name, theme.FAINT)) for name in names[:4]]
    lines: list[Line] = [[]]
    for name, style in pairs:
        entry: Line = [Segment("▆▆", style), Segment(f" {name}", theme.DIM)]
        if lines[-1] and length(lines[-1]) + 2 + length(entry) > cells:
            lines.append([])
        lines[-1] += [Segment("  "), *entry] if lines[-1] else entry
    return [cut(line, cells) for line in lines]


def head(run: OpenRun, state: str, cells: int, max_lines: int) -> list[Line]:
    """Return lines about a run, at most `rows`: results, findings, and configuration."""
    left_margin = margin(cells)
    indent = " " * (left_margin + 1)
    whole_run, line = run.whole, [Segment(indent)]
    sampled = (
        sampled_text(whole_run.summary) if is_partly_sampled(whole_run.summary) else ""
    )  # values were measured in this part only
    for value, description in (
        (state, ""), (units.fine_duration(run.seconds), ""), (sampled, ""), (_epochs(run), ""),
        (epoch_text.cell(BY_KEY["energy"], whole_run.summary, run.totals.largest), ""), (tick_note(run), ""),
        (epoch_text.peak("memory_used_peak", whole_run.summary), " peak"),
    ):  # fmt: skip
        fits = len(line) == 1 or length(line) + 5 + width(value + description) <= cells - left_margin
        if value and value != units.MISSING and fits:
            line += [Segment("  ·  " if len(line) > 1 else "", theme.FAINT), Segment(value, STRONG)]
            line += [Segment(description, theme.DIM)] if description else []
    if length(line) + DEVICE_CELLS <= cells - left_margin:
        line.append(Segment(f"  ·  {run.devices}", theme.DIM))
    lines: list[Line] = [cut(line, cells - left_margin)]
    for finding in run.findings[:FINDINGS]:
        glyph = "▲ " if finding.severity is Severity.CRITICAL else "△ "
        text = f"{finding.summary[:1].upper()}{finding.summary[1:]}. {finding.action}".rstrip()
        style = SEVERITY_STYLES[finding.severity]
        parts = wrap_limited(
            safe(text, SENTENCE), max(1, cells - left_margin - len(indent) - len(glyph)), FINDING_LINES
        )
        for index, part in enumerate(parts):
            sign = Segment(glyph, style + Style(bold=True)) if not index else Segment(" " * len(glyph))
            lines.append([Segment(indent), sign, Segment(part, theme.PLAIN)])
    lines += [
        cut([Segment(indent), Segment(safe(text, SENTENCE), theme.DIM)], cells - left_margin) for text in run.about[:3]
    ]
    return lines[: max(1, max_lines)]


def tick_note(run: OpenRun) -> str:
    """Return a note if utilization is not computed from the driver's own, finer samples; empty if it is, or if
    unknown.
    """
    summary = run.whole.summary
    if "ticks" not in summary.utilization_from or not is_known(summary.value("utilization_mean")):
        return ""
    return "util by ticks" if summary.utilization_from == "ticks" else "util partly by ticks"


def _epochs(run: OpenRun) -> str:
    if run.is_by_steps:
        return units.counted(len(run.rows), "row") + " of steps"
    run_record = run.record.run
    if run_record.epochs:
        done, plan = units.count(run.totals.done), f"of {run_record.epochs} "
        return f"{done} {plan if run_record.epochs >= (run.totals.done or 0) else ''}epochs done"
    return f"{units.count(run.totals.done)} epochs done" if run.rows else "no epochs"


def _severity_style(severity: Severity | None) -> Style:
    return theme.FAINT if severity is Severity.INFO else SEVERITY_STYLES[severity]


def _change(share: float) -> str:
    return units.change(share) if is_known(share) else ""


def _change_of_value(share: float) -> str:
    return units.change_of_value(share) if is_known(share) else ""
