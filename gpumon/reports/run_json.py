"""Runs as JSON, for `gpumon runs list --json` and `gpumon runs show --json`.

Measured values have the keys of `columns.USAGE`. Values are in base units, and times in seconds since 1970. Missing
values are null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.config import Prices
from gpumon.common.numbers import is_known, logged
from gpumon.cost import NO_CHARGE, Charge, price_run, price_summary
from gpumon.diagnosis.finding import finding_json
from gpumon.diagnosis.past_findings import findings, verdict
from gpumon.model.columns import EPOCHS, USAGE, Column, View, shown
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import Unit
from gpumon.model.run import RUN_FACTS, facts_to_json
from gpumon.reports import charges
from gpumon.reports.run_tables import about_json
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import between_epochs, outside_phases, step_summaries
from gpumon.storage.ledger.records import DeviceRow, MarkRow, RankRow, Record, RunRow, RunSummary
from gpumon.storage.ledger.summary import EpochSummary

SCHEMA = 1


def listing(
    runs: Iterable[RunSummary], now: float, prices: Prices | None = None, costs: Mapping[str, Charge] | None = None
) -> dict[str, Any]:
    """Return a list of runs as JSON.

    `now`: current time (s since 1970). `prices`: add costs if not None. `costs`: the charge of each run by its id;
    required with `prices`.
    """
    return {
        "schema": SCHEMA,
        "runs": [
            {
                **run_to_json(listed.run, now), "epochs_done": listed.done, "gpus": listed.gpus,
                "energy": nullable(listed.energy),
                "energy_least": nullable(listed.energy if is_known(listed.energy) else listed.energy_least),
                "utilization_mean": nullable(listed.utilization), "sampled_share": nullable(listed.sampled_share),
                "tags": list(listed.tags),
                **(_cost(costs.get(listed.run.id, NO_CHARGE), prices) if prices and costs is not None else {}),
            }
            for listed in runs
        ],
    }  # fmt: skip


def run_document(record: Record, now: float, prices: Prices | None = None) -> dict[str, Any]:
    """Return a run as JSON: its ranks, and its epochs and phases.

    Epochs and phases are combined over ranks and devices.

    `now`: current time (s since 1970). `prices`: add costs if not None.
    """
    phases = aggregate.phase_summaries(record)
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    between = between_epochs(record, epochs)
    parts = [_phase(part) for part in outside_phases(record, between)]
    running = record.run.state is RunState.RUNNING
    devices = record.devices
    cost = _cost(price_run(total, epochs, devices, prices), prices) if prices else {}
    return {
        "schema": SCHEMA,
        "run": {**run_to_json(record.run, now), "epochs_done": record.done, **about_json(record.about)},
        "total": {**total_to_json(total), **cost, "phases": [] if epochs else parts},
        "between": {**_phase(between), "phase": None, "phases": parts} if between is not None else None,
        "steps": [
            {**_stretch(row), "ordinal": ordinal, "epoch": None, "first_step": row.epoch}
            for ordinal, row in enumerate(step_summaries(record))
        ],
        "findings": [finding_json(finding) for finding in findings(record, total, now, epochs)],
        "epochs": [
            {
                **epoch_to_json(epoch, phases.get(epoch.ordinal, ())),
                **costs,
                "verdict": finding.kind if finding else None,
            }
            for epoch, costs, finding in (
                (epoch, _epoch_cost(epoch, devices, prices), verdict(epoch, running)) for epoch in epochs
            )
        ],
        "ranks": ranks_to_json(record),
        "marks": [mark_to_json(mark, record.ranks) for mark in record.marks],
    }


def _cost(charge: Charge, prices: Prices) -> dict[str, Any]:
    return {"cost": charges.as_json(charge, prices)}


def _epoch_cost(epoch: EpochSummary, devices: Sequence[DeviceRow], prices: Prices | None) -> dict[str, Any]:
    return _cost(price_summary(epoch, devices, prices), prices) if prices else {}


def run_to_json(run: RunRow, now: float) -> dict[str, Any]:
    """Return the fields of a run as JSON, without its epochs and ranks. `now`: current time (s since 1970)."""
    return {
        "id": run.id, "name": run.name, "user": run.user or None, "hostname": run.hostname or None,
        "framework": run.framework or None, "source": run.source, "label": run.label, "driver": run.driver or None,
        "state": run.state.name.lower(), "watched": not run.unseen_seconds(now), "started": nullable(run.started),
        "ended": nullable(run.ended), "updated": nullable(run.updated), "seconds": nullable(run.duration),
        "world_size": run.world_size, "epochs_planned": run.epochs or None, "base": run.base,
        "first_epoch": run.first_epoch, "epochs_before": run.epochs_before, "resumes": run.resumes or None,
    }  # fmt: skip


def epoch_to_json(epoch: EpochSummary, phases: Iterable[EpochSummary]) -> dict[str, Any]:
    """Return an epoch with its phases as JSON."""
    return {**_stretch(epoch), "phases": [_phase(phase) for phase in phases]}


def total_to_json(total: EpochSummary) -> dict[str, Any]:
    """Return the totals of a run as JSON. `total`: result of `aggregate.run_total`."""
    values = _values(total)
    return {
        **{key: value for key, value in values.items() if key not in _NOT_OF_RUN},
        "metrics": metrics_to_json(total.metrics),
    }


_NOT_OF_RUN = ("ranks", "samples_per_second", "energy_per_sample")
"""Keys of epochs that a whole run does not have."""
_COLUMNS = shown(EPOCHS, View.JSON)


def _values(stretch: EpochSummary) -> dict[str, Any]:
    """Return the values of an epoch, phase or run, its number of ranks, and the origins of its peak and utilization."""
    values = {column.key: nullable(stretch.number(column.key)) for column in _COLUMNS}
    return {
        "ranks": stretch.ranks, **values,
        "framework_peak_reached": stretch.live_peak.reached if stretch.framework_peak > 0 else None,
        "sampled_share": nullable(stretch.sampled_share),
        "utilization_from": stretch.utilization_from or None,
    }  # fmt: skip


def values_to_json(values: Sequence[float]) -> dict[str, float | None]:
    """Return a JSON object with the values by key. `values`: values in the order of `columns.USAGE`."""
    return {column.key: nullable(value) for column, value in zip(USAGE, values, strict=True)}


def mark_to_json(mark: MarkRow, ranks: Sequence[RankRow]) -> dict[str, Any]:
    """Return an out-of-memory error or a checkpoint as JSON. `ranks`: the ranks of the run."""
    rank = next((rank.rank for rank in ranks if rank.key == mark.rank), None)
    return {
        "rank": rank, "mark": mark.mark.name.lower(), "time": nullable(mark.time), "epoch": mark.epoch,
        "step": mark.step, "asked": nullable(mark.asked), "free": nullable(mark.free),
    }  # fmt: skip


def metrics_to_json(metrics: Mapping[str, float]) -> dict[str, float | int | str]:
    """Return logged metrics as JSON. NaN and infinities become strings, because JSON has no such numbers."""
    return {name: value if math.isfinite(value) else logged(value) for name, value in metrics.items()}


def nullable(value: float) -> float | None:
    """Return a number for JSON, or None if it is NaN or infinite."""
    return value if math.isfinite(value) else None


def _stretch(epoch: EpochSummary) -> dict[str, Any]:
    return {
        "ordinal": epoch.ordinal, "epoch": epoch.epoch, "merged": epoch.merged, "begun": nullable(epoch.begun),
        "ended": nullable(epoch.ended),
        **_values(epoch), "metrics": metrics_to_json(epoch.metrics),
    }  # fmt: skip


def _phase(phase: EpochSummary) -> dict[str, Any]:
    return {"phase": phase.phase, "times": phase.times, **_values(phase)}


def ranks_to_json(record: Record) -> list[dict[str, Any]]:
    """Return the ranks of a run as JSON."""
    return [_rank(*pair) for pair in zip(record.ranks, aggregate.rank_summaries(record), strict=True)]


def _rank(rank: RankRow, summary: EpochSummary) -> dict[str, Any]:
    return {
        "key": rank.key, "rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid or None,
        "started": nullable(rank.started), "ended": nullable(rank.ended), "state": rank.state.name.lower(),
        "steps": rank.steps or None, "wait": nullable(rank.wait), "lost_events": rank.lost_events,
        "peak": nullable(rank.peak), "peak_reached": summary.live_peak.reached if rank.peak > 0 else None,
        "retries": nullable(rank.retries), "ooms": nullable(rank.ooms),
        "package_energy": nullable(rank.package_energy), "package_unknown": rank.package_unknown or None,
        "metrics": metrics_to_json(rank.metrics), **facts_to_json(rank.facts),
        "gpus": [device_to_json(device) for device in rank.devices],
    }  # fmt: skip


def device_to_json(device: DeviceRow) -> dict[str, Any]:
    """Return a device of a run as JSON."""
    return {
        "uuid": device.uuid, "index": device.number, "name": device.name, "memory_total": nullable(device.memory_total),
        "power_limit": nullable(device.power_limit),
    }  # fmt: skip


Schema = dict[str, Any]
STATES = [state.name.lower() for state in RunState]


def ref(name: str, help: str = "") -> Schema:
    """Return a reference to the schema `name`, optionally with the description `help`."""
    return {"$ref": f"#/$defs/{name}", **({"description": help} if help else {})}


def object_schema(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """Return the schema of an object with exactly these keys. All are required except those in `optional`."""
    omitted = set(optional)
    return {
        "type": "object", "properties": dict(properties), "additionalProperties": False,
        "required": [name for name in properties if name not in omitted],
    }  # fmt: skip


def list_schema(name: str) -> Schema:
    """Return the schema of a list whose items have the schema `name`."""
    return {"type": "array", "items": ref(name)}


def nullable_schema(name: str) -> Schema:
    """Return the schema of a value that is null or has the schema `name`."""
    return {"oneOf": [{"type": "null"}, ref(name)]}


def _column_schema(column: Column) -> Schema:
    """Return the schema of a column's values. A missing value is null."""
    if column.unit is Unit.COUNT:
        return {**WHOLE, "title": column.title, "description": column.help}
    bounds = {"minimum": 0} if column.unit is not Unit.CELSIUS else {}
    unit = {"x-unit": column.unit.value} if column.unit else {}
    return {"type": ["number", "null"], "title": column.title, **unit, **bounds, "description": column.help}


COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0}
TIME: Schema = {"type": ["number", "null"], "description": "seconds since 1970; null if unknown"}
RUN_ID: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
LOGGED: Schema = {"type": "object", "additionalProperties": ref("logged")}
PARAMETERS: Schema = {
    "type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}  # fmt: skip

_SAMPLED_SHARE = ref(
    "amount", "share of the time that was sampled (0 to 1) on the GPU with the lowest share; if it is below "
    f"{SAMPLED:g}, means are for this part of the time, and peaks are lower bounds",
)  # fmt: skip
_VALUES: Mapping[str, Schema] = {
    "ranks": COUNT,
    **{column.key: _column_schema(column) for column in _COLUMNS},
    "framework_peak_reached": {
        "type": ["boolean", "null"], "description": "true if the peak was reached in this epoch, phase or run",
    },
    "sampled_share": _SAMPLED_SHARE,
    "utilization_from": ref("text", "origin of utilization: driver, ticks, or both"),
}  # fmt: skip
_STRETCH: Mapping[str, Schema] = {
    "ordinal": COUNT, "epoch": {"type": ["integer", "null"]}, "merged": COUNT, "begun": TIME, "ended": TIME, **_VALUES,
    "metrics": LOGGED,
}  # fmt: skip
_RUN: Mapping[str, Schema] = {
    "id": RUN_ID, "name": {"type": "string"}, "user": ref("text"), "hostname": ref("text"), "framework": ref("text"),
    "source": {"type": "string"}, "label": {"type": "string"}, "driver": ref("text"), "state": {"enum": STATES},
    "watched": {"type": "boolean", "description": "false if a running run has not been seen for a minute"},
    "started": TIME, "ended": TIME, "updated": TIME, "seconds": ref("amount"), "world_size": COUNT,
    "epochs_planned": {"type": ["integer", "null"], "description": "null if unknown", "minimum": 1},
    "base": {"type": "integer"},
    "first_epoch": {"type": "integer"},
    "epochs_before": {**COUNT, "description": "epochs done by the runs that this run continues"},
    "resumes": ref("text", "id of the run that this run continues"),
}  # fmt: skip
_ABOUT: Mapping[str, Schema] = {
    "config": PARAMETERS, "program": PARAMETERS, "tags": TEXTS,
    "notes": {
        "type": "array",
        "items": object_schema({"time": TIME, "text": {"type": "string"}, "author": ref("text")}),
    },
    "omitted": COUNT,
}  # fmt: skip

RUN_SCHEMAS: Mapping[str, Schema] = {
    "run_listed": object_schema({
        **_RUN, "epochs_done": WHOLE, "gpus": COUNT, "energy": ref("amount", "joules"),
        "energy_least": ref("amount", "lower bound of the energy in joules; equal to energy if energy is not null"),
        "utilization_mean": ref("amount", "0 to 1"), "sampled_share": _SAMPLED_SHARE, "tags": TEXTS,
    }),
    "run_details": object_schema({**_RUN, "epochs_done": WHOLE, **_ABOUT}),
    "run_phase": object_schema({"phase": {"type": ["string", "null"]}, "times": WHOLE, **_VALUES}),
    "run_total": object_schema({
        **{key: schema for key, schema in _VALUES.items() if key not in _NOT_OF_RUN}, "metrics": LOGGED,
        "phases": list_schema("run_phase"),
    }),
    "run_between": object_schema({
        "phase": {"type": "null"}, "times": WHOLE, **_VALUES, "phases": list_schema("run_phase"),
    }),
    "run_steps": object_schema({**_STRETCH, "epoch": {"type": "null"}, "first_step": COUNT}),
    "run_epoch": object_schema({**_STRETCH, "phases": list_schema("run_phase"), "verdict": ref("text")}),
    "run_device": object_schema({
        "uuid": RUN_ID, "index": {"type": ["integer", "null"]}, "name": {"type": "string"},
        "memory_total": ref("amount", "bytes"), "power_limit": ref("amount", "watts"),
    }),
    "run_rank": object_schema({
        "key": RUN_ID, "rank": {"type": "integer"}, "local_rank": {"type": ["integer", "null"]},
        "pid": {"type": ["integer", "null"]}, "started": TIME, "ended": TIME, "state": {"enum": STATES},
        "steps": {"type": ["integer", "null"]}, "wait": ref("amount"), "lost_events": COUNT, "peak": ref("amount"),
        "peak_reached": {
            "type": ["boolean", "null"], "description": "false if the peak is of several GPUs together: an upper bound",
        },
        "retries": ref("amount"), "ooms": ref("amount"), "package_energy": ref("amount", "joules"),
        "package_unknown": ref("text"), "metrics": LOGGED,
        **{fact.key: {"type": ["number", "string", "null"]} for fact in RUN_FACTS if fact.key},
        "gpus": list_schema("run_device"),
    }),
    "run_mark": object_schema({
        "rank": {"type": ["integer", "null"]}, "mark": {"enum": [mark.name.lower() for mark in Mark]}, "time": TIME,
        "epoch": {"type": ["integer", "null"]}, "step": {"type": ["integer", "null"]},
        "asked": ref("amount", "bytes"), "free": ref("amount", "bytes"),
    }),
    "runs": object_schema({
        "schema": {"const": SCHEMA}, "runs": list_schema("run_listed"), "next_offset": ref("next_offset"),
        "problem": ref("text"),
    }),
    "run_whole": object_schema({
        "schema": {"const": SCHEMA}, "run": ref("run_details"), "total": ref("run_total"),
        "between": nullable_schema("run_between"), "steps": list_schema("run_steps"),
        "findings": list_schema("finding"), "ranks": list_schema("run_rank"), "marks": list_schema("run_mark"),
        "epochs_total": COUNT,
    }),
    "epochs": object_schema({
        "schema": {"const": SCHEMA}, "run": RUN_ID, "epochs_total": COUNT, "epochs": list_schema("run_epoch"),
        "next_offset": ref("next_offset"),
    }),
}  # fmt: skip
"""The schemas by name. `next_offset` is only in responses of the web server, which are paginated."""
