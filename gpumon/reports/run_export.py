"""All data of a run for other programs, for `gpumon runs export`.

CSV and Parquet have a row for each rank, epoch, phase and device; docs/reference/columns.md lists the columns. The name
of a column ends with the unit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN, is_known
from gpumon.cost import Measured, price_devices
from gpumon.model.columns import USAGE
from gpumon.reports import charges
from gpumon.reports.csv import Cell, csv_line, parquet_bytes, utc
from gpumon.reports.run_json import device_to_json, metrics_to_json, nullable, run_document, values_to_json
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger.records import (
    USAGE_INDEX,
    DeviceRow,
    EpochRow,
    LivePeak,
    PhaseRow,
    RankRow,
    Record,
    RunRow,
    RunTrace,
    StepCounts,
    StepRow,
    UsageRow,
)
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, STEP_ROWS, WHOLE_EPOCH, WHOLE_RUN


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format of `gpumon runs export`."""

    content: str
    """Description of the file's content, for the help text."""
    make: Callable[[Record, Sequence[RunTrace], float, Prices | None], bytes]
    """Function that returns the content of the file. Its arguments are the record, its traces, the current time (s
    since 1970) and prices. Raises GpumonError if a package is missing."""
    is_binary: bool = False
    """True if the file must not be written to a terminal."""


def _csv(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    del traces, now
    return "".join(lines(record, prices)).encode()


def _json(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    return (json.dumps(document(record, traces, now, prices), allow_nan=False) + "\n").encode()


def _parquet(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    del traces, now
    return parquet(record, prices)


_ROWS = "one row for each rank, epoch, phase and device"
FORMATS: dict[str, ExportFormat] = {
    "csv": ExportFormat(_ROWS, _csv),
    "json": ExportFormat("all data of the run", _json),
    "parquet": ExportFormat(_ROWS, _parquet, is_binary=True),
}


EPOCH, BETWEEN, STEPS, RUN = "epoch", "between", "steps", "run"
"""The kinds of rows, in the column `part`: an epoch, the time between epochs, some steps, or the whole run."""

Part = tuple[EpochRow, str, tuple[PhaseRow, ...]]
"""A part of a rank's time: the part in the form of an epoch, its kind (such as `BETWEEN`), and its phases."""


def parts_outside_epochs(record: Record) -> Iterator[Part]:
    """For each rank, yield its rows of steps, the time outside its epochs if it was recorded, and its whole run.

    If a rank has no epochs, its phases belong to the row of the whole run.
    """
    trained = {epoch.rank for epoch in record.epochs}
    outside: dict[str, list[PhaseRow]] = {}
    for row in record.outside:
        outside.setdefault(row.rank, []).append(row)
    for step in record.step_rows:
        yield (
            EpochRow(
                rank=step.rank,
                ordinal=STEP_ROWS - step.ordinal,
                epoch=step.first_step,
                begun=step.begun,
                ended=step.ended,
                seconds=step.seconds,
                steps=step.steps,
                wait=step.wait,
                metrics=step.metrics,
            ),
            STEPS,
            (),
        )
    for rank in record.ranks:
        rows = outside.get(rank.key, [])
        phases = tuple(row for row in rows if row.phase != WHOLE_EPOCH)
        for row in rows:
            if row.phase == WHOLE_EPOCH and rank.key in trained:
                yield _as_epoch(rank, OUTSIDE_EPOCHS)._replace(
                    begun=NAN, ended=NAN, seconds=row.seconds, steps=row.steps, wait=row.wait, metrics={}, peak=row.peak
                ), BETWEEN, phases  # fmt: skip
        yield _as_epoch(rank, WHOLE_RUN), RUN, () if rank.key in trained else phases


def _as_epoch(rank: RankRow, ordinal: int) -> EpochRow:
    return EpochRow(
        rank=rank.key,
        ordinal=ordinal,
        epoch=ordinal,
        begun=rank.started,
        ended=rank.ended,
        seconds=rank.seconds,
        steps=rank.steps,
        wait=rank.wait,
        metrics=rank.metrics,
        peak=LivePeak(rank.peak, reached=True),
    )


LOGGED = "logged."
"""Prefix of the columns of logged metrics."""
CONFIG = "config."
"""Prefix of the columns of run parameters."""


@dataclass(frozen=True, slots=True)
class _Row:
    run: RunRow
    rank: RankRow
    epoch: EpochRow
    phase: PhaseRow | None
    device: DeviceRow | None
    usage: UsageRow | None
    steps: int | None
    part: str = EPOCH


@dataclass(frozen=True, slots=True)
class ExportField:
    """A column of the table: its name, a function that returns its value, and its help text."""

    name: str
    value_of: Callable[[Any], Cell]
    help: str = ""


def _usage_value(index: int) -> Callable[[_Row], float | None]:
    return lambda row: nullable(row.usage.values[index]) if row.usage else None


FIELDS: tuple[ExportField, ...] = (
    ExportField("run", lambda row: row.run.id, "Id of the run."),
    ExportField("name", lambda row: row.run.name, "Name of the run."),
    ExportField("user", lambda row: row.run.user, "User who started the run."),
    ExportField("rank", lambda row: row.rank.rank, "Rank in a distributed run, else 0."),
    ExportField(
        "ordinal",
        lambda row: row.epoch.ordinal if row.part == EPOCH else None,
        "Position of the epoch among the epochs of the run, from 0. All ranks have the same. Empty for other parts.",
    ),
    ExportField(
        "epoch",
        lambda row: row.epoch.epoch if row.part == EPOCH else None,
        "Number of the epoch, as the training counts it. Empty for other parts.",
    ),
    ExportField(
        "phase",
        lambda row: row.phase.phase if row.phase else "",
        "Phase of the training. Empty for a row about all phases.",
    ),
    ExportField("device", lambda row: row.device.uuid if row.device else "", "UUID of the GPU; empty if not recorded."),
    ExportField("begun_seconds", lambda row: nullable(row.epoch.begun), "Start of the part, seconds since 1970."),
    ExportField("begun_utc", lambda row: utc(row.epoch.begun), "Start of the part, in UTC."),
    ExportField(
        "ended_seconds",
        lambda row: nullable(row.epoch.ended),
        "End of the part, seconds since 1970. Empty if not recorded.",
    ),
    ExportField("ended_utc", lambda row: utc(row.epoch.ended), "End of the part, in UTC."),
    ExportField(
        "steps",
        lambda row: row.steps,
        "Number of steps of the rank. In an epoch with phases, only training steps count. Empty if not counted.",
    ),
    ExportField(
        "times", lambda row: row.phase.times if row.phase else 1, "Number of times that the phase was entered."
    ),
    ExportField("seconds", lambda row: nullable((row.phase or row.epoch).seconds), "Duration by the training's clock."),
    ExportField(
        "wait_seconds",
        lambda row: nullable((row.phase or row.epoch).wait),
        "Time spent waiting for data; empty if not measured.",
    ),
    ExportField(
        "framework_peak_bytes",
        lambda row: nullable((row.phase or row.epoch).peak.value),
        "Peak of live tensors by the framework's counter, over all devices of the rank.",
    ),
    ExportField(
        "framework_peak_reached",
        lambda row: reached((row.phase or row.epoch).peak),
        "1: the peak was reached in this part. 0: the peak is an upper bound.",
    ),
    ExportField(
        "utilization_from",
        lambda row: row.usage.utilization_from if row.usage else "",
        "Origin of utilization: driver or ticks. Empty if there is none.",
    ),
    *(
        ExportField(column.file_name, _usage_value(i), column.help)
        for i, column in enumerate(USAGE)
        if column.key != "seconds"
    ),
    ExportField(
        "part",
        lambda row: row.part,
        "Part of the run: epoch, between (time outside epochs), steps (in a run without epochs), or run.",
    ),
    ExportField(
        "first_step",
        lambda row: row.epoch.epoch if row.part == STEPS else None,
        "For rows of steps: the number of steps before this row.",
    ),
)
"""The fixed columns. Columns of costs, logged metrics and parameters follow. Logged metrics have values only in rows of
whole epochs and of the run."""


def config_columns(record: Record) -> dict[str, Cell]:
    """Return the parameters of a run by column name.

    Their columns are the last ones. All rows have the same values in them.
    """
    return {
        CONFIG + name: str(value).lower() if isinstance(value, bool) else value
        for name, value in record.about.config.items()
    }


def lines(record: Record, prices: Prices | None = None) -> Iterator[str]:
    """Yield the heading and the rows of the CSV table as lines.

    The table is comma-separated, in UTF-8 without a byte order mark. `prices`: add columns of costs if not None.
    """
    names = _logged_names(record)
    config = config_columns(record)
    costs = charges.FIELDS if prices else ()
    yield csv_line([*(field.name for field in FIELDS), *costs, *(LOGGED + name for name in names), *config])
    for row in _rows(record):
        cells = [*(field.value_of(row) for field in FIELDS), *_cost_cells(row, prices)]
        yield csv_line([*cells, *_metrics(row, names), *config.values()])


def _cost_cells(row: _Row, prices: Prices | None) -> Sequence[Cell]:
    """Return the cost cells of a row: empty cells if no device was measured, and no cells if `prices` is None."""
    if prices is None:
        return ()
    if row.usage is None or row.device is None:
        return (None,) * len(charges.FIELDS)
    part = row.phase or row.epoch
    measured = Measured(*(row.usage.values[USAGE_INDEX[name]] for name in Measured._fields))
    charge = price_devices(row.epoch.begun, part.seconds, measured, [row.device], prices)
    return charges.csv_cells(charge, prices)


def parquet(record: Record, prices: Prices | None = None) -> bytes:
    """Return the table as a Parquet file. Raises GpumonError if pyarrow is not installed."""
    names = _logged_names(record)
    rows = list(_rows(record))
    columns = {field.name: [field.value_of(row) for row in rows] for field in FIELDS}
    for i, name in enumerate(charges.FIELDS if prices else ()):
        columns[name] = [_cost_cells(row, prices)[i] for row in rows]
    for i, name in enumerate(names):
        columns[LOGGED + name] = [_metrics(row, names)[i] for row in rows]
    columns |= {name: [value] * len(rows) for name, value in config_columns(record).items()}
    return parquet_bytes(
        {
            name: (next((type(cell) for cell in cells if cell is not None), float), cells)
            for name, cells in columns.items()
        }
    )


def document(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> dict[str, Any]:
    """Return all data of a run as JSON: the document of `gpumon runs show --json`, the rows of each rank, and traces.

    `now`: current time (s since 1970). `prices`: add costs if not None.
    """
    ranks, counted = {rank.key: rank.rank for rank in record.ranks}, StepCounts(record)
    return {
        **run_document(record, now, prices),
        "devices": [device_to_json(device) for device in record.devices],
        "rank_epochs": [
            {
                "rank": ranks.get(row.rank), "ordinal": row.ordinal, "epoch": row.epoch, "begun": nullable(row.begun),
                "ended": nullable(row.ended), "seconds": nullable(row.seconds), "steps": counted.epoch(row),
                "wait": nullable(row.wait),
                "metrics": metrics_to_json(row.metrics),
            }
            for row in record.epochs
        ],
        "usage": [
            {
                "rank": ranks.get(row.rank), "ordinal": row.ordinal, "phase": row.phase or None, "device": row.uuid,
                "utilization_from": row.utilization_from or None, **values_to_json(row.values),
            }
            for row in record.usage
        ],
        "traces": [_trace(trace, ranks) for trace in traces],
    }  # fmt: skip


def _rows(record: Record) -> Iterator[_Row]:
    ranks, counted = {rank.key: rank for rank in record.ranks}, StepCounts(record)
    usage: dict[tuple[str, int, str], list[UsageRow]] = {}
    for row in record.usage:
        usage.setdefault((row.rank, row.ordinal, row.phase), []).append(row)
    phases: dict[tuple[str, int], list[PhaseRow]] = {}
    for phase in record.phases:
        phases.setdefault((phase.rank, phase.ordinal), []).append(phase)
    for row in record.outside_usage:
        usage.setdefault((row.rank, row.ordinal, row.phase), []).append(row)
    stretches = [
        *((epoch, EPOCH, tuple(phases.get((epoch.rank, epoch.ordinal), ()))) for epoch in record.epochs),
        *parts_outside_epochs(record),
    ]
    for epoch, stretch, parts in stretches:
        rank = ranks[epoch.rank]
        devices = {device.uuid: device for device in rank.devices}
        for part in (None, *parts):
            if stretch == EPOCH:
                steps = counted.phase(part) if part else counted.epoch(epoch)
            else:
                steps = (part or epoch).steps or None
            key = epoch.rank, (part or epoch).ordinal, part.phase if part else WHOLE_EPOCH
            usage_rows: Sequence[UsageRow | None] = usage.get(key) or (None,)
            for measured in usage_rows:
                yield _Row(
                    run=record.run,
                    rank=rank,
                    epoch=epoch,
                    phase=part,
                    device=None if measured is None else devices.get(measured.uuid) or _unknown_device(measured.uuid),
                    usage=measured,
                    steps=steps,
                    part=stretch,
                )


def _unknown_device(uuid: str) -> DeviceRow:
    """Return a row for a device that has usage but is not in the table of devices."""
    return DeviceRow(uuid=uuid, number=-1, name="", memory_total=math.nan, power_limit=math.nan)


def reached(peak: LivePeak) -> int | None:
    """Return 1 if the peak was reached, 0 if it is only an upper bound, None if there is no peak."""
    return int(peak.reached) if is_known(peak.value) else None


def _logged_names(record: Record) -> list[str]:
    stretches: tuple[EpochRow | StepRow | RankRow, ...] = (*record.epochs, *record.step_rows, *record.ranks)
    return list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))


def _metrics(row: _Row, names: Sequence[str]) -> list[float | None]:
    metrics = {} if row.phase else row.epoch.metrics
    return [metrics.get(name) for name in names]


def _trace(trace: RunTrace, ranks: dict[str, int]) -> dict[str, Any]:
    return {
        "rank": ranks.get(trace.rank), "device": trace.uuid or None, "begun": nullable(trace.begun),
        "step": trace.step, "points": trace.points,
        "columns": {name: _envelope(envelope) for name, envelope in trace.columns.items()},
    }  # fmt: skip


def _envelope(envelope: Envelope) -> dict[str, list[float | None]]:
    return {part: [nullable(value) for value in getattr(envelope, part)] for part in Envelope._fields}
