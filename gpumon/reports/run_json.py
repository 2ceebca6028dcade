"""Runs as JSON: `gpumon runs list --json` and `gpumon runs show --json`.

Keys of what was measured are those of `columns.USAGE`; units are base units, times seconds since 1970;
null is "not known" and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    """The list of runs; their cost by `prices`, where there are charges by the id of a run."""
    return {
        "schema": SCHEMA,
        "runs": [
            {
                **run_of(listed.run, now), "epochs_done": listed.done, "gpus": listed.gpus,
                "energy": known(listed.energy),
                "energy_least": known(listed.energy if is_known(listed.energy) else listed.energy_least),
                "utilization_mean": known(listed.utilization),
                "tags": list(listed.tags),
                **(_cost(costs.get(listed.run.id, NO_CHARGE), prices) if prices and costs is not None else {}),
            }
            for listed in runs
        ],
    }  # fmt: skip


def whole(record: Record, now: float, prices: Prices | None = None) -> dict[str, Any]:
    """A run with its epochs and their phases, joined over ranks and devices, and its ranks; their cost by `prices`."""
    phases = aggregate.phase_summaries(record)
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs, now)
    together = between_epochs(record, epochs)
    parts = [_phase(part) for part in outside_phases(record)]
    running = record.run.state is RunState.RUNNING
    devices = record.devices
    cost = _cost(price_run(total, epochs, devices, prices), prices) if prices else {}
    return {
        "schema": SCHEMA,
        "run": {**run_of(record.run, now), **about_json(record.about)},
        "total": {**total_of(total), **cost, "phases": [] if epochs else parts},
        "between": {**_phase(together), "phase": None, "phases": parts} if together is not None else None,
        "steps": [
            {**_stretch(row), "ordinal": place, "epoch": None, "first_step": row.epoch}
            for place, row in enumerate(step_summaries(record))
        ],
        "findings": [finding_json(finding) for finding in findings(record, total, now)],
        "epochs": [
            {**epoch_of(epoch, phases.get(epoch.ordinal, ())), **costs, "verdict": judged.kind if judged else None}
            for epoch, costs, judged in (
                (epoch, _epoch_cost(epoch, devices, prices), verdict(epoch, running)) for epoch in epochs
            )
        ],
        "ranks": [rank_of(rank) for rank in record.ranks],
        "marks": [mark_of(mark, record.ranks) for mark in record.marks],
    }


def _cost(charge: Charge, prices: Prices) -> dict[str, Any]:
    return {"cost": charges.as_json(charge, prices)}


def _epoch_cost(epoch: EpochSummary, devices: Sequence[DeviceRow], prices: Prices | None) -> dict[str, Any]:
    return _cost(price_summary(epoch, devices, prices), prices) if prices else {}


def run_of(run: RunRow, now: float) -> dict[str, Any]:
    """A run by itself."""
    return {
        "id": run.id, "name": run.name, "user": run.user or None, "hostname": run.hostname or None,
        "framework": run.framework or None, "source": run.source, "label": run.label, "driver": run.driver or None,
        "state": run.state.name.lower(), "watched": not run.unseen_seconds(now), "started": known(run.started),
        "ended": known(run.ended), "updated": known(run.updated), "seconds": known(run.duration(now)),
        "world_size": run.world_size, "epochs_planned": run.epochs or None, "base": run.base,
        "first_epoch": run.first_epoch, "epochs_before": run.epochs_before, "resumes": run.resumes or None,
    }  # fmt: skip


def epoch_of(epoch: EpochSummary, phases: Iterable[EpochSummary]) -> dict[str, Any]:
    """An epoch with its phases."""
    return {**_stretch(epoch), "phases": [_phase(phase) for phase in phases]}


def total_of(total: EpochSummary) -> dict[str, Any]:
    """A whole run, from `aggregate.run_total`."""
    values = _values(total)
    return {
        **{key: value for key, value in values.items() if key not in _NOT_OF_RUN},
        "metrics": metrics_of(total.metrics),
    }


_NOT_OF_RUN = ("ranks", "samples_per_second", "energy_per_sample")
"""Keys of an epoch that a whole run does not have."""
_COLUMNS = shown(EPOCHS, View.JSON)


def _values(stretch: EpochSummary) -> dict[str, Any]:
    """The columns of a stretch, with how many ranks it has, and of what its peak and its utilization are."""
    values = {column.key: known(stretch.number(column.key)) for column in _COLUMNS}
    return {
        "ranks": stretch.ranks, **values,
        "framework_peak_reached": stretch.live_peak.reached if stretch.framework_peak > 0 else None,
        "utilization_from": stretch.utilization_from or None,
    }  # fmt: skip


def values_of(values: Sequence[float]) -> dict[str, float | None]:
    """A row of `columns.USAGE` by name."""
    return {column.key: known(value) for column, value in zip(USAGE, values, strict=True)}


def mark_of(mark: MarkRow, ranks: Sequence[RankRow]) -> dict[str, Any]:
    """A mark on the timeline."""
    rank = next((rank.rank for rank in ranks if rank.key == mark.rank), None)
    return {
        "rank": rank, "mark": mark.mark.name.lower(), "time": known(mark.time), "epoch": mark.epoch,
        "step": mark.step, "asked": known(mark.asked), "free": known(mark.free),
    }  # fmt: skip


def metrics_of(metrics: Mapping[str, float]) -> dict[str, float | int | str]:
    """Return logged metrics; NaN and the infinities are words."""
    return {name: value if math.isfinite(value) else logged(value) for name, value in metrics.items()}


def known(value: float) -> float | None:
    """None for what is missing or no number that JSON has."""
    return value if math.isfinite(value) else None


def _stretch(epoch: EpochSummary) -> dict[str, Any]:
    return {
        "ordinal": epoch.ordinal, "epoch": epoch.epoch, "begun": known(epoch.begun), "ended": known(epoch.ended),
        **_values(epoch), "metrics": metrics_of(epoch.metrics),
    }  # fmt: skip


def _phase(phase: EpochSummary) -> dict[str, Any]:
    return {"phase": phase.phase, "times": phase.times, **_values(phase)}


def rank_of(rank: RankRow) -> dict[str, Any]:
    """A rank of a run."""
    return {
        "key": rank.key, "rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid or None,
        "started": known(rank.started), "ended": known(rank.ended), "state": rank.state.name.lower(),
        "steps": rank.steps or None, "wait": known(rank.wait), "lost_events": rank.lost_events,
        "peak": known(rank.peak), "retries": known(rank.retries), "ooms": known(rank.ooms),
        "package_energy": known(rank.package_energy), "package_unknown": rank.package_unknown or None,
        "metrics": metrics_of(rank.metrics), **facts_to_json(rank.facts),
        "gpus": [device_of(device) for device in rank.devices],
    }  # fmt: skip


def device_of(device: DeviceRow) -> dict[str, Any]:
    """A device of a run."""
    return {
        "uuid": device.uuid, "index": device.number, "name": device.name, "memory_total": known(device.memory_total),
        "power_limit": known(device.power_limit),
    }  # fmt: skip


Schema = dict[str, Any]
STATES = [state.name.lower() for state in RunState]


def ref(name: str, help: str = "") -> Schema:
    """Return a reference to a schema, with what it says there."""
    return {"$ref": f"#/$defs/{name}", **({"description": help} if help else {})}


def thing(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """Return the schema of an object with these keys and no others; all but the `optional` ones are always there."""
    left_out = set(optional)
    return {
        "type": "object", "properties": dict(properties), "additionalProperties": False,
        "required": [name for name in properties if name not in left_out],
    }  # fmt: skip


def rows(name: str) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": ref(name)}


def or_none(name: str) -> Schema:
    """Return the schema of a thing that may not be there."""
    return {"oneOf": [{"type": "null"}, ref(name)]}


def _known(kind: str, help: str, **bounds: float) -> Schema:
    return {"type": [kind, "null"], "description": help, **bounds}


def _schema(column: Column) -> Schema:
    """The schema of a number; null where it is not known."""
    if column.unit is Unit.COUNT:
        return {**WHOLE, "title": column.title, "description": column.help}
    bounds = {"minimum": 0} if column.unit is not Unit.CELSIUS else {}
    unit = {"x-unit": column.unit.value} if column.unit else {}
    return {"type": ["number", "null"], "title": column.title, **unit, **bounds, "description": column.help}


COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0}
TIME: Schema = {"type": ["number", "null"], "description": "seconds since 1970; null where it is not known"}
RUN_ID: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
LOGGED: Schema = {"type": "object", "additionalProperties": ref("logged")}
PARAMETERS: Schema = {
    "type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}  # fmt: skip

_VALUES: Mapping[str, Schema] = {
    "ranks": COUNT,
    **{column.key: _schema(column) for column in _COLUMNS},
    "framework_peak_reached": {"type": ["boolean", "null"], "description": "whether it was reached in this stretch"},
    "utilization_from": ref("text", "where utilization comes from"),
}  # fmt: skip
_STRETCH: Mapping[str, Schema] = {
    "ordinal": COUNT, "epoch": {"type": ["integer", "null"]}, "begun": TIME, "ended": TIME, **_VALUES,
    "metrics": LOGGED,
}  # fmt: skip
_RUN: Mapping[str, Schema] = {
    "id": RUN_ID, "name": {"type": "string"}, "user": ref("text"), "hostname": ref("text"), "framework": ref("text"),
    "source": {"type": "string"}, "label": {"type": "string"}, "driver": ref("text"), "state": {"enum": STATES},
    "watched": {"type": "boolean", "description": "false where nothing was heard of a running run for a minute"},
    "started": TIME, "ended": TIME, "updated": TIME, "seconds": ref("amount"), "world_size": COUNT,
    "epochs_planned": _known("integer", "null where it is not known", minimum=1), "base": {"type": "integer"},
    "first_epoch": {"type": "integer"},
    "epochs_before": {**COUNT, "description": "done before this run, by those that it continues"},
    "resumes": ref("text", "id of the run that it continues"),
}  # fmt: skip
_ABOUT: Mapping[str, Schema] = {
    "config": PARAMETERS, "program": PARAMETERS, "tags": TEXTS,
    "notes": {
        "type": "array",
        "items": thing({"time": TIME, "text": {"type": "string"}, "author": ref("text")}),
    },
    "omitted": COUNT,
}  # fmt: skip

RUN_SCHEMAS: Mapping[str, Schema] = {
    "run_listed": thing({
        **_RUN, "epochs_done": WHOLE, "gpus": COUNT, "energy": ref("amount", "joules"),
        "energy_least": ref("amount", "joules that were surely used; the same as energy where that is known"),
        "utilization_mean": ref("amount", "0 to 1"), "tags": TEXTS,
    }),
    "run_told": thing({**_RUN, **_ABOUT}),
    "run_phase": thing({"phase": {"type": ["string", "null"]}, "times": WHOLE, **_VALUES}),
    "run_total": thing({
        **{key: schema for key, schema in _VALUES.items() if key not in _NOT_OF_RUN}, "metrics": LOGGED,
        "phases": rows("run_phase"),
    }),
    "run_between": thing({
        "phase": {"type": "null"}, "times": WHOLE, **_VALUES, "phases": rows("run_phase"),
    }),
    "run_steps": thing({**_STRETCH, "epoch": {"type": "null"}, "first_step": COUNT}),
    "run_epoch": thing({**_STRETCH, "phases": rows("run_phase"), "verdict": ref("text")}),
    "run_device": thing({
        "uuid": RUN_ID, "index": {"type": ["integer", "null"]}, "name": {"type": "string"},
        "memory_total": ref("amount", "bytes"), "power_limit": ref("amount", "watts"),
    }),
    "run_rank": thing({
        "key": RUN_ID, "rank": {"type": "integer"}, "local_rank": {"type": ["integer", "null"]},
        "pid": {"type": ["integer", "null"]}, "started": TIME, "ended": TIME, "state": {"enum": STATES},
        "steps": {"type": ["integer", "null"]}, "wait": ref("amount"), "lost_events": COUNT, "peak": ref("amount"),
        "retries": ref("amount"), "ooms": ref("amount"), "package_energy": ref("amount", "joules"),
        "package_unknown": ref("text"), "metrics": LOGGED,
        **{fact.key: {"type": ["number", "string", "null"]} for fact in RUN_FACTS if fact.key},
        "gpus": rows("run_device"),
    }),
    "run_mark": thing({
        "rank": {"type": ["integer", "null"]}, "mark": {"enum": [mark.name.lower() for mark in Mark]}, "time": TIME,
        "epoch": {"type": ["integer", "null"]}, "step": {"type": ["integer", "null"]},
        "asked": ref("amount", "bytes"), "free": ref("amount", "bytes"),
    }),
    "runs": thing({
        "schema": {"const": SCHEMA}, "runs": rows("run_listed"), "next_offset": ref("next_offset"),
        "problem": ref("text"),
    }),
    "run_whole": thing({
        "schema": {"const": SCHEMA}, "run": ref("run_told"), "total": ref("run_total"),
        "between": or_none("run_between"), "steps": rows("run_steps"),
        "findings": rows("finding"), "ranks": rows("run_rank"), "marks": rows("run_mark"),
        "epochs_total": COUNT,
    }),
    "epochs": thing({
        "schema": {"const": SCHEMA}, "run": RUN_ID, "epochs_total": COUNT, "epochs": rows("run_epoch"),
        "next_offset": ref("next_offset"),
    }),
}  # fmt: skip
"""By name. `next_offset` is of whoever answers in pages."""
