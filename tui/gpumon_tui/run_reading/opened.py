"""A run of a ledger with all its rows, judged and joined by the house's queries and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.analysis.epochs import EpochMark
from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, is_known
from gpumon.cost import Charge, price_run, price_summary
from gpumon.diagnosis.past_findings import findings, verdict
from gpumon.model.frame import RunState
from gpumon.reports import epoch_text
from gpumon.reports.charges import cells, priced, sentence
from gpumon.reports.run_tables import about_lines, outside_rows, state
from gpumon.reports.run_text import gpus
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import entry_order, outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.combine import highest
from gpumon.storage.ledger.records import DeviceRow, PhaseRow, Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary, are_epochs_known, epochs_done
from gpumon_tui.run_reading.logged import column, finite_range, names
from gpumon_tui.run_reading.rows import COLUMNS, EpochTotals, OpenRun, StretchRow, StretchRows


def opened(record: Record, now: float, prices: Prices | None = None) -> OpenRun:
    """Return a run, read without its phases and with their times, with all its rows, and with `prices` its cost."""
    epochs = aggregate.epoch_summaries(record)
    goes_on = record.run.state is RunState.RUNNING and not record.run.unseen_seconds(now)
    total = aggregate.run_total(record, epochs, record.run.measured_until(now))
    priced = _Priced(price_run(total, epochs, record.devices, prices), record.devices, prices) if prices else None
    is_by_steps = not epochs and bool(record.step_rows)
    made = step_summaries(record) if is_by_steps else epochs
    outside = [row for row in outside_rows(record, epochs, total, phases=True) if row[1].ordinal > STEP_ROWS]
    beside = [*outside, ("all", total)]
    metrics = names([*made, total])
    logged = {name: column([*made, *(row for _, row in beside)], name) for name in metrics}
    parts = _parts(record.phases) if not is_by_steps else {}

    def row(place: int, title: str, of: EpochSummary, before: EpochSummary | None, judged: bool) -> StretchRow:
        return StretchRow(
            title=title, of=of, took_change=_change(of, before),
            parts=list(parts.get(of.ordinal, _NO_PARTS).items()),
            logged=[logged[name][place] for name in metrics],
            logged_change=_metric_change(metrics[0], of, before) if metrics else NAN,
            verdict=verdict(of, goes_on) if judged else None,
            costs=priced.cells(of, is_epoch=judged, is_whole=of is total) if priced else (),
            is_running=goes_on and not is_known(of.ended),
        )  # fmt: skip

    def made_row(place: int) -> StretchRow:
        of = made[place]
        title = steps_text(of) if is_by_steps else f"e{of.epoch}"
        return row(place, title, of, made[place - 1] if place else None, True)

    last = [row(len(made) + place, title, of, None, False) for place, (title, of) in enumerate(beside)]
    between = [(part.phase, part.seconds) for part in outside_phases(record)]
    return OpenRun(
        # Without thousands of rows: to free them later would hold up the view.
        record=record._replace(epochs=(), usage=(), phases=()),
        state=state(record.run, now), devices=gpus(record.devices), is_by_steps=is_by_steps,
        rows=StretchRows(made, made_row), phases=_names(record.phases),
        beside=[one._replace(parts=between) if one.title == "between" else one for one in last], metrics=metrics,
        findings=findings(record, total, record.run.updated),
        about=[*(priced.told() if priced else ()), *about_lines(record.about)],
        seconds=total.seconds, totals=_totals(record, made, [of for _, of in beside], metrics),
        costs=priced.headings() if priced else (),
        marks=sorted(EpochMark(one.begun, one.epoch, record.run.id) for one in epochs if is_known(one.begun)),
    )  # fmt: skip


def _totals(
    record: Record, made: Sequence[EpochSummary], beside: Sequence[EpochSummary], metrics: Sequence[str]
) -> EpochTotals:
    metric = next((name for name in metrics if any(name in of.metrics for of in made)), "")
    logged = [of.metrics.get(metric, NAN) for of in made] if metric else []
    mean = [of.value("utilization_mean") for of in made]
    low, high = ([_either(of.value(name), of.value("utilization_mean")) for of in made] for name in _PERCENTILES)
    return EpochTotals(
        longest=max((of.seconds for of in made if is_known(of.seconds)), default=0.0),
        largest=epoch_text.largest(COLUMNS, made, beside),
        ended=sum(is_known(of.ended) for of in made),
        done=epochs_done(record, made) if are_epochs_known(record, made) else None,
        numbers=[of.epoch for of in made],
        metric=metric, logged=logged, logged_range=finite_range(logged),
        diverged=sum(not isfinite(of.metrics.get(metric, 0.0)) for of in made) if metric else 0,
        utilization=(low, mean, high),
    )  # fmt: skip


_PERCENTILES = ("utilization_p5", "utilization_p95")


def _either(value: float, otherwise: float) -> float:
    return value if is_known(value) else otherwise


class _Priced(NamedTuple):
    """Charges of a run, and their prices."""

    whole: Charge
    devices: Sequence[DeviceRow]
    prices: Prices

    def told(self) -> list[str]:
        """A sentence on the whole run, where anything of it is known."""
        return [text for text in [sentence(self.whole, self.prices)] if text]

    def headings(self) -> Sequence[str]:
        return [column.short for column in priced(self.prices)]

    def cells(self, of: EpochSummary, *, is_epoch: bool, is_whole: bool) -> Sequence[str]:
        """The texts of a row below these headings; none for what lies between epochs, at many hours of the day."""
        if not (is_epoch or is_whole):
            return [""] * len(self.headings())
        return cells(self.whole if is_whole else price_summary(of, self.devices, self.prices), self.prices)


_NO_PARTS: Mapping[str, float] = {}


def _parts(rows: Sequence[PhaseRow]) -> Mapping[int, Mapping[str, float]]:
    """Return the seconds of each phase of each epoch, by its ordinal, as `phase_summary.phases` has them."""
    found: dict[int, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: (row.ordinal, entry_order(row))):
        parts = found.setdefault(row.ordinal, {})
        parts[row.phase] = highest([parts.get(row.phase, NAN), row.seconds])
    return found


def _names(rows: Sequence[PhaseRow]) -> Sequence[str]:
    """Return the names of all phases: by the place that they have in their epochs, where that is known."""
    places: dict[str, float] = {}
    for row in rows:
        if row.position < places.setdefault(row.phase, inf):
            places[row.phase] = row.position
    return sorted(places, key=lambda name: places[name])


def _change(of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None or not (is_known(of.ended) and is_known(before.ended)) or not before.seconds > 0:
        return NAN
    return of.seconds / before.seconds - 1


def _metric_change(name: str, of: EpochSummary, before: EpochSummary | None) -> float:
    if before is None:
        return NAN
    value, other = of.metrics.get(name, NAN), before.metrics.get(name, NAN)
    return (value - other) / abs(other) if isfinite(value) and isfinite(other) and value * other > 0 else NAN
