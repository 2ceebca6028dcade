"""The list of runs as text: `gpumon runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import units
from gpumon.reports import charges
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.ledger.records import RunRow, RunSummary

COLUMNS = (
    TextColumn("RUN", 100, right=False, most=49, least=17),
    TextColumn("NAME", 30, right=False, most=24),
    TextColumn("USER", 84, right=False, most=16, least=6),
    TextColumn("STARTED", 86),
    TextColumn("TIME", 82),
    TextColumn("STATE", 90, right=False),
    TextColumn("EPOCH", 88),
    TextColumn("GPUS", 40),
    TextColumn("UTIL", 70),
    TextColumn("ENERGY", 75),
    TextColumn("TAGS", 35, right=False, most=32),
    TextColumn("RESUMES", 20, right=False, most=49),
    TextColumn("HOST", 15, right=False, most=24),
    TextColumn("FRAMEWORK", 10, right=False, most=16),
)
_COSTS_AT = [column.heading for column in COLUMNS].index("ENERGY") + 1
"""Place of the columns of costs, where there are any."""


def lines(
    runs: Sequence[RunSummary], now: float, width: int, prices: Prices | None = None,
    costs: Mapping[str, Charge] | None = None,
) -> Iterator[str]:  # fmt: skip
    """A line for each run under a heading, at most `width` cells wide (0: as wide as it gets).

    `costs`: charges by the id of a run, which have columns where there are `prices`.
    """
    if prices is None or costs is None:
        yield from draw(COLUMNS, [*_rows(runs, now)], width)
        return
    rows = []
    for listed, row in zip(runs, _rows(runs, now), strict=True):
        rows.append((*row[:_COSTS_AT], *charges.cells(costs.get(listed.run.id, NO_CHARGE), prices), *row[_COSTS_AT:]))
    yield from draw((*COLUMNS[:_COSTS_AT], *charges.columns(prices), *COLUMNS[_COSTS_AT:]), rows, width)


def state(run: RunRow, now: float) -> str:
    """Return the state of a run as one word."""
    return "unseen" if run.unseen(now) else run.state.name.lower()


def place(listed: RunSummary) -> str:
    """Return the epoch in which a run is or ended, as all views count it: `12/90`, whether or not that was done."""
    return units.epoch_place(listed.newest, listed.run.epochs, listed.run.base)


def _rows(runs: Sequence[RunSummary], now: float) -> Iterator[tuple[str, ...]]:
    lacks = [not is_known(listed.energy) and is_known(listed.energy_least) for listed in runs]
    joules = [listed.energy_least if lack else listed.energy for listed, lack in zip(runs, lacks, strict=True)]
    for listed, lack, energy in zip(runs, lacks, units.energies(joules), strict=True):
        yield _row(listed, f"{units.AT_LEAST}{energy}" if lack else energy, now)


def _row(listed: RunSummary, energy: str, now: float) -> tuple[str, ...]:
    run = listed.run
    return (
        run.id, run.name if run.name not in run.id else "", run.user, units.age(run.started, now),
        units.span(run.lasted(now)), state(run, now), place(listed), str(listed.gpus or units.MISSING),
        units.percent(listed.utilization), energy,
        ", ".join(listed.tags), run.resumes,
        run.hostname, run.framework or run.label,
    )  # fmt: skip
