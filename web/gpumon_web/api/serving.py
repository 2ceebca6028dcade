"""The table of API routes, their registration, and the route of the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import lru_cache

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from gpumon_web.api import accounts, events, now, runs, series
from gpumon_web.api.parameters import BadParameter, read
from gpumon_web.api.route import ApiData, ApiRoute
from gpumon_web.auth.http_errors import V1, error_response
from gpumon_web.http.prefix import prefix_of
from gpumon_web.routes.responses import Sender

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "status", "GPUs, processes and runs now",
        "The object that `gpumon status --json` prints, of the newest sample: docs/json.md has its keys.",
        "status", now.status,
    ),
    ApiRoute(
        "findings", "What needs attention now", "The findings of the newest sample, the most severe first.",
        "findings", now.findings, now.FINDINGS,
    ),
    ApiRoute(
        "users", "Users who hold GPUs now",
        "A user holds a GPU while one of their processes is on it or one of their running runs claims it.",
        "users", now.users,
    ),
    ApiRoute(
        "series", "Metrics over time",
        "Lowest, mean and highest value of each stretch of a window, of up to 31 days. Where there is no value they "
        "are null, and `gaps` says why. Counters are rates.",
        "series", series.start, series.PARAMETERS, "this", has_missing=True,
    ),
    ApiRoute(
        "runs", "Runs, the newest first", "Runs of the ledger, as `gpumon runs list --json` has them, in pages.",
        "runs", runs.start_list, runs.LIST,
    ),
    ApiRoute(
        "run", "One run", "The run as `gpumon runs show --json` has it, without its epochs.",
        "run_whole", runs.start_run, runs.SINGLE_RUN, "this run", has_missing=True,
    ),
    ApiRoute(
        "epochs", "Epochs of a run, the oldest first", "As `gpumon runs show --json` has them, in pages.",
        "epochs", runs.start_epochs, runs.EPOCHS, "this run", has_missing=True,
    ),
    ApiRoute(
        "events", "Events of a window",
        "The output of `gpumon history events --json`, in pages: the newest first, each in chronological order.",
        "events", events.start, events.PARAMETERS,
    ),
    ApiRoute(
        "accounts", "Users' time on the GPUs",
        "The output of `gpumon history accounts --json`, in whole hours: held, busy and idle time and energy of "
        "each user, usage whose holder is unknown, and the time without data.",
        "accounts", accounts.start, accounts.PARAMETERS,
    ),
)  # fmt: skip


OPENAPI = "openapi.json"
_PREFIXES = 8
"""Number of proxy prefixes for which the document is cached."""


def add_api(server: FastAPI, data: ApiData, send: Sender, cookie: str) -> None:
    """Register every route below `/api/v1/`; `cookie` is the name of the session cookie."""

    def openapi_response(request: Request) -> Response:
        """Return the OpenAPI document, which does not include its own route."""
        try:
            read((), request.query_params)
        except BadParameter as error:
            return error_response(request, 400, "Bad parameter", f"{error}.")
        return Response(openapi_json(prefix_of(request.headers) + V1.strip("/")), media_type="application/json")

    @lru_cache(_PREFIXES)
    def openapi_json(server: str) -> str:
        from gpumon_web.api.openapi import document  # slow to import, and rarely requested

        return json.dumps(document(ROUTES, server, cookie))

    server.add_route(f"{V1}{OPENAPI}", openapi_response, methods=["GET"], name="api_v1_openapi")
    for route in ROUTES:
        server.add_route(f"{V1}{route.name}", _view(route, data, send), methods=["GET"], name=f"api_v1_{route.name}")


def _view(route: ApiRoute, data: ApiData, send: Sender) -> Callable[[Request], Awaitable[Response]]:
    async def view(request: Request) -> Response:
        try:
            values = read(route.parameters, request.query_params)
            return await send(request, lambda: route.start(data, values), route.item)
        except BadParameter as error:
            return error_response(request, 400, "Bad parameter", f"{error}.")

    return view
