"""The API routes below `/api/v1/`, with the OpenAPI document that describes them."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from gpumon_web.api import accounts, events, now, runs, series
from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import Parameters, refuse_repeated
from gpumon_web.auth.http_errors import V1
from gpumon_web.http.prefix import prefix_of
from gpumon_web.routes.requests import Sender

_REASONS = {
    400: "a parameter that is unknown, out of bounds or given twice",
    401: "no token, a wrong one, or one that was revoked",
    403: "the request came from a page on another site",
    404: "not found",
    405: "only GET and HEAD are allowed",
    421: "a host name that is not allowed",
    429: "too many requests: wait for `Retry-After` seconds",
    431: "the request line and headers are too long",
    503: "busy, or stored data cannot be read: retry after `Retry-After` seconds",
}
_PREFIXES = 8
"""Number of proxy prefixes for which the document is cached."""
NoParameters = Annotated[Parameters, Query()]


def add_api(server: FastAPI, data: ApiData, send: Sender, cookie: str) -> None:
    """Register every route; `cookie` is the name of the session cookie."""
    checks = [Depends(refuse_repeated)]

    @server.get(f"{V1}status", dependencies=checks, **_about("status", "GPUs, processes and runs now"))
    async def status(request: Request, query: NoParameters) -> Response:
        """The object of `gpumon status --json` for the newest sample; docs/reference/json.md has its keys.

        Its findings about running runs also come from the ledger, which the command does not read.
        """
        return await send(request, partial(now.status, data), "this")

    @server.get(f"{V1}findings", dependencies=checks, **_about("findings", "What needs attention now"))
    async def findings(request: Request, query: Annotated[now.FindingsParameters, Query()]) -> Response:
        """The findings of the newest sample, the most severe first."""
        return await send(request, partial(now.findings, data, query), "this")

    @server.get(f"{V1}users", dependencies=checks, **_about("users", "Users who hold GPUs now"))
    async def users(request: Request, query: NoParameters) -> Response:
        """A user holds a GPU while one of their processes is on it or one of their running runs claims it."""
        return await send(request, partial(now.users, data), "this")

    @server.get(f"{V1}series", dependencies=checks, **_about("series", "Metrics over time", has_missing=True))
    async def get_series(request: Request, query: Annotated[series.SeriesParameters, Query()]) -> Response:
        """Lowest, mean and highest value of each stretch of a window, of up to 31 days.

        Where there is no value they are null, and `gaps` says why. Counters are rates.
        """
        return await send(request, partial(series.start, data, query), "this")

    @server.get(f"{V1}runs", dependencies=checks, **_about("runs", "Runs, the newest first"))
    async def get_runs(request: Request, query: Annotated[runs.RunsParameters, Query()]) -> Response:
        """Runs of the ledger, as `gpumon runs list --json` has them, in pages."""
        return await send(request, partial(runs.start_list, data, query), "this")

    @server.get(f"{V1}run", dependencies=checks, **_about("run_whole", "One run", has_missing=True))
    async def run(request: Request, query: Annotated[runs.RunParameters, Query()]) -> Response:
        """The run as `gpumon runs show --json` has it, without its epochs."""
        return await send(request, partial(runs.start_run, data, query), "this run")

    @server.get(
        f"{V1}epochs", dependencies=checks, **_about("epochs", "Epochs of a run, the oldest first", has_missing=True)
    )
    async def epochs(request: Request, query: Annotated[runs.EpochsParameters, Query()]) -> Response:
        """As `gpumon runs show --json` has them, in pages."""
        return await send(request, partial(runs.start_epochs, data, query), "this run")

    @server.get(f"{V1}events", dependencies=checks, **_about("events", "Events of a window"))
    async def get_events(request: Request, query: Annotated[events.EventsParameters, Query()]) -> Response:
        """The output of `gpumon history events --json`, in pages: the newest first, each in chronological order."""
        return await send(request, partial(events.start, data, query), "this")

    @server.get(f"{V1}accounts", dependencies=checks, **_about("accounts", "Users' time on the GPUs"))
    async def get_accounts(request: Request, query: Annotated[accounts.AccountsParameters, Query()]) -> Response:
        """The output of `gpumon history accounts --json`, in whole hours.

        Held, busy and idle time and energy of each user, usage whose holder is unknown, and the time without data.
        """
        return await send(request, partial(accounts.start, data, query), "this")

    @server.get(f"{V1}caps", dependencies=checks, **_about("caps", "Caps on usage"))
    async def get_caps(request: Request, query: NoParameters) -> Response:
        """The output of `gpumon history caps --json`: what is used of each cap, and when it will be reached."""
        return await send(request, data.caps, "this")

    @lru_cache(_PREFIXES)
    def openapi_json(path: str) -> str:
        from gpumon_web.api.openapi import document  # slow to import, and rarely requested

        routes = [route for route in server.routes if isinstance(route, APIRoute) and route.path.startswith(V1)]
        return json.dumps(document(routes, path, cookie))

    @server.get(f"{V1}openapi.json", dependencies=checks, include_in_schema=False)
    def openapi(request: Request, query: NoParameters) -> Response:
        return Response(openapi_json(prefix_of(request.headers) + V1.strip("/")), media_type="application/json")


def _about(answer: str, title: str, *, has_missing: bool = False) -> dict[str, Any]:
    """Return what the document says of a route besides its parameters.

    `answer` names the schema of its answer; `has_missing`: it answers 404 for an item that does not exist.
    """
    schema = {"$ref": f"#/components/schemas/{answer}"}
    responses: dict[int, Any] = {
        200: {"description": "the answer", "content": {"application/json": {"schema": schema}}}
    }
    for status, why in _REASONS.items():
        if status != HTTPStatus.NOT_FOUND or has_missing:
            responses[status] = {"description": f"{HTTPStatus(status).phrase}: {why}", "content": _error_body(status)}
    return {"summary": title, "responses": responses, "response_class": Response}


def _error_body(status: int) -> dict[str, Any]:
    """Return the body of an error; 431 is plain text, because it is sent before the app sees the request."""
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return {"text/plain": {"schema": {"type": "string"}}}
    return {"application/problem+json": {"schema": {"$ref": "#/components/schemas/problem_document"}}}
