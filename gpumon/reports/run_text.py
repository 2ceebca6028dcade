"""One run as text: `gpumon runs show`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gpumon import units
from gpumon.diagnosis.past import findings
from gpumon.frame import TRAINING, Mark, RunState
from gpumon.ledger import aggregate, phase_summary
from gpumon.ledger.combine import totals
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.records import DeviceRow, MarkRow, RankRow, Record, UsageRow
from gpumon.ledger.schema import USAGE, WHOLE_EPOCH, WHOLE_RUN
from gpumon.metrics import Unit
from gpumon.missing import is_known
from gpumon.reports.run_list import state
from gpumon.reports.text_table import TextColumn, distinct, draw

SEEN = 0.98
"""A stretch of which samples saw less was not sampled in full."""
AT_MOST, AT_LEAST = "≤", "≥"
_OPEN = " …"
"""Behind the number of an epoch that has not ended."""
_NAME_WIDTH = 16
"""Cells of a metric's name."""
_METRICS = 8
"""Logged metrics that get a column."""
_NOTED = 5
"""Epochs or marks that a note names one by one."""

_SHOWN_ELSEWHERE = frozenset(("out_of_memory", "diverged", "died", "failed"))
"""Findings that a note, or the head, has in more words."""

_HEADING = {column.name: column.heading for column in USAGE}
# Of each epoch what people look for first stays longest.
COLUMNS = (
    TextColumn("EPOCH", 100, right=False, most=24),
    TextColumn("TIME", 99),
    TextColumn("STEPS", 50),
    TextColumn("STEPS/S", 80),
    TextColumn("SAMPLES/S", 55),
    TextColumn("WAIT", 70),
    TextColumn(_HEADING["utilization_mean"], 98),
    TextColumn("P5–P95", 40),
    TextColumn(_HEADING["idle_share"], 75),
    TextColumn(_HEADING["run_allocated_peak"], 60),
    TextColumn(_HEADING["run_reserved_peak"], 45),
    TextColumn(_HEADING["run_used_peak"], 30),
    TextColumn(_HEADING["memory_used_peak"], 90),
    TextColumn(_HEADING["energy"], 85),
    TextColumn("J/STEP", 35),
    TextColumn("J/SAMPLE", 34),
    TextColumn(_HEADING["throttled_share"], 65),
)
_RANKS = (
    TextColumn("RANK", 100),
    TextColumn("PID", 60),
    TextColumn("GPU", 90, right=False),
    TextColumn("STATE", 95, right=False),
    TextColumn("STEPS", 50),
    TextColumn("WAIT", 70),
    TextColumn(_HEADING["utilization_mean"], 85),
    TextColumn(_HEADING["run_allocated_peak"], 40),
    TextColumn(_HEADING["memory_used_peak"], 80),
    TextColumn(_HEADING["energy"], 75),
    TextColumn("RETRIES", 30),
    TextColumn("OOMS", 65),
)


def lines(
    record: Record, now: float, width: int, *, phases: bool = False, ranks: bool = False, tail: int | None = None
) -> Iterator[str]:
    """Head, epoch table, totals and notes, at most `width` cells wide where the words allow it (0: as it comes).

    `tail`: of the epochs only so many, the last ones; totals and notes are of all.
    """
    epochs = aggregate.epochs(record)
    total = aggregate.whole(record, epochs, now)
    yield from head(record, epochs, now)
    yield ""
    if epochs:
        shown = epochs[-tail:] if tail else epochs
        columns, rows = epoch_table(shown, phase_summary.phases(record) if phases else {}, total)
        yield from draw(columns, rows, width)
        if len(shown) < len(epochs):
            yield f"the last {len(shown)} of {units.count(len(epochs))} epochs"
    else:
        yield "No epoch has started."
        if total.utilization_from:
            yield ""
            yield from draw(*epoch_table((), {}, total), width)
    if ranks or any(rank.state is not record.run.state for rank in record.ranks):
        yield ""
        yield from draw(*rank_table(record), width)
    yield ""
    yield from notes(record, epochs, total)


def head(record: Record, epochs: Sequence[EpochSummary], now: float) -> Iterator[str]:
    """Yield name, user, host, GPUs, times and state."""
    run = record.run
    yield "  ·  ".join(part for part in (run.name, f"run {run.id}", run.label) if part)
    ranks = f"{len(record.ranks)} of {run.world_size} ranks" if run.world_size > 1 else ""
    driver = f"driver {run.driver}" if run.driver else ""
    yield "  ·  ".join(
        part
        for part in (f"{run.user or 'unknown user'} on {run.hostname or '?'}", run.framework, ranks, driver)
        if part
    )
    yield gpus(record.devices)
    yield "  ·  ".join(overview(record, epochs, now))


def overview(record: Record, epochs: Sequence[EpochSummary], now: float) -> Iterator[str]:
    """Yield the facts of a run: state, start, duration, epochs, and the run that it resumes."""
    run = record.run
    yield state(run, now)
    if run.unseen(now):
        yield f"not seen by a daemon since {units.moment(run.updated)}"
    yield f"{units.moment(run.started)}, {units.span(run.lasted(now))}"
    ended = sum(is_known(epoch.ended) for epoch in epochs)
    planned = f" of {run.epochs}" if run.epochs else ""
    before = max(0, run.first_epoch - run.base) if epochs else 0
    yield f"{ended + before}{planned} epochs" + (f" ({ended} in this run)" if before else "")
    if run.resumes:
        yield f"resumes {run.resumes}"


def gpus(devices: Sequence[DeviceRow]) -> str:
    """The devices of a run in a few words: `GPU 0, 1: NVIDIA H100 (79.6 GiB, 700 W)`."""
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


def notes(record: Record, epochs: Sequence[EpochSummary], total: EpochSummary) -> Iterator[str]:
    """Yield what a reader must know to read the numbers right."""
    yield utilization_note(total, going_on=record.run.state is RunState.RUNNING)
    peaks = {live_peak(stretch)[0] for stretch in (*epochs, total)}
    if AT_MOST in peaks:
        yield f"{AT_MOST} upper bound: the framework reached its peak earlier."
    if AT_LEAST in peaks:
        yield f"{AT_LEAST} lower bound: read between steps, when activations are freed; the framework reports no peak."
    yield from diverged(epochs)
    lost = sum(rank.lost_events for rank in record.ranks)
    if any(not is_known(epoch.ended) for epoch in epochs):
        yield f"{_OPEN.strip()} epoch has not ended{', or whose end was overwritten' if lost else ''}."
    missed = [epoch for epoch in epochs if epoch.sampled_share < SEEN]
    if missed:
        seen = _several([_missed(epoch) for epoch in missed])
        yield f"Incompletely sampled: {seen}; no daemon was running, or it was late."
    if lost:
        yield f"{lost} boundaries were overwritten before a daemon read them: epochs may be missing."
    for mark in record.marks:
        if mark.mark is Mark.OUT_OF_MEMORY:
            yield out_of_memory(record, mark)
    for finding in findings(record, total, record.run.updated):
        if finding.kind not in _SHOWN_ELSEWHERE:
            yield f"{finding.summary[:1].upper()}{finding.summary[1:]}. {finding.action}".rstrip()


def diverged(epochs: Sequence[EpochSummary]) -> Iterator[str]:
    """Yield a sentence for each metric that was logged as NaN or infinite."""
    for name in dict.fromkeys(name for epoch in epochs for name in epoch.metrics):
        odd = [epoch for epoch in epochs if not math.isfinite(epoch.metrics.get(name, 0.0))]
        if odd:
            since = f" and in {units.counted(len(odd) - 1, 'later epoch')}" if len(odd) > 1 else ""
            yield f"Diverged: {name} is {units.plain(odd[0].metrics[name])} in epoch {odd[0].epoch}{since}."


def utilization_note(total: EpochSummary, *, going_on: bool = False) -> str:
    """Where utilization is from, in a sentence."""
    origin = {
        "driver": "the driver's own samples, several per second",
        "ticks": "one sample per tick of the daemon",
        "driver, ticks": "the driver's own samples, and from one sample per tick where it gave none",
    }.get(total.utilization_from)
    return (
        f"{_HEADING['utilization_mean']} comes from {origin}."
        if origin
        else f"No GPU of this run was sampled{' yet' if going_on else ''}."
    )


def out_of_memory(record: Record, mark: MarkRow) -> str:
    """An out-of-memory error in a sentence."""
    number = next((rank.rank for rank in record.ranks if rank.key == mark.rank), 0)
    where = f"rank {number}, " if record.run.world_size > 1 else ""
    epoch = f"epoch {mark.epoch}, " if mark.epoch >= 0 else ""
    when = f"{where}{epoch}step {mark.step}, {units.moment(mark.time)}"
    amounts = [
        f"{what} {units.number(value, Unit.BYTES)}"
        for what, value in (("requested", mark.asked), ("free", mark.free))
        if is_known(value)
    ]
    return f"Out of memory: {when}{': ' if amounts else ''}{', '.join(amounts)}."


def epoch_table(
    epochs: Sequence[EpochSummary], phases: Mapping[int, Sequence[EpochSummary]], total: EpochSummary
) -> tuple[list[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of epochs; a phase is a row whose first cell is indented."""
    names = list(dict.fromkeys(name for epoch in epochs for name in epoch.metrics))[:_METRICS]
    logged = [TextColumn(text, 88 if i == 0 else 56 - i) for i, text in enumerate(distinct(names, _NAME_WIDTH))]
    named: list[tuple[str, EpochSummary]] = []
    for epoch in epochs:
        named.append((f"{epoch.epoch}{_OPEN if not is_known(epoch.ended) else ''}", epoch))
        for phase in phases.get(epoch.ordinal, ()):
            # Training goes on after each other phase, if only for its last microseconds: that is no second training.
            times = f" ×{phase.times}" if phase.times > 1 and phase.phase != TRAINING else ""
            named.append((f"  {phase.phase}{times}", phase))
    named.append(("all", total))
    energies = units.energies([stretch.value("energy") for _, stretch in named])
    told = dict(zip(names, (_told([stretch for _, stretch in named], name) for name in names), strict=True))
    rows = [
        _row(title, stretch, energies[place], [told[name][place] for name in names])
        for place, (title, stretch) in enumerate(named)
    ]
    nothing = {place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) == {units.MISSING}}
    # Of which nobody knows anything, the note below says it once.
    rows = [tuple("" if place in nothing else cell for place, cell in enumerate(row)) for row in rows]
    return [*COLUMNS, *logged], rows


def rank_table(record: Record) -> tuple[Sequence[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of ranks."""
    return _RANKS, [_rank(record, i) for i in range(len(record.ranks))]


def live_peak(stretch: EpochSummary) -> str:
    """The most in live tensors: `31.0 GiB`, `≤31.0 GiB` or `≥31.0 GiB`."""
    peak, read = stretch.live_peak, stretch.value("run_allocated_peak")
    if not is_known(peak.value):
        return units.limited(read, Unit.BYTES, AT_LEAST)
    return units.limited(peak.value, Unit.BYTES, "" if peak.reached else AT_MOST)


def _told(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the values that were logged by a name, with equal decimals; empty where none was."""
    texts = iter(units.plains([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def _row(title: str, stretch: EpochSummary, energy: str, logged: Sequence[str]) -> tuple[str, ...]:
    values = dict(zip(_HEADING, stretch.values, strict=True))
    low, high = values["utilization_p5"], values["utilization_p95"]
    return (
        title, units.span(stretch.seconds), units.count(stretch.steps), units.figures(stretch.steps_per_second),
        units.figures(stretch.samples_per_second),
        units.percent(stretch.wait_share), units.percent(values["utilization_mean"]),
        f"{units.percent(low)[:-1]}–{units.percent(high)}" if is_known(low) and is_known(high) else units.MISSING,
        units.percent(values["idle_share"]),
        live_peak(stretch),
        *(units.number(values[f"{name}_peak"], Unit.BYTES) for name in ("run_reserved", "run_used", "memory_used")),
        energy, units.figures(stretch.energy_per_step),
        units.figures(stretch.energy_per_sample),
        units.percent(values["throttled_share"]),
        *logged,
    )  # fmt: skip


def _rank(record: Record, place: int) -> tuple[str, ...]:
    rank = record.ranks[place]
    own: list[UsageRow] = [row for row in record.whole_epochs if row.rank == rank.key]
    whole = [row for row in own if row.ordinal == WHOLE_RUN and row.phase == WHOLE_EPOCH]
    values = dict(zip(_HEADING, totals(whole or own), strict=True))
    return (
        str(rank.rank), str(rank.pid or units.MISSING), ", ".join(str(device.number) for device in rank.devices),
        rank.state.name.lower(), units.count(rank.steps or None), units.span(rank.wait),
        units.percent(values["utilization_mean"]), _rank_peak(rank, values["run_allocated_peak"]),
        units.number(values["memory_used_peak"], Unit.BYTES), units.number(values["energy"], Unit.JOULES),
        units.whole(rank.retries), units.whole(rank.ooms),
    )  # fmt: skip


def _rank_peak(rank: RankRow, read: float) -> str:
    """Of all devices of a rank together, as its framework counts them."""
    if is_known(rank.peak):
        return units.number(rank.peak, Unit.BYTES)
    return units.limited(read, Unit.BYTES, AT_LEAST)


def _missed(epoch: EpochSummary) -> str:
    return f"epoch {epoch.epoch} ({units.percent(epoch.sampled_share)} sampled)"


def _several(parts: Sequence[str]) -> str:
    more = len(parts) - _NOTED
    return ", ".join(parts[:_NOTED]) + (f" and {more} more" if more > 0 else "")
