"""The list of runs as text: `gpumon runs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon import units
from gpumon.ledger.records import Listed, RunRow
from gpumon.metrics import Unit
from gpumon.reports.text_table import Column, draw

COLUMNS = (
    Column("RUN", 100, right=False, most=49, least=17),
    Column("NAME", 30, right=False, most=24),
    Column("USER", 84, right=False, most=16, least=6),
    Column("STARTED", 86),
    Column("TIME", 82),
    Column("STATE", 90, right=False),
    Column("EPOCHS", 88),
    Column("GPUS", 40),
    Column("UTIL", 70),
    Column("ENERGY", 75),
    Column("RESUMES", 20, right=False, most=49),
    Column("HOST", 15, right=False, most=24),
    Column("FRAMEWORK", 10, right=False, most=16),
)


def lines(runs: Sequence[Listed], now: float, width: int) -> Iterator[str]:
    """A line for each run under a heading, at most `width` cells wide (0: as wide as it gets)."""
    yield from draw(COLUMNS, [_row(listed, now) for listed in runs], width)


def state(run: RunRow, now: float) -> str:
    """How a run stands, in one word."""
    return "unseen" if run.unseen(now) else run.state.name.lower()


def done(listed: Listed) -> str:
    """Epochs done of those planned: `12/90`. After a resume those before it count."""
    run = listed.run
    before = max(0, run.first_epoch - run.base) if listed.done else 0
    return f"{listed.done + before}/{run.epochs}" if run.epochs else str(listed.done)


def _row(listed: Listed, now: float) -> tuple[str, ...]:
    run = listed.run
    return (
        run.id, run.name if run.name not in run.id else "", run.user, units.age(run.started, now),
        units.span(run.lasted(now)), state(run, now), done(listed), str(listed.gpus or units.MISSING),
        units.percent(listed.utilization), units.number(listed.energy, Unit.JOULES), run.resumes,
        run.hostname, run.framework or run.label,
    )  # fmt: skip
