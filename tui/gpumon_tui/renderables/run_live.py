"""A run that goes on as its processes tell of it: its ranks, what its framework holds, and what it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment

from gpumon.analysis.ranks import Ranks
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import RANKS, View, shown
from gpumon.model.frame import Run
from gpumon.model.metrics import Unit
from gpumon_tui import theme
from gpumon_tui.memo import Memo
from gpumon_tui.renderables.gpu_numbers import numbers
from gpumon_tui.renderables.section import heading, margin, more, placed, rows
from gpumon_tui.renderables.table import Cell, Row, TableColumn, table_column
from gpumon_tui.renderables.text_width import Line, cut, safe

EPOCH_CELLS = 11
STEP = 13
"""Cells of a step."""
_CELLS = {"rank": 5, "gpus": 6, "epoch": EPOCH_CELLS, "phase": 10, "step": STEP, "pid": 8}
_KEEP = {"pid": 10, "wait": 35, "ooms": 30, "retries": 20}
"""What is less important here than in the table of commands."""
_SHOWN = shown(RANKS, View.TERMINAL)
COLUMNS = (
    *(
        table_column(column, _CELLS.get(column.key, 0))._replace(keep=_KEEP.get(column.key, column.keep))
        for column in _SHOWN
    ),
    TableColumn("", 0),
)
ROWS = 3
"""Lines of a run of one process: what it is, headings, its row."""


def facts(ranks: Ranks, labels: Mapping[str, str], resumes: str, cells: int) -> Line:
    """Return a line about a run: its ranks and GPUs, what it continues, its memory. `resumes`: id of that run."""
    first, line = ranks.first, [Segment(" " * (margin(cells) + 1))]
    gpus = numbers(ranks.gpus, labels)
    told = [(f"{ranks.present} {'rank' if ranks.present == '1' else 'ranks'}", f" on GPU {gpus}" if gpus else "")]
    if ranks.ooms > 0:
        told.append((units.counted(round(ranks.ooms), "out-of-memory error"), ""))
    if resumes or first.resumed:
        begin = f" from epoch {units.epoch(first.first_epoch, first.epochs, first.base)}" if first.resumed else ""
        told.append((f"resumes {safe(resumes)}" if resumes else "resumed", begin))
    held = _most(ranks.all, "reserved")
    if is_known(held):
        of = " held by the framework" + (" of the fullest rank" if ranks.is_distributed else "")
        told.append((units.number(held, Unit.BYTES), of))
    for strong, rest in told:
        line += [Segment("  ·  " if len(line) > 1 else "", theme.FAINT), Segment(strong, theme.STRONG)]
        line += [Segment(rest, theme.DIM)] if rest else []
    return cut(line, cells - margin(cells))


def live(
    ranks: Ranks, labels: Mapping[str, str], resumes: str, cells: int, height: int, drawn: Memo[Line]
) -> list[Line]:  # fmt: skip
    """Return the run in at most `height` lines: the facts, and a row for each rank here."""
    lines = [facts(ranks, labels, resumes, cells)]
    room = height - len(lines) - 1
    if room < 1:
        return lines[:height]
    of = [_row(run, labels) for run in ranks.all]
    empty = {place for place in range(len(COLUMNS) - 1) if all(row[place].text in ("", units.MISSING) for row in of)}
    chosen = placed(COLUMNS, cells, empty)
    shown = len(of) if len(of) <= room else room - 1
    lines.append(heading(chosen, cells))
    lines += rows(chosen, of[:shown], cells, top=0, height=shown, cursor=-1, has_keys=False, drawn=drawn)
    return [*lines, more(len(of) - shown, 0, cells)] if shown < len(of) else lines


def _row(run: Run, labels: Mapping[str, str]) -> Row:
    memory = run.memory
    place = units.epoch_within(EPOCH_CELLS, run.epoch, run.epochs, run.base) if run.epoch >= 0 else ""
    cells = {
        "rank": Cell(str(run.rank), theme.STRONG),
        "gpus": Cell(numbers(run.gpus, labels), theme.STRONG),
        "epoch": Cell(place, theme.RUN),
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
    """The step with its thousands set apart, as on the chart; without where that has no room."""
    apart = "/".join(units.count(int(number)) for number in run.step_text.split("/") if number)
    return apart if len(apart) <= STEP else run.step_text


def _count(value: float) -> str:
    return str(round(value)) if is_known(value) else ""


def _most(runs: Sequence[Run], name: str) -> float:
    return max((value for run in runs if is_known(value := getattr(run.memory, name))), default=NAN)
