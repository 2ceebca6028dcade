"""The table of epochs for people and their spreadsheets: a row for each epoch, joined over ranks and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpumon.diagnosis.past import epoch_findings
from gpumon.model.metrics import Unit
from gpumon.reports.csv import BYTE_ORDER_MARK, Cell, csv_line, named, utc
from gpumon.reports.run_export import LOGGED, reached
from gpumon.reports.run_json import known
from gpumon.storage.ledger.aggregate import epochs, step_summaries, whole
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.schema import STEP_ROWS, USAGE
from gpumon.storage.ledger.summary import EpochSummary


class EpochField(NamedTuple):
    """A column of the table."""

    name: str
    of: Callable[[EpochSummary], Cell]


def _measured(name: str) -> Callable[[EpochSummary], Cell]:
    return lambda epoch: known(epoch.value(name))


def _derived(name: str) -> Callable[[EpochSummary], Cell]:
    return lambda epoch: known(getattr(epoch, name))


FIELDS: tuple[EpochField, ...] = (
    EpochField("epoch", lambda epoch: epoch.epoch if epoch.ordinal >= 0 else None),
    EpochField("begun_utc", lambda epoch: utc(epoch.begun)),
    EpochField("ended_utc", lambda epoch: utc(epoch.ended)),
    EpochField("begun_seconds", lambda epoch: known(epoch.begun)),
    EpochField("ended_seconds", lambda epoch: known(epoch.ended)),
    EpochField("seconds", _derived("seconds")),
    EpochField("steps", lambda epoch: epoch.steps),
    EpochField("steps_per_second", _derived("steps_per_second")),
    EpochField("samples_per_second", _derived("samples_per_second")),
    EpochField("wait_seconds", _derived("wait")),
    EpochField(named("wait_share", Unit.RATIO), _derived("wait_share")),
    EpochField("framework_peak_bytes", lambda epoch: known(epoch.live_peak.value)),
    EpochField("framework_peak_reached", lambda epoch: reached(epoch.live_peak)),
    *(
        EpochField(named(column.name, column.unit), _measured(column.name))
        for column in USAGE
        if column.name != "seconds"
    ),
    EpochField(named("energy_per_step", Unit.JOULES), _derived("energy_per_step")),
    EpochField(named("energy_per_sample", Unit.JOULES), _derived("energy_per_sample")),
    EpochField("findings", lambda epoch: " ".join(finding.kind for finding in epoch_findings(epoch))),
    EpochField("first_step", lambda epoch: epoch.epoch if epoch.ordinal <= STEP_ROWS else None),
)
"""Behind them come the metrics that were logged. A run without epochs has rows of its steps, and one of all of it."""


def lines(record: Record) -> Iterator[str]:
    """Yield the table as CSV, a line at a time, its heading first. For spreadsheets: with a byte order mark."""
    found = epochs(record)
    if not found:
        found = [*step_summaries(record), whole(record, [], record.run.updated)]
    names = list(dict.fromkeys(name for epoch in found for name in epoch.metrics))
    yield BYTE_ORDER_MARK + csv_line([*(field.name for field in FIELDS), *(LOGGED + name for name in names)])
    for epoch in found:
        yield csv_line([*(field.of(epoch) for field in FIELDS), *(epoch.metrics.get(name) for name in names)])
