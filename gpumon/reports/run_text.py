"""A run as text, for `gpumon runs show`. `run_tables` has the tables, and `run_notes` the notes below them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import price_run, price_summary
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.model.run import exit_text
from gpumon.reports import charges
from gpumon.reports.run_list import state
from gpumon.reports.run_notes import notes
from gpumon.reports.run_tables import about_lines, epoch_table, outside_rows, rank_table
from gpumon.reports.text_table import SEPARATOR, draw, wrapped
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import DeviceRow, Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary


def lines(
    record: Record,
    now: float,
    width: int,
    *,
    phases: bool = False,
    ranks: bool = False,
    tail: int | None = None,
    prices: Prices | None = None,
) -> Iterator[str]:
    """Yield the head, table of epochs, totals and notes of a run, at most `width` columns wide (0: unlimited).

    `now`: current time (s since 1970). `phases`: add rows for phases. `ranks`: add a table of ranks. `tail`: show only
    this number of newest epochs or rows of steps. Totals and notes still cover the whole run. A line is wider than
    `width` if it has a single word that is wider.
    """
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    for line in head(record, epochs, now):
        yield from wrapped(line.split(SEPARATOR), width)
    yield ""
    if not epochs and record.run.epochs:
        yield "No epoch has started."
        yield ""
    shown = epochs[-tail:] if tail else epochs
    outside = outside_rows(record, epochs, total, phases=phases)
    step_rows = sum(row.ordinal <= STEP_ROWS for _, row in outside)
    left_out = max(0, step_rows - tail) if tail else 0
    outside = outside[left_out:]  # rows of steps come first
    parts = aggregate.phase_summaries(record) if phases else {}
    costs = charges.columns(prices) if prices else ()
    columns, rows = epoch_table(shown, parts, total, outside, costs, _cost_cells(record, epochs, total, prices))
    yield from draw(columns, rows, width)
    if len(shown) < len(epochs):
        noun = "rows of epochs" if any(epoch.merged > 1 for epoch in epochs) else "epochs"
        yield f"the last {len(shown)} of {units.count(len(epochs))} {noun}"
    if left_out:
        yield f"the last {tail} of {step_rows} rows of steps"
    if ranks or any(rank.state is not record.run.state for rank in record.ranks):
        yield ""
        yield from draw(*rank_table(record), width)
    yield ""
    for note in notes(record, epochs, total, prices):
        yield from wrapped([note], width)


def _cost_cells(
    record: Record, epochs: Sequence[EpochSummary], total: EpochSummary, prices: Prices | None
) -> Callable[[EpochSummary], Sequence[str]]:
    """Return a function that returns the cost cells of a row.

    The cost in the row of totals is the sum over the epochs, because each epoch is charged at the tariff of its own
    time.
    """

    def cells(stretch: EpochSummary) -> Sequence[str]:
        if prices is None:
            return ()
        is_all = stretch is total
        charge = (
            price_run(total, epochs, record.devices, prices) if is_all
            else price_summary(stretch, record.devices, prices)
        )  # fmt: skip
        return charges.cells(charge, prices)

    return cells


def head(record: Record, epochs: Sequence[EpochSummary], now: float) -> Iterator[str]:
    """Yield lines with the name, user, host, GPUs, times and state of a run."""
    run = record.run
    yield SEPARATOR.join(part for part in (run.name, f"run {run.id}", run.label) if part)
    ranks = f"{len(record.ranks)} of {run.world_size} ranks" if run.world_size > 1 else ""
    driver = f"driver {run.driver}" if run.driver else ""
    yield SEPARATOR.join(
        part
        for part in (f"{run.user or 'unknown user'} on {run.hostname or '?'}", run.framework, ranks, driver)
        if part
    )
    yield gpus(record.devices)
    yield SEPARATOR.join(overview(record, epochs, now))
    yield from about_lines(record.about)


def overview(record: Record, epochs: Sequence[EpochSummary], now: float) -> Iterator[str]:
    """Yield the state, start, duration and epochs of a run, and the run that it resumes if any, as text."""
    run = record.run
    facts = record.end_facts
    ending = exit_text(facts.exit_code, facts.exit_signal)
    yield f"{state(run, now)}: {ending}" if ending else state(run, now)
    if run.unseen_seconds(now):
        yield f"not seen by a daemon since {units.moment(run.updated)}"
    yield f"{units.moment(run.started)}, {units.fine_duration(run.duration)}"
    if epochs or run.epochs:
        done = None if record.done is None else record.done + run.epochs_before
        if done is not None and done > run.epochs:
            text = units.counted(done, "epoch")
        else:
            text = f"{units.count(done)} of {units.counted(run.epochs, 'epoch')}"
        yield f"{text} done" + (f" ({record.done} in this run)" if run.epochs_before else "")
    else:
        yield "no epochs"
    if run.resumes:
        yield f"resumes {run.resumes}"


def gpus(devices: Sequence[DeviceRow]) -> str:
    """Return the devices of a run as short text, such as `GPU 0, 1: NVIDIA H100 (79.6 GiB, 700 W)`."""
    kinds: dict[str, list[DeviceRow]] = {}
    for device in devices:
        known = [
            units.number(value, unit)
            for value, unit in ((device.memory_total, Unit.BYTES), (device.power_limit, Unit.WATTS))
            if is_known(value)
        ]
        kind = device.name + (f" ({', '.join(known)})" if known else "")
        kinds.setdefault(f": {kind}" if kind else "", []).append(device)
    parts = [f"GPU {', '.join(str(device.number) for device in same)}{kind}" for kind, same in kinds.items()]
    return "; ".join(parts) or "no GPU recorded"
