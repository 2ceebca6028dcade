"""JSON Schemas of runs, by name: what `run_json` makes, derived from the tables of its columns and facts.

References are `#/$defs/NAME`; `ratio`, `amount`, `text`, `logged` and `finding` are those of the status document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import Unit
from gpumon.model.run import RUN_FACTS
from gpumon.reports.run_json import SCHEMA
from gpumon.storage.ledger.schema import USAGE

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


COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0}
TIME: Schema = {"type": ["number", "null"], "description": "seconds since 1970; null where it is not known"}
RUN_ID: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
LOGGED: Schema = {"type": "object", "additionalProperties": ref("logged")}
PARAMETERS: Schema = {
    "type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}  # fmt: skip

_USAGE: Mapping[str, Schema] = {
    "utilization_from": ref("text", "where utilization comes from"),
    **{
        column.name: {
            "type": ["number", "null"], "x-unit": column.unit.value,
            **({"minimum": 0} if column.unit is not Unit.CELSIUS else {}), "description": column.help,
        }
        for column in USAGE
    },
}  # fmt: skip
_PEAK: Mapping[str, Schema] = {
    "framework_peak": ref("amount", "bytes: the framework's own peak of live tensors"),
    "framework_peak_reached": {"type": ["boolean", "null"], "description": "whether it was reached in this stretch"},
}
_COUNTED: Mapping[str, Schema] = {
    "ranks": COUNT, "steps": WHOLE,
    "wait": ref("amount", "seconds waited for data"), "wait_share": ref("amount", "share of the time, 0 to 1"), **_PEAK,
    "steps_per_second": ref("amount"), "energy_per_step": ref("amount", "joules"),
    "samples_per_second": ref("amount"), "energy_per_sample": ref("amount", "joules"),
}  # fmt: skip
_STRETCH: Mapping[str, Schema] = {
    "ordinal": COUNT, "epoch": {"type": ["integer", "null"]}, "begun": TIME, "ended": TIME, **_COUNTED,
    "metrics": LOGGED, **_USAGE,
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
        "utilization_mean": ref("amount", "0 to 1"), "tags": TEXTS,
    }),
    "run_told": thing({**_RUN, **_ABOUT}),
    "run_phase": thing({"phase": {"type": ["string", "null"]}, "times": WHOLE, **_COUNTED, **_USAGE}),
    "run_total": thing({
        "steps": WHOLE, "wait": ref("amount"), "wait_share": ref("amount"), **_PEAK, **_USAGE,
        "metrics": LOGGED, "steps_per_second": ref("amount"), "energy_per_step": ref("amount"),
        "phases": rows("run_phase"),
    }),
    "run_between": thing({
        "phase": {"type": "null"}, "times": WHOLE, **_COUNTED, **_USAGE, "phases": rows("run_phase"),
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
