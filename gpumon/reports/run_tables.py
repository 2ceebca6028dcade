"""The tables of one run as text: its epochs, their phases, and its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpumon.common.numbers import is_known
from gpumon.diagnosis.past import is_partly_sampled
from gpumon.model import units
from gpumon.model.frame import TRAINING, RunState
from gpumon.model.metrics import Unit
from gpumon.model.units import AT_LEAST, AT_MOST
from gpumon.reports.text_table import TextColumn, distinct
from gpumon.storage.ledger.aggregate import between, is_worth_a_row, outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.combine import totals
from gpumon.storage.ledger.records import RankRow, Record, UsageRow
from gpumon.storage.ledger.schema import OTHER, STEP_ROWS, USAGE, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary

OPEN = " …"
"""Behind the number of an epoch that has not ended."""
BETWEEN = "between"
"""The row of all that lies outside epochs."""
_NAME_WIDTH = 16
"""Cells of a metric's name."""
_METRICS = 8
"""Logged metrics that get a column."""

TitledRow = tuple[str, EpochSummary]
"""The first cell of a row, and the stretch of time that it shows."""

HEADING = {column.name: column.heading for column in USAGE}
# Of each epoch what people look for first stays longest.
COLUMNS = (
    TextColumn("EPOCH", 100, right=False, most=24),
    TextColumn("TIME", 99),
    TextColumn("STEPS", 50),
    TextColumn("STEPS/S", 80),
    TextColumn("SAMPLES/S", 55),
    TextColumn("WAIT", 70),
    TextColumn(HEADING["utilization_mean"], 98),
    TextColumn("P5–P95", 40),
    TextColumn(HEADING["idle_share"], 75),
    TextColumn(HEADING["run_allocated_peak"], 60),
    TextColumn(HEADING["run_reserved_peak"], 45),
    TextColumn(HEADING["run_used_peak"], 30),
    TextColumn(HEADING["memory_used_peak"], 90),
    TextColumn(HEADING["energy"], 85),
    TextColumn("J/STEP", 35),
    TextColumn("J/SAMPLE", 34),
    TextColumn(HEADING["throttled_share"], 65),
)
_FIRST = {word: COLUMNS[0]._replace(heading=word) for word in ("EPOCH", "STEP", "PHASE", "RUN")}
"""The first column, by what the rows are of."""
_RANKS = (
    TextColumn("RANK", 100),
    TextColumn("PID", 60),
    TextColumn("GPU", 90, right=False),
    TextColumn("STATE", 95, right=False),
    TextColumn("STEPS", 50),
    TextColumn("WAIT", 70),
    TextColumn(HEADING["utilization_mean"], 85),
    TextColumn(HEADING["run_allocated_peak"], 40),
    TextColumn(HEADING["memory_used_peak"], 80),
    TextColumn(HEADING["energy"], 75),
    TextColumn("RETRIES", 30),
    TextColumn("OOMS", 65),
)


def epoch_table(
    epochs: Sequence[EpochSummary],
    phases: Mapping[int, Sequence[EpochSummary]],
    total: EpochSummary,
    outside: Sequence[TitledRow] = (),
    costs: Sequence[TextColumn] = (),
    priced: Callable[[EpochSummary], Sequence[str]] = lambda _: (),
) -> tuple[list[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of epochs; a phase is a row whose first cell is indented.

    `outside`: the rows of `outside_rows`; `costs`: columns of what has a price, of which `priced` gives the cells.
    """
    stretches = (*epochs, *(row for _, row in outside), total)
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))[:_METRICS]
    logged = [TextColumn(text, 88 if i == 0 else 56 - i) for i, text in enumerate(distinct(names, _NAME_WIDTH))]
    named: list[TitledRow] = []
    for epoch in epochs:
        named.append((f"{epoch.epoch}{OPEN if not is_known(epoch.ended) else ''}", epoch))
        named += [_titled(phase) for phase in phases.get(epoch.ordinal, ())]
    named += [*outside, ("all", total)]
    first_beside = len(named) - 1 - sum(row.ordinal > STEP_ROWS for _, row in outside)
    rows_of = [stretch for _, stretch in named]
    energies = energy_texts(rows_of[:first_beside], rows_of[first_beside:])
    told = dict(zip(names, (_told([stretch for _, stretch in named], name) for name in names), strict=True))
    rows = [
        _row(title, stretch, energies[place], [*priced(stretch), *(told[name][place] for name in names)])
        for place, (title, stretch) in enumerate(named)
    ]
    nothing = {place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) == {units.MISSING}}
    # Of which nobody knows anything, the note below says it once.
    rows = [tuple("" if place in nothing else cell for place, cell in enumerate(row)) for row in rows]
    return [_FIRST[_rows_of(epochs, outside)], *COLUMNS[1:], *costs, *logged], rows


def energy_texts(made: Sequence[EpochSummary], beside: Sequence[EpochSummary]) -> list[str]:
    """Energies of epochs or rows of steps, and of what stands beside them, in one unit; `≥` where a part is known."""
    stretches = [*made, *beside]
    joules = [one.value("energy_least" if one.lacks_energy else "energy") for one in stretches]
    texts = units.energies_beside(joules[: len(made)], joules[len(made) :])
    return [f"{AT_LEAST}{text}" if one.lacks_energy else text for one, text in zip(stretches, texts, strict=True)]


def _rows_of(epochs: Sequence[EpochSummary], outside: Sequence[TitledRow]) -> str:
    if epochs:
        return "EPOCH"
    if any(row.ordinal <= STEP_ROWS for _, row in outside):
        return "STEP"
    return "PHASE" if outside else "RUN"


def outside_rows(
    record: Record, epochs: Sequence[EpochSummary], total: EpochSummary, *, phases: bool
) -> list[TitledRow]:  # fmt: skip
    """Rows of what lies outside the epochs of a run, with a row for each of its `phases`.

    A run without epochs has no other rows than these phases, and rows of its steps where it marked them.
    """
    parts, together = outside_phases(record), between(record, epochs)
    if not epochs and record.step_rows:
        rows = [(steps_text(row) + (OPEN if not is_known(row.ended) else ""), row) for row in step_summaries(record)]
        return [*rows, *(_titled(part) for part in parts if part.phase != OTHER)]
    if together is not None and is_worth_a_row(together, parts, total):
        return [(BETWEEN, together), *(_titled(part) for part in parts if phases)]
    return [_titled(part) for part in parts] if not epochs and any(part.phase != OTHER for part in parts) else []


def _titled(phase: EpochSummary) -> TitledRow:
    # Training goes on after each other phase, if only for its last microseconds: that is no second training.
    times = f" ×{phase.times}" if phase.times > 1 and phase.phase not in (TRAINING, OTHER) else ""
    return f"  {phase.phase}{times}", phase


def rank_table(record: Record) -> tuple[Sequence[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of ranks."""
    return _RANKS, [_rank(record, i) for i in range(len(record.ranks))]


def live_peak(stretch: EpochSummary) -> str:
    """The most in live tensors: `31.0 GiB`, `≤31.0 GiB` or `≥31.0 GiB`; no exact one of what has not ended."""
    peak, read = stretch.live_peak, stretch.value("run_allocated_peak")
    if not is_known(peak.value):
        return units.limited(read, Unit.BYTES, AT_LEAST)
    return units.limited(peak.value, Unit.BYTES, _so_far(stretch) if peak.reached else AT_MOST)


def used_peak(stretch: EpochSummary) -> str:
    """The most memory in use on a device: `31.0 GiB`, or `≥31.0 GiB` where it goes on, or was sampled in part."""
    sign = AT_LEAST if is_partly_sampled(stretch) else _so_far(stretch)
    return units.limited(stretch.value("memory_used_peak"), Unit.BYTES, sign)


def _so_far(stretch: EpochSummary) -> str:
    """The sign of a peak that may still rise."""
    return AT_LEAST if stretch.is_open else ""


def _told(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the values that were logged by a name, with equal decimals; empty where none was."""
    texts = iter(units.plains([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def _row(title: str, stretch: EpochSummary, energy: str, further: Sequence[str]) -> tuple[str, ...]:
    values = dict(zip(HEADING, stretch.values, strict=True))
    low, high = values["utilization_p5"], values["utilization_p95"]
    return (
        title, units.span(stretch.seconds), units.count(stretch.steps), units.figures(stretch.steps_per_second),
        units.figures(stretch.samples_per_second),
        units.percent(stretch.wait_share),
        units.about(units.percent(values["utilization_mean"]), is_final=not stretch.is_settling),
        f"{units.percent(low)[:-1]}–{units.percent(high)}" if is_known(low) and is_known(high) else units.MISSING,
        units.about(units.percent(values["idle_share"]), is_final=not stretch.is_settling),
        live_peak(stretch),
        *(units.number(values[f"{name}_peak"], Unit.BYTES) for name in ("run_reserved", "run_used")),
        used_peak(stretch),
        energy, units.figures(stretch.energy_per_step),
        units.figures(stretch.energy_per_sample),
        units.percent(values["throttled_share"]),
        *further,
    )  # fmt: skip


def _rank(record: Record, place: int) -> tuple[str, ...]:
    rank = record.ranks[place]
    own: list[UsageRow] = [row for row in record.whole_epochs if row.rank == rank.key]
    whole = [row for row in own if row.ordinal == WHOLE_RUN and row.phase == WHOLE_EPOCH]
    values = dict(zip(HEADING, totals(whole or own), strict=True))
    return (
        str(rank.rank), str(rank.pid or units.MISSING), ", ".join(str(device.number) for device in rank.devices),
        rank.state.name.lower(), units.count(rank.steps or None), units.span(rank.wait),
        units.percent(values["utilization_mean"]), _rank_peak(rank, values["run_allocated_peak"]),
        units.limited(values["memory_used_peak"], Unit.BYTES, _of_rank(rank)),
        units.number(values["energy"], Unit.JOULES), units.whole(rank.retries), units.whole(rank.ooms),
    )  # fmt: skip


def _of_rank(rank: RankRow) -> str:
    """The sign of a peak that a rank may still exceed."""
    return AT_LEAST if rank.state is RunState.RUNNING else ""


def _rank_peak(rank: RankRow, read: float) -> str:
    """Of all devices of a rank together, as its framework counts them."""
    if is_known(rank.peak):
        return units.limited(rank.peak, Unit.BYTES, _of_rank(rank))
    return units.limited(read, Unit.BYTES, AT_LEAST)
