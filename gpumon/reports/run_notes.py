"""Notes that are shown below a run. They explain its numbers, its cost, and what went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.cost import price_run
from gpumon.diagnosis.past_findings import findings, sampled_text
from gpumon.diagnosis.runs import diverged_names
from gpumon.model import units
from gpumon.model.columns import BY_KEY, EPOCHS, View, shown
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import Unit
from gpumon.model.units import AT_LEAST, AT_MOST
from gpumon.reports.charges import sentence
from gpumon.reports.epoch_text import number, sign
from gpumon.reports.run_tables import OPEN
from gpumon.storage.ledger.combine import sum_or_nan
from gpumon.storage.ledger.records import MarkRow, Record
from gpumon.storage.ledger.summary import EpochSummary

FULLY_SAMPLED = 0.98
"""An epoch counts as fully sampled if at least this fraction of its time was sampled."""
_BOUNDED = ("energy", "framework_peak", *(column.key for column in shown(EPOCHS, View.COMMAND) if column.is_peak))
"""Columns whose values may have the sign `≥`."""
_MAX_LISTED = 5
"""Maximum number of epochs that a note lists."""

_SHOWN_ELSEWHERE = frozenset(("out_of_memory", "diverged", "died", "failed"))
"""Kinds of findings that are left out because another note or the head of the run describes them in more detail."""


def notes(
    record: Record, epochs: Sequence[EpochSummary], total: EpochSummary, prices: Prices | None = None
) -> Iterator[str]:
    """Yield the notes for a run. `prices`: add the cost of the run if not None."""
    yield utilization_note(total, is_running=record.run.state is RunState.RUNNING)
    yield from cpu_cost(record, total.seconds)
    if prices is not None and (cost := sentence(price_run(total, epochs, record.devices, prices), prices)):
        yield cost
    peaks = {sign("framework_peak", stretch) for stretch in (*epochs, total)}
    if AT_MOST in peaks:
        yield f"{AT_MOST} upper bound: the framework's peak counter had already reached this value before the epoch."
    without_peak = [stretch for stretch in (*epochs, total) if not is_known(stretch.live_peak.value)]
    if any(is_known(stretch.value("run_allocated_peak")) for stretch in without_peak):
        yield f"{AT_LEAST} lower bound: read between steps, after activations are freed. The framework reports no peak."
    else:
        yield from _lower_bounds((*epochs, total), is_running=record.run.state is RunState.RUNNING)
    yield from diverged(epochs)
    lost = sum(rank.lost_events for rank in record.ranks)
    if any(not is_known(epoch.ended) for epoch in epochs):
        yield f"{OPEN.strip()} epoch that has not ended{', or whose end was lost' if lost else ''}."
    partial = [epoch for epoch in epochs if epoch.lacks_ranks]
    if partial:
        text = _join_some([f"epoch {epoch.label} ({epoch.ranks})" for epoch in partial])
        ranks = len(record.ranks)
        yield f"Recorded by fewer than {ranks} ranks: {text}. The epochs were too short, or boundaries were lost."
    whole = [epoch for epoch in epochs if not epoch.lacks_ranks]
    missed = [epoch for epoch in whole if epoch.sampled_share < FULLY_SAMPLED]
    if missed:
        text = _join_some([f"epoch {epoch.label} ({sampled_text(epoch)})" for epoch in missed])
        yield f"Incompletely sampled: {text}. No daemon was running, or it was too slow."
    unread = [epoch for epoch in whole if epoch.lacks_energy and epoch.sampled_share >= FULLY_SAMPLED]
    if unread:
        text = _join_some([f"epoch {epoch.label} ({sampled_text(epoch)})" for epoch in unread])
        yield f"Incompletely measured: {text}. Readings of the energy counter are missing."
    if lost:
        yield f"{lost} epoch boundaries were overwritten before a daemon read them: epochs may be missing."
    for mark in record.marks:
        if mark.mark is Mark.OUT_OF_MEMORY:
            yield out_of_memory(record, mark)
    for finding in findings(record, total, record.run.updated, epochs):
        if finding.kind not in _SHOWN_ELSEWHERE:
            yield f"{finding.summary[:1].upper()}{finding.summary[1:]}. {finding.action}".rstrip()


def _lower_bounds(stretches: Sequence[EpochSummary], *, is_running: bool) -> Iterator[str]:
    """Yield a sentence that explains the sign `≥`, or nothing if no shown value has this sign."""
    bounded = [
        stretch
        for stretch in stretches
        if any(sign(key, stretch) == AT_LEAST and is_known(number(key, stretch)) for key in _BOUNDED)
    ]
    if any(stretch.is_open for stretch in bounded):
        reason = "an epoch that has not ended may still reach more" if is_running else "an epoch was cut short"
        yield f"{AT_LEAST} lower bound: {reason}."
    elif bounded:
        yield f"{AT_LEAST} lower bound: not all of the time was sampled."


def cpu_cost(record: Record, seconds: float) -> Iterator[str]:
    """Yield a sentence about the CPU time and CPU energy of a run, or nothing if neither was recorded.

    `seconds`: duration of the run.
    """
    spent = sum_or_nan([rank.facts.cpu_seconds or math.nan for rank in record.ranks] or [math.nan])
    energy = max((joules for rank in record.ranks if is_known(joules := rank.package_energy)), default=math.nan)
    if is_known(spent):
        cores = f" ({units.three_digits(spent / seconds)} cores on average)" if seconds > 0 else ""
        yield f"Used {units.fine_duration(spent)} of CPU time{cores}."
    if is_known(energy):
        yield f"The CPUs of the machine used {units.number(energy, Unit.JOULES)} during the run."


def diverged(epochs: Sequence[EpochSummary]) -> Iterator[str]:
    """Yield a sentence for each logged metric that has become NaN or infinite."""
    for name in diverged_names(epoch.metrics for epoch in epochs):
        logging = [epoch for epoch in epochs if name in epoch.metrics]
        finite = [index for index, epoch in enumerate(logging) if math.isfinite(epoch.metrics[name])]
        bad = logging[finite[-1] + 1 if finite else 0 :]
        number = sum(epoch.merged for epoch in bad[1:])
        later = f" and in {units.counted(number, 'later epoch')}" if number else ""
        yield f"Diverged: {name} is {units.logged_number(bad[0].metrics[name])} in epoch {bad[0].label}{later}."


def utilization_note(total: EpochSummary, *, is_running: bool = False) -> str:
    """Return a sentence that says whether the utilization comes from the driver's samples or from gpumon's samples."""
    origin = {
        "driver": "the driver's own samples, several per second",
        "ticks": "one sample per tick of the daemon",
        "driver, ticks": "the driver's own samples or, where the driver had none, one sample per tick of the daemon",
    }.get(total.utilization_from)
    if origin:
        return f"{BY_KEY['utilization_mean'].heading} comes from {origin}."
    if total.value("sampled") > 0:
        return "The driver reported no utilization for this run's GPUs. It reports none for instances of a GPU."
    return f"No GPU of this run was sampled{' yet' if is_running else ''}."


def out_of_memory(record: Record, mark: MarkRow) -> str:
    """Return a sentence about an out-of-memory error."""
    number = next((rank.rank for rank in record.ranks if rank.key == mark.rank), 0)
    rank = f"rank {number}, " if record.run.world_size > 1 else ""
    epoch = f"epoch {mark.epoch}, " if mark.epoch >= 0 else ""
    when = f"{rank}{epoch}step {mark.step}, {units.moment(mark.time)}"
    amounts = [
        f"{name} {units.number(value, Unit.BYTES)}"
        for name, value in (("requested", mark.asked), ("free", mark.free))
        if is_known(value)
    ]
    return f"Out of memory: {when}{': ' if amounts else ''}{', '.join(amounts)}."


def _join_some(parts: Sequence[str]) -> str:
    more = len(parts) - _MAX_LISTED
    return ", ".join(parts[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
