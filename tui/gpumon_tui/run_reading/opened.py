"""A run of a ledger with all its rows, judged and joined by the house's queries and rules."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import NamedTuple

from gpumon.cost.charge import Charge
from gpumon.cost.of_run import price_run, price_stretch
from gpumon.diagnosis.past import findings, verdict
from gpumon.frame import NAN, RunState
from gpumon.ledger import aggregate, phase_summary
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.outside import outside_phases
from gpumon.ledger.records import DeviceRow, PhaseRow, Record
from gpumon.ledger.schema import STEP_ROWS
from gpumon.ledger.step_summary import step_summaries, steps_text
from gpumon.missing import is_known
from gpumon.prices import Prices
from gpumon.reports.about import about_lines
from gpumon.reports.charges import cells, columns, sentence
from gpumon.reports.run_list import state
from gpumon.reports.run_tables import energy_texts, live_peak, outside_rows
from gpumon.reports.run_text import gpus
from gpumon_tui.run_reading.logged import column, names
from gpumon_tui.run_reading.rows import OpenRun, StretchRow, StretchRows


def opened(record: Record, now: float, prices: Prices | None = None) -> OpenRun:
    """Return a run, read without its phases and with their times, with all its rows, and with `prices` its cost."""
    epochs = aggregate.epochs(record)
    goes_on = record.run.state is RunState.RUNNING and not record.run.unseen(now)
    total = aggregate.whole(record, epochs, record.run.measured_until(now))
    priced = _Priced(price_run(total, epochs, record.devices, prices), record.devices, prices) if prices else None
    is_by_steps = not epochs and bool(record.step_rows)
    made = step_summaries(record) if is_by_steps else epochs
    outside = [row for row in outside_rows(record, epochs, total, phases=True) if row[1].ordinal > STEP_ROWS]
    beside = [*outside, ("all", total)]
    metrics = names([*made, total])
    in_one_unit = energy_texts(made, [row for _, row in beside])
    logged = {name: column([*made, *(row for _, row in beside)], name) for name in metrics}
    phases: dict[int, list[PhaseRow]] = {}
    for part in record.phases:
        phases.setdefault(part.ordinal, []).append(part)

    def row(place: int, title: str, of: EpochSummary, before: EpochSummary | None, judged: bool) -> StretchRow:
        return StretchRow(
            title=title, of=of, took_change=_change(of, before), energy=in_one_unit[place], peak=live_peak(of),
            parts=_parts(record, of.ordinal, phases.get(of.ordinal, ())) if not is_by_steps else (),
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
        record=record, state=state(record.run, now), devices=gpus(record.devices), is_by_steps=is_by_steps,
        rows=StretchRows(made, made_row), phases=_names(record.phases),
        beside=[one._replace(parts=between) if one.title == "between" else one for one in last], metrics=metrics,
        findings=findings(record, total, record.run.updated),
        about=[*(priced.told() if priced else ()), *about_lines(record.about)],
        seconds=total.seconds, costs=priced.headings() if priced else (),
    )  # fmt: skip


class _Priced(NamedTuple):
    """Charges of a run, and their prices."""

    whole: Charge
    devices: Sequence[DeviceRow]
    prices: Prices

    def told(self) -> list[str]:
        """A sentence on the whole run, where anything of it is known."""
        return [text for text in [sentence(self.whole, self.prices)] if text]

    def headings(self) -> Sequence[str]:
        return [column.heading.lower() for column in columns(self.prices)]

    def cells(self, of: EpochSummary, *, is_epoch: bool, is_whole: bool) -> Sequence[str]:
        """The texts of a row below these headings; none for what lies between epochs, at many hours of the day."""
        if not (is_epoch or is_whole):
            return [""] * len(self.headings())
        return cells(self.whole if is_whole else price_stretch(of, self.devices, self.prices), self.prices)


def _parts(record: Record, ordinal: int, rows: Sequence[PhaseRow]) -> Sequence[tuple[str, float]]:
    """Return the phases of an epoch with their seconds, in their order."""
    found = phase_summary.phases(record._replace(phases=rows, epochs=(), usage=()))
    return [(part.phase, part.seconds) for part in found.get(ordinal, ())]


def _names(rows: Sequence[PhaseRow]) -> Sequence[str]:
    """Return the names of all phases: by the place that they have in their epochs, where that is known."""
    places: dict[str, float] = {}
    for row in rows:
        if row.place < places.setdefault(row.phase, inf):
            places[row.phase] = row.place
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
