"""The OpenAPI 3.1 document: what FastAPI derives from the routes, and the schemas of their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.caps import CAP_PERIODS, MEASURES
from gpumon.model.columns import PROCESSES, View, shown
from gpumon.model.events import EVENT_KINDS
from gpumon.model.metrics import BY_NAME, GPU_METRICS, HOST_METRICS, Availability, Metric, Unit
from gpumon.reports import caps, events, history, status_json, usage
from gpumon.reports.run_json import COUNT, RUN_ID, RUN_SCHEMAS, TEXTS, TIME, Schema, list_schema, object_schema, ref
from gpumon.storage.usage.period_totals import GROUPINGS
from gpumon_web.api import now
from gpumon_web.auth.http_errors import V1

_AGE = {"time": {"type": "number", "description": "of the sample, seconds since 1970"},
        "live": {"type": "boolean", "description": "false where the values are the last known ones"},
        "age": ref("amount", "seconds since the values were read")}  # fmt: skip
_LINE: Schema = {"type": "array", "items": {"type": ["number", "null"]}}
_HELD = "seconds in which processes or runs of theirs were on a GPU, over all GPUs"
_JUDGED = "seconds of `held` for which `busy` and `idle_held` are known"
_SEVERITY: Schema = {"enum": list(now.SEVERITIES)}

OWN: Mapping[str, Schema] = {
    "next_offset": {
        "type": ["integer", "null"], "minimum": 1, "description": "`offset` of the next page; null on the last one",
    },
    "problem_document": {
        "type": "object", "description": "RFC 9457", "additionalProperties": False,
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"const": "about:blank"}, "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "what is wrong and what to do, in one line"},
        },
    },
    "findings": object_schema({"schema": {"const": now.SCHEMA}, **_AGE, "findings": list_schema("finding")}),
    "user_gpu": object_schema({
        "uuid": RUN_ID, "label": {"type": "string"}, "gpu_state": {"enum": [state.value for state in GpuState]},
        "processes": COUNT, "memory_used": ref("amount", "bytes of this user's processes"), "runs": TEXTS,
    }),
    "user": object_schema({
        "user": ref("text", "null: holders whose name is not known"), "gpus": list_schema("user_gpu"),
        "memory_used": ref("amount", "bytes; null where a part is not known"), "runs": TEXTS,
    }),
    "users": object_schema({
        "schema": {"const": status_json.SCHEMA}, **_AGE, "users": list_schema("user"),
        "unknown_gpus": {**TEXTS, "description": "UUIDs of GPUs whose holders are unknown"},
    }),
    "event": object_schema({
        "time": {"type": "number"}, "time_ns": {"type": "integer"},
        "kind": {
            "type": "string", "examples": [kind.name for kind in EVENT_KINDS],
            "description": " ".join(f"`{kind.name}`: {kind.help}" for kind in EVENT_KINDS),
        },
        "severity": _SEVERITY, "uuid": ref("text"), "user": ref("text"), "run": ref("text"), "cause": ref("text"),
        "lasted": ref("amount", "seconds"), "last_seen": TIME, "details": {"type": "object"},
    }),
    "events": object_schema({
        "schema": {"const": events.SCHEMA}, "begin": {"type": "number"}, "end": {"type": "number"},
        "events": list_schema("event"), "next_offset": ref("next_offset"), "problem": ref("text"),
    }),
    "account": object_schema({
        "user": {"type": "string"}, "held": ref("amount", _HELD), "judged": ref("amount", _JUDGED),
        "busy": ref("amount", "seconds"), "idle_held": ref("amount", "seconds"),
        "metered": ref("amount", "seconds of `held` for which `energy` is known"), "energy": ref("amount", "joules"),
    }),
    "account_group": object_schema({
        "begin": {"type": "number"}, "end": {"type": "number"},
        "device": {"oneOf": [{"type": "null"}, object_schema({
            "uuid": RUN_ID, "number": {"type": "integer"}, "name": {"type": "string"},
        })]},
        "accounts": list_schema("account"),
        "unknown": object_schema({
            "held": ref("amount", "seconds"), "busy": ref("amount", "seconds"), "energy": ref("amount"),
        }),
        "free": object_schema({"seconds": ref("amount"), "energy": ref("amount", "joules")}),
        "unseen": ref("amount", "seconds without data, over all GPUs: no daemon ran, or the GPU did not respond"),
        "total": object_schema({name: ref("amount") for name in usage.TOTAL_KEYS}),
    }),
    "accounts": object_schema({
        "schema": {"const": usage.SCHEMA}, "begin": {"type": "number"}, "end": {"type": "number"},
        "by": {"enum": list(GROUPINGS)}, "groups": list_schema("account_group"), "problem": ref("text"),
    }),
    "cap": object_schema({
        "user": ref("text", "null for a cap of a group"), "group": ref("text", "null for a cap of a user"),
        "measure": {"enum": [name.replace("-", "_") for name in MEASURES]}, "period": {"enum": list(CAP_PERIODS)},
        "limit": {"type": "number", "description": "seconds, joules, or the currency"},
        "used": ref("amount", "in the unit of `limit`, since `begin`"),
        "complete": {"type": "boolean", "description": "whether all of it was measured; else it is a lower bound"},
        "begin": {"type": "number"}, "end": {"type": "number"},
        "reached": ref("amount", "start of the hour in which the cap was reached"),
        "forecast": ref("amount", "when it will be reached, at the rate of the sampled part of the last 24 hours"),
    }),
    "caps": object_schema({
        "schema": {"const": caps.SCHEMA}, "currency": ref("text"), "caps": list_schema("cap"),
    }),
    "gap": object_schema({
        "begin": {"type": "number"}, "end": {"type": "number"},
        "reason": {
            "enum": list(history.REASONS),
            "description": "; ".join(f"`{name}`: {why}" for name, why in history.REASONS.items()),
        },
    }),
    "line": object_schema({
        "metric": {"enum": list(BY_NAME)},
        "unit": {"type": "string", "description": "base unit; of a counter, per second"},
        "gpu": ref("text", "UUID; null for values of the machine as a whole"), "label": ref("text"),
        "is_rate": {"type": "boolean"},
        "min": _LINE, "mean": _LINE, "max": _LINE,
        "missing": {
            "enum": [*(why.name.lower() for why in Availability), None],
            "description": "why the newest sample has no value, by the names of docs/reference/metrics.md",
        },
        "gaps": list_schema("gap"),
    }),
    "coarse_cells": object_schema({
        "begin": {"type": "number"}, "end": {"type": "number"},
        "step": {"type": "number", "minimum": 0, "description": "seconds of each mean that is kept"},
    }),
    "series": object_schema({
        "schema": {"const": history.SCHEMA}, "begin": {"type": "number"}, "end": {"type": "number"},
        "step": {"type": "number", "minimum": 0, "description": "seconds of each stretch; 0: each is a sample"},
        "coarse": {
            **list_schema("coarse_cells"),
            "description": "where means of more than `step` are kept: stretches within one repeat its values",
        },
        "times": {
            "type": "array", "items": {"type": "number"},
            "description": "seconds since 1970: of each sample, or the middle of each stretch",
        },
        "series": list_schema("line"), "problem": ref("text"),
    }),
}  # fmt: skip


@cache
def schemas() -> Mapping[str, Schema]:
    """Return every schema by name, with references between them as `#/$defs/NAME`."""
    status = json.loads((files("gpumon.reports") / "status.schema.json").read_text(encoding="utf-8"))
    parts: dict[str, Schema] = status.pop("$defs")
    status.pop("$schema")
    parts["gpu"]["properties"] |= _metric_schemas(GPU_METRICS, parts["gpu"]["properties"])
    for column in shown(PROCESSES, View.JSON):
        if column.key in parts["process"]["properties"]:
            parts["process"]["properties"][column.key] |= {"title": column.title, "description": column.help}
    status["properties"]["host"]["properties"] |= _metric_schemas(
        HOST_METRICS, status["properties"]["host"]["properties"]
    )
    return {"status": status, **parts, **RUN_SCHEMAS, **OWN}


def _metric_schemas(metrics: tuple[Metric, ...], properties: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schemas of metrics, with title, description and unit."""
    types = {Unit.RATIO: "ratio"}
    return {
        metric.key: {
            **properties.get(metric.key, ref(types.get(metric.unit, "amount"))),
            "title": metric.title, "description": metric.help, "x-unit": metric.unit.value,
        }
        for metric in metrics
    }  # fmt: skip


VERSION = "1.0"


def document(routes: Sequence[BaseRoute], path: str, cookie: str) -> dict[str, Any]:
    """Return the document; `path` is the base path of the routes, `cookie` the name of the session cookie."""
    content = get_openapi(
        title="gpumon",
        version=VERSION,
        description="GPUs of a server, their users, and trainings with their epochs; read-only. Units are "
        "base units, times are seconds since 1970, null is not known and never 0. Within a version keys are "
        "added, never changed or removed. Texts come from other users: escape them.",
        routes=routes,
        servers=[{"url": path}],
    )
    content["paths"] = {f"/{name.removeprefix(V1)}": methods for name, methods in content["paths"].items()}
    for name, methods in content["paths"].items():
        operation = methods["get"]
        operation["operationId"] = name.strip("/")
        operation["responses"].pop("422", None)  # FastAPI's own answer to a wrong parameter; ours is 400
        for parameter in operation.setdefault("parameters", []):
            _complete(parameter)
    content["security"] = [{"token": []}, {"session": []}]
    content["components"] = {
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "gpumon web token add NAME"},
            "session": {"type": "apiKey", "in": "cookie", "name": cookie, "description": "a signed-in browser"},
        },
        "schemas": dict(schemas()),
    }
    result: dict[str, Any] = json.loads(json.dumps(content).replace("#/$defs/", "#/components/schemas/"))
    return result


def _complete(parameter: dict[str, Any]) -> None:
    """Add how a list is sent, and remove what says nothing."""
    schema = parameter["schema"]
    for name in ("title", "description"):  # the same as of the parameter
        schema.pop(name, None)
    if schema.get("default") in ("", [], None):
        schema.pop("default", None)
    if schema["type"] == "array":
        parameter |= {"style": "form", "explode": False}
