"""The OpenAPI 3.1 document, from the table of routes and the schemas of their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from gpumon_web.api.parameters import QueryParameter
from gpumon_web.api.route import ApiRoute
from gpumon_web.api.schemas import schemas

VERSION = "1.0"
_ALWAYS = (401, 403, 405, 421, 429, 431, 503)
"""Statuses that every route may answer with: before it is looked at, or because the server is busy."""
_WHY = {
    400: "a parameter that is unknown, out of bounds or given twice",
    401: "no token, a wrong one, or one that was revoked",
    403: "asked by a page of another site",
    404: "there is no such thing",
    405: "a method that is neither GET nor HEAD: nothing can be changed here",
    421: "a host name that is not allowed",
    429: "too many requests: wait for `Retry-After` seconds",
    431: "headers that are too long, of the address and all that comes with it",
    503: "busy, or what is kept cannot be read now: ask again after `Retry-After` seconds",
}


def document(routes: Sequence[ApiRoute], server: str, cookie: str) -> dict[str, Any]:
    """Return the document: `server` is the path below which the routes lie, `cookie` the name of a browser's cookie."""
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "gpumon", "version": VERSION,
            "description": "GPUs of a server, their users, and trainings with their epochs; read-only. Units are "
            "base units, times are seconds since 1970, null is not known and never 0. Within a version keys are "
            "added, never changed or removed. Texts come from other users: escape them.",
        },
        "servers": [{"url": server}],
        "security": [{"token": []}, {"session": []}],
        "paths": {f"/{route.name}": {"get": _operation(route)} for route in routes},
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "gpumon web token add NAME"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie, "description": "a signed-in browser"},
            },
            "schemas": dict(schemas()),
        },
    }  # fmt: skip
    moved: dict[str, Any] = json.loads(json.dumps(found).replace("#/$defs/", "#/components/schemas/"))
    return moved


def statuses(route: ApiRoute) -> Sequence[int]:
    """Return the statuses of failures that a route may answer with."""
    return sorted({*_ALWAYS, 400, *([404] if route.has_missing else [])})


def _operation(route: ApiRoute) -> Mapping[str, Any]:
    return {
        "operationId": route.name, "summary": route.title, "description": route.meaning,
        "parameters": [_parameter(one) for one in route.parameters],
        "responses": {
            "200": {
                "description": "the answer",
                "content": {"application/json": {"schema": {"$ref": f"#/$defs/{route.answer}"}}},
            },
            **{
                str(status): {
                    "description": f"{HTTPStatus(status).phrase}: {_WHY[status]}",
                    **_body(status),
                }
                for status in statuses(route)
            },
        },
    }  # fmt: skip


def _body(status: int) -> Mapping[str, Any]:
    """The body of a failure; headers that are too long are refused before anybody looks who asks."""
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"content": {"application/problem+json": {"schema": {"$ref": "#/$defs/problem_document"}}}}


def _parameter(one: QueryParameter) -> Mapping[str, Any]:
    usual = {} if one.default is None else {"default": one.default}
    found: dict[str, Any] = {"name": one.name, "in": "query", "description": one.meaning, "required": one.is_required}
    if not one.is_list:
        return {**found, "schema": {**one.schema, **usual}}
    items = {"type": "array", "items": dict(one.schema), "minItems": 1, "maxItems": one.most, **usual}
    return {**found, "style": "form", "explode": False, "schema": items}
