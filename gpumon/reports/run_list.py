"""The table of `gpumon runs list`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import units
from gpumon.model.columns import RUNS, View, shown
from gpumon.model.frame import RunState
from gpumon.reports import charges
from gpumon.reports.text_table import draw, text_column
from gpumon.storage.ledger.records import RunRow, RunSummary

_ROOM = {
    "id": (49, 17), "name": (24, 0), "user": (16, 6), "tags": (32, 0), "resumes": (49, 0), "hostname": (24, 0),
    "framework": (16, 0),
}  # fmt: skip
"""Maximum and minimum width of columns that contain text."""
COLUMNS = shown(RUNS, View.COMMAND)
RUN_COLUMNS = tuple(text_column(column, *_ROOM.get(column.key, (0, 0))) for column in COLUMNS)
_COSTS_AT = [column.key for column in COLUMNS].index("energy") + 1
"""Index at which the cost columns are inserted."""


def lines(
    runs: Sequence[RunSummary], now: float, width: int, prices: Prices | None = None,
    costs: Mapping[str, Charge] | None = None,
) -> Iterator[str]:  # fmt: skip
    """Yield a heading and a line for each run, at most `width` columns wide (0: unlimited).

    `now`: current time (s since 1970). `prices`: add columns of costs if not None. `costs`: the charge of each run by
    its id; required with `prices`.
    """
    if prices is None or costs is None:
        yield from draw(RUN_COLUMNS, [*run_rows(runs, now)], width)
        return
    rows = []
    for listed, row in zip(runs, run_rows(runs, now), strict=True):
        rows.append((*row[:_COSTS_AT], *charges.cells(costs.get(listed.run.id, NO_CHARGE), prices), *row[_COSTS_AT:]))
    yield from draw((*RUN_COLUMNS[:_COSTS_AT], *charges.columns(prices), *RUN_COLUMNS[_COSTS_AT:]), rows, width)


def state(run: RunRow, now: float) -> str:
    """Return the state of a run as one word."""
    return "unseen" if run.unseen_seconds(now) else run.state.name.lower()


def epoch_cell(listed: RunSummary) -> str:
    """Return the epoch in which a run is or ended, done or not, with the plan as text: `12/90`.

    All lists of runs show this text. If the run repeated its epochs or merged short ones, the number of its last epoch
    is lower than the number of epochs done, which is then shown. A run that ended before its first epoch has done 0.
    """
    run = listed.run
    done = None if listed.done is None else listed.done + run.epochs_before
    has_more = done is not None and done > listed.newest - run.base + 1
    if run.state is RunState.RUNNING or (listed.newest >= 0 and not has_more):
        return units.epoch_position(listed.newest, run.epochs, run.base)
    if not run.epochs and not listed.done:  # for a run without epochs, 0 would be wrong
        return units.MISSING
    return units.epochs_done(done, run.epochs)


def _utilization(listed: RunSummary) -> str:
    """Return the mean utilization of a run as text. It begins with `≈` if too little of the run's time was sampled."""
    return units.about(units.percent(listed.utilization), is_final=not is_utilization_about(listed))


def is_utilization_about(listed: RunSummary) -> bool:
    """Return whether too little of a run's time was sampled for its utilization to represent the whole run."""
    return listed.sampled_share < SAMPLED


def run_rows(runs: Sequence[RunSummary], now: float) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each run, in the order of `COLUMNS`. `now`: current time (s since 1970)."""
    lacks = [not is_known(listed.energy) and is_known(listed.energy_least) for listed in runs]
    joules = [listed.energy_least if lack else listed.energy for listed, lack in zip(runs, lacks, strict=True)]
    for listed, lack, energy in zip(runs, lacks, units.energy_column(joules), strict=True):
        yield _run_row(listed, f"{units.AT_LEAST}{energy}" if lack else energy, now)


def _run_row(listed: RunSummary, energy: str, now: float) -> tuple[str, ...]:
    run = listed.run
    cells = {
        "id": run.id, "name": run.name if run.name not in run.id else "", "user": run.user,
        "started": units.age(run.started, now), "seconds": units.fine_duration(run.duration),
        "state": state(run, now),
        "epoch": epoch_cell(listed), "gpus": str(listed.gpus or units.MISSING),
        "utilization_mean": _utilization(listed), "energy": energy, "tags": ", ".join(listed.tags),
        "resumes": run.resumes, "hostname": run.hostname, "framework": run.framework or run.label,
    }  # fmt: skip
    return tuple(cells[column.key] for column in COLUMNS)
