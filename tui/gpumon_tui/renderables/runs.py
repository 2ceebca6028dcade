"""Rows of the table of runs: a run is one row, with what befell it and its ranks below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from rich.style import Style

from gpumon import units
from gpumon.analysis.epochs import Epochs
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks, memory_of
from gpumon.diagnosis.finding import Finding, Severity
from gpumon.frame import Process, Run, RunState
from gpumon_tui import theme
from gpumon_tui.renderables.bar import bar_text
from gpumon_tui.renderables.table import Cell, Row, TableColumn
from gpumon_tui.renderables.text_width import fit, safe, width

COLUMNS = (
    TableColumn("RUN", 18, keep=13),
    TableColumn("USER", 7, keep=6),
    TableColumn("RANKS", 5, right=True, keep=5),
    TableColumn("GPUS", 5, keep=2),
    TableColumn("EPOCH", 7, right=True, keep=12),
    TableColumn("PROGRESS", 8, keep=1),
    TableColumn("STEP", 7, right=True, keep=0),
    TableColumn("PHASE", 8, keep=8),
    TableColumn("MEM", 8, right=True, keep=7),
    TableColumn("METRICS", 0, keep=9),
    TableColumn("EPOCH IN", 8, right=True, keep=4),
    TableColumn("ETA", 7, right=True, keep=10),
    TableColumn("STATE", 8, keep=11),
)
STATES = {
    RunState.RUNNING: ("running", theme.GOOD),
    RunState.FINISHED: ("finished", theme.DIM),
    RunState.FAILED: ("failed", theme.CRITICAL),
    RunState.DIED: ("died", theme.CRITICAL),
    RunState.INTERRUPTED: ("interrupted", theme.DIM),
}
_WIDE = (*COLUMNS[:-1], COLUMNS[-1]._replace(cells=len(STATES[RunState.INTERRUPTED][0])))
ENDED_BADLY = (RunState.FAILED, RunState.DIED)
RESUMED = ("resumed", theme.GOOD)
OPEN, CLOSED, INDENT = "▾ ", "▸ ", "  "
_STEPS_KEEP = 10
NAME_CELLS = 10
"""Of a metric's name: with longer ones only the first metric would be seen."""


def columns(all_runs: Iterable[Ranks]) -> tuple[TableColumn, ...]:
    """Return the columns; those of states and steps are wider only where one of them needs it."""
    runs = [one for run in all_runs for one in run.all]
    found = _WIDE if any(one.state is RunState.INTERRUPTED for one in runs) else COLUMNS
    # Of a run without epochs the step says how far it is.
    planned = max((len(_steps(one)) for one in runs if _is_by_steps(one)), default=0)
    if not planned:
        return found
    return tuple(
        one._replace(cells=max(one.cells, planned), keep=_STEPS_KEEP) if one.title == "STEP" else one for one in found
    )


def row(
    ranks: Ranks, epochs: Epochs, processes: Sequence[Process], labels: Mapping[str, str], now: float, lead: str = "",
    told: Sequence[Finding] = (),
) -> Row:  # fmt: skip
    """One row for a run, as far as its slowest rank is.

    `lead` stands before the name; `told` is what befell it, where it is not told in rows below.
    """
    first, slowest, state = ranks.first, ranks.slowest, ranks.state
    word, style = RESUMED if state is RunState.RUNNING and slowest.resumed else STATES[state]
    far = progress(ranks, epochs, now)
    goes_on = state is RunState.RUNNING
    metrics = (
        Cell(" · ".join(note.summary for note in told), theme.CRITICAL)
        if told and state in ENDED_BADLY
        else _metrics(first)
    )
    return (
        Cell(lead + safe(first.name), theme.RUN),
        Cell(safe(first.user)),
        Cell(ranks.present, theme.DIM),
        Cell(numbers(ranks.gpus, labels), theme.DIM),
        Cell(units.epoch_place(slowest.epoch, slowest.epochs, slowest.base)),
        Cell(bar_text(far.done, 8) if first.epochs or _is_by_steps(slowest) else "", style),
        Cell(_steps(slowest)),
        Cell(safe(slowest.phase) if goes_on else ""),
        Cell(units.bytes_binary(memory_of(ranks.all, processes))),
        metrics,
        Cell(units.span(far.epoch), theme.DIM),
        Cell(units.duration(far.left) if goes_on else ""),
        Cell(word, style),
    )


def rank_row(run: Run, first: Run, processes: Sequence[Process], labels: Mapping[str, str]) -> Row:
    """A rank below its run: what differs from rank to rank, of metrics only those that `first` does not tell."""
    gpus = numbers(run.gpus, labels)
    word, style = STATES[run.state]
    quiet = theme.DIM
    return (
        Cell(f"{INDENT}{INDENT}rank {run.rank}" + (f" GPU {gpus}" if gpus else ""), quiet),
        Cell(""),
        Cell(""),
        Cell(""),
        Cell(units.epoch_place(run.epoch, run.epochs, run.base).partition("/")[0], quiet),
        Cell(""),
        Cell(_steps(run), quiet),
        Cell(safe(run.phase) if run.state is RunState.RUNNING else "", quiet),
        Cell(units.bytes_binary(memory_of((run,), processes)), quiet),
        own if (own := _metrics(run, quiet)).text != _metrics(first).text else Cell(""),
        Cell(""),
        Cell(""),
        Cell(word, style if run.state in ENDED_BADLY else quiet),
    )


def note_row(note: Finding) -> Row:
    """Return the row of a run's problems, across all columns."""
    style = theme.CRITICAL if note.severity is Severity.CRITICAL else theme.PLAIN
    return (Cell(f"{INDENT}{INDENT}{note.summary}", style),)


def numbers(uuids: Sequence[str], labels: Mapping[str, str]) -> str:
    """Devices by their labels: `0-3`, `0,5`, of MIG instances `0:1`; empty where none is known."""
    known = [label for uuid in uuids if (label := labels.get(uuid))]
    spans: list[list[int]] = []
    for index in sorted(int(label) for label in known if label.isdecimal()):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    whole = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return ",".join((*whole, *sorted(label for label in known if not label.isdecimal())))


def _steps(run: Run) -> str:
    """None before the first: not every training counts its steps. Those of a plan with it, where it has no epochs."""
    return run.step_text if _is_by_steps(run) else str(run.step or units.MISSING)


def _is_by_steps(run: Run) -> bool:
    return run.epoch < 0 and not run.epochs and run.facts.planned_steps > 0


def _metrics(run: Run, style: Style = theme.PLAIN) -> Cell:
    """Values that the training logged; NaN and infinities come first, so that a loss that diverged is seen."""
    odd = {name: value for name, value in run.metrics.items() if not isfinite(value)}
    text = "  ".join(f"{_name(name)} {units.plain(value)}" for name, value in {**odd, **run.metrics}.items())
    return Cell(text, theme.CRITICAL if odd else style)


def _name(name: str) -> str:
    name = safe(name)
    return name if width(name) <= NAME_CELLS else fit(name, NAME_CELLS)
