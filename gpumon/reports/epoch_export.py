"""Epochs as CSV for spreadsheets: one row for each epoch, combined over ranks and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpumon.diagnosis.past_findings import epoch_findings
from gpumon.model.columns import BY_KEY, EPOCHS, View, shown
from gpumon.reports.csv import BYTE_ORDER_MARK, Cell, csv_line, utc
from gpumon.reports.run_export import LOGGED, ExportField, reached
from gpumon.reports.run_json import nullable
from gpumon.storage.ledger.aggregate import epoch_summaries, run_total, step_summaries
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary

_PEAK = BY_KEY["framework_peak"]
"""The column of the framework's peak. It must stay before the columns of devices, because existing spreadsheets rely on
its position."""


def _value(key: str) -> Callable[[EpochSummary], Cell]:
    return lambda epoch: nullable(epoch.number(key))


def _fields() -> Iterator[ExportField]:
    yield ExportField("epoch", lambda epoch: epoch.epoch if epoch.ordinal >= 0 else None)
    yield ExportField("begun_utc", lambda epoch: utc(epoch.begun))
    yield ExportField("ended_utc", lambda epoch: utc(epoch.ended))
    yield ExportField("begun_seconds", lambda epoch: nullable(epoch.begun))
    yield ExportField("ended_seconds", lambda epoch: nullable(epoch.ended))
    for column in shown(EPOCHS, View.CSV):
        if column is not _PEAK:
            yield ExportField(column.file_name, _value(column.key))
        if column.key == "wait_share":
            yield ExportField(_PEAK.file_name, _value(_PEAK.key))
            yield ExportField("framework_peak_reached", lambda epoch: reached(epoch.live_peak))
    yield ExportField("findings", lambda epoch: " ".join(finding.kind for finding in epoch_findings(epoch)))
    yield ExportField("first_step", lambda epoch: epoch.epoch if epoch.ordinal <= STEP_ROWS else None)
    yield ExportField("merged", lambda epoch: epoch.merged if epoch.ordinal >= 0 else None)


FIELDS: tuple[ExportField, ...] = tuple(_fields())
"""The fixed columns. Columns of logged metrics follow. A run without epochs has rows of steps and a row for the whole
run."""


def lines(record: Record) -> Iterator[str]:
    """Yield the lines of the CSV table. The first line is the heading. It begins with a byte order mark."""
    rows = epoch_summaries(record)
    if not rows:
        rows = [*step_summaries(record), run_total(record, [])]
    names = list(dict.fromkeys(name for epoch in rows for name in epoch.metrics))
    yield BYTE_ORDER_MARK + csv_line([*(field.name for field in FIELDS), *(LOGGED + name for name in names)])
    for epoch in rows:
        yield csv_line([*(field.value_of(epoch) for field in FIELDS), *(epoch.metrics.get(name) for name in names)])
