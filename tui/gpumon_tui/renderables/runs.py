"""Rows of the table of runs: all ranks of a run are one row."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon import units
from gpumon.frame import NAN, Run, RunState
from gpumon_tui import theme
from gpumon_tui.epochs import Epochs
from gpumon_tui.renderables.bar import bar_text
from gpumon_tui.renderables.cells import safe
from gpumon_tui.renderables.table import Cell, Column, Row

COLUMNS = (
    Column("RUN", 16, keep=12),
    Column("USER", 8, keep=4),
    Column("RANKS", 5, right=True, keep=2),
    Column("EPOCH", 9, right=True, keep=11),
    Column("PROGRESS", 8, keep=5),
    Column("STEP", 7, right=True, keep=3),
    Column("PHASE", 8, keep=7),
    Column("METRICS", 0, keep=8),
    Column("EPOCH IN", 8, right=True, keep=6),
    Column("ETA", 8, right=True, keep=9),
    Column("STATE", 8, keep=10),
)
STATES = {
    RunState.RUNNING: ("running", theme.GOOD),
    RunState.FINISHED: ("finished", theme.DIM),
    RunState.FAILED: ("failed", theme.CRITICAL),
    RunState.DIED: ("died", theme.CRITICAL),
}


def by_id(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Ranks of each run; runs that go on first, then the newest."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.rank):
        groups.setdefault(run.id, []).append(run)
    return dict(sorted(groups.items(), key=lambda group: _order(group[1])))


def row(ranks: Sequence[Run], epochs: Epochs, now: float) -> Row:
    """One row for a run, from its ranks."""
    first = ranks[0]
    state = worst(ranks)
    word, style = STATES[state]
    duration = epochs.duration(first.key)
    return (
        Cell(safe(first.name), theme.RUN),
        Cell(safe(first.user)),
        Cell(_ranks(ranks), theme.DIM),
        Cell(_epoch(ranks)),
        Cell(bar_text(progress(first), 8) if first.epochs else "", style),
        Cell(str(first.step)),
        Cell(safe(first.phase) if state is RunState.RUNNING else ""),
        Cell(_metrics(first)),
        Cell(units.duration(duration), theme.DIM),
        Cell(units.duration(remaining(first, duration, now)) if state is RunState.RUNNING else ""),
        Cell(word, style),
    )


def worst(ranks: Sequence[Run]) -> RunState:
    """A run whose one rank died has died, though the others still wait for it."""
    states = {run.state for run in ranks}
    return next(s for s in (RunState.DIED, RunState.FAILED, RunState.RUNNING, RunState.FINISHED) if s in states)


def progress(run: Run) -> float:
    """The share of the planned epochs that are done."""
    if not run.epochs:
        return NAN
    done = run.epoch - run.first_epoch + (run.state is RunState.FINISHED)
    return min(1.0, max(0, done) / run.epochs)


def remaining(run: Run, duration: float, now: float) -> float:
    """Seconds until the last planned epoch ends, at the pace of the finished ones; NaN when unknown."""
    if not run.epochs or run.epoch < 0:
        return NAN
    after = max(0, run.first_epoch + run.epochs - 1 - run.epoch)  # a run may go on beyond its plan
    current = max(0.0, duration - (now - run.epoch_started))
    return after * duration + current


def _order(ranks: Sequence[Run]) -> tuple[bool, float]:
    started = ranks[0].started
    return worst(ranks) is not RunState.RUNNING, -started if started == started else 0.0


def _ranks(ranks: Sequence[Run]) -> str:
    size = ranks[0].world_size
    return str(size) if len(ranks) == size else f"{len(ranks)}/{size}"


def _epoch(ranks: Sequence[Run]) -> str:
    lowest, highest = min(run.epoch for run in ranks), max(run.epoch for run in ranks)
    if highest < 0:
        return units.MISSING
    text = str(highest) if lowest == highest else f"{max(0, lowest)}..{highest}"
    return f"{text}/{ranks[0].epochs}" if ranks[0].epochs else text


def _metrics(run: Run) -> str:
    return "  ".join(f"{safe(name)} {units.plain(value)}" for name, value in list(run.metrics.items())[:3])
