"""Serves the table of routes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache

from flask import Flask, Response, request

from gpumon_web.api.data import ApiData
from gpumon_web.api.parameters import BadParameter, read
from gpumon_web.api.route import ApiRoute
from gpumon_web.api.table import ROUTES
from gpumon_web.plain_page import V1, failure
from gpumon_web.prefix import prefix_of
from gpumon_web.sending import Sender

OPENAPI = "openapi.json"
_PREFIXES = 8
"""Paths of proxies for which the document is kept."""


def add_api(server: Flask, data: ApiData, sent: Sender, cookie: str) -> None:
    """Register every route below `/api/v1/`; `cookie` is the name of a browser's cookie."""

    def described() -> Response:
        """The document; its own route is not in it."""
        try:
            read((), request.args)
        except BadParameter as error:
            return failure(request, 400, "Bad parameter", f"{error}.")
        return Response(written(prefix_of(request.headers) + V1.strip("/")), mimetype="application/json")

    @lru_cache(_PREFIXES)
    def written(server: str) -> str:
        from gpumon_web.api.openapi import document  # the schemas take as long as all routes, and few ask

        return json.dumps(document(ROUTES, server, cookie))

    server.add_url_rule(f"{V1}{OPENAPI}", "api_v1_openapi", described, methods=["GET"])
    for route in ROUTES:
        server.add_url_rule(f"{V1}{route.name}", f"api_v1_{route.name}", _view(route, data, sent), methods=["GET"])


def _view(route: ApiRoute, data: ApiData, sent: Sender) -> Callable[[], Response]:
    def view() -> Response:
        try:
            asked = read(route.parameters, request.args)
            return sent(lambda: route.start(data, asked), route.of)
        except BadParameter as error:
            return failure(request, 400, "Bad parameter", f"{error}.")

    return view
