"""The Dash app on FastAPI: the document of all pages, its routes, and what stands before and behind them.

Dash only draws the compare page, whose callbacks (`routes.compare`) read: the gate admits them like other requests, and
each must have the form that our page sends. All other answers are a static file, the document, or come from `routes` or
`api`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dash import Dash, html
from dash.exceptions import DependencyException
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import BadParameter, describe
from gpumon_web.api.routes import add_api
from gpumon_web.assets_bundle import bundle_scripts, bundle_styles
from gpumon_web.auth.gate import Gate
from gpumon_web.auth.http_errors import KEEPS_PLACE, BadNumber, error_response, no_such_page
from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.auth.request_checks import Guard
from gpumon_web.components.page import Page
from gpumon_web.document import INDEX, INLINE_SCRIPTS, body_markup, head_markup
from gpumon_web.http.callbacks import CallbackCheck
from gpumon_web.http.error_log import ErrorLog, capture_logger
from gpumon_web.http.headers import LEVEL, MIN_COMPRESSED_BYTES, SecurityHeaders, StaticFileCache, hash_of, policy
from gpumon_web.http.prefix import PLACEHOLDER, base_of, path_of, put_prefix
from gpumon_web.live.values import PageFeed, PageViews
from gpumon_web.pages import PAGES
from gpumon_web.routes.compare import add_comparison
from gpumon_web.routes.pages import METRICS, Sources, add_metrics, add_page_routes, add_routes
from gpumon_web.routes.requests import Sender

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ASSETS = Path(__file__).parent / "assets"
_META = [
    {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    {"name": "color-scheme", "content": "light dark"},
    {"name": "referrer", "content": "no-referrer"},
]
_KNOWN = (
    "/", "/_dash-layout", "/_dash-dependencies", "/_favicon.ico", "/healthz", "/assets/", "/_dash-component-suites/",
    "/api/", METRICS,
)  # fmt: skip
"""Paths, or with a slash at the end folders, that are answered."""


_UNUSED = re.compile(r'<script src="[^"]*/dash/dash_table/[^"]*"></script>\n?')
"""Scripts that Dash adds to every page and ours does not need."""


class _ErrorAnswers:
    """ASGI middleware that answers errors of routes. Innermost, as Dash's own one would hide them."""

    def __init__(self, app: ASGIApp, error_log: ErrorLog) -> None:
        self._app = app
        self._error_log = error_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def watch(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            request = Request(scope)
            kind = type(error).__name__
            self._error_log.log(kind, f"gpumon web: {path_of(request)[:80]!r}: {kind}: {error}")
            if is_started:
                raise
            text = "The terminal in which gpumon web runs has the details."
            await error_response(request, 500, "Something went wrong", text)(scope, receive, send)


class SlimDash(Dash):
    """Dash in a document of our own, which is shown before Dash's scripts have been loaded."""

    head: str = ""
    body: str = ""

    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]
        """Return the HTML document; this is Dash's hook for customizing it."""
        parts |= {"css": self.head, "app_entry": self.body, "scripts": _UNUSED.sub("", parts["scripts"])}
        return str(super().interpolate_index(**parts))  # type: ignore[no-untyped-call]

    @cached_property
    def document(self) -> str:
        """The HTML document, with a placeholder for the path prefix."""
        return str(self.index())  # type: ignore[no-untyped-call]


def make_app(
    sources: Sources, gate: Gate, now: Callable[[], float] = time.time, buckets: Buckets | None = None
) -> Dash:
    """Create the app for one machine; its ASGI application is `.server`."""
    views = PageFeed(sources.feed, sources.colors)
    app = _create_app(PAGES, gate, now, buckets)
    error_log: ErrorLog = app.server.state.error_log
    add_routes(app.server, sources, views, error_log)
    add_comparison(app, sources, error_log)
    add_metrics(app.server, sources.feed)
    data = ApiData(sources.feed, sources.runs, sources.figures, sources.accounts.caps)
    add_api(app.server, data, Sender(error_log), gate.cookie)
    return app


def make_cluster_app(
    views: PageViews, pages: Mapping[str, Page], gate: Gate, now: Callable[[], float] = time.time,
    buckets: Buckets | None = None,
) -> Dash:  # fmt: skip
    """Create the app for a whole cluster, whose pages only have values that are sent with a tick."""
    app = _create_app(pages, gate, now, buckets)
    add_page_routes(app.server, views)
    return app


def _create_app(
    pages: Mapping[str, Page], gate: Gate, now: Callable[[], float], buckets: Buckets | None
) -> SlimDash:  # fmt: skip
    """Create the app with the document and without routes of data."""
    app = SlimDash(
        __name__,
        server=False,  # until `init_app`
        backend="fastapi",
        title="gpumon",
        update_title="",
        meta_tags=_META,
        index_string=INDEX,
        assets_ignore=r"\.(js|css)$",  # they are in the bundles
        suppress_callback_exceptions=True,  # else Dash writes a copy of the layout into the page
        health_endpoint="healthz",
        enable_mcp=False,
        use_pages=False,  # else Dash looks for a pages folder in the working directory
        routes_pathname_prefix="/",
        requests_pathname_prefix=PLACEHOLDER,
    )
    app.layout = html.Div([page.layout() for page in pages.values() if page.is_dash])
    scripts, styles = bundle_scripts(ASSETS), bundle_styles(ASSETS)
    app.head = head_markup(styles, scripts, PLACEHOLDER)
    app.body = body_markup(pages, signs_out=gate.has_token)
    app.backend.websocket_capability = False  # else Dash adds a route for websockets
    server, error_log = _create_server(pages), ErrorLog()
    server.state.error_log = error_log
    # Each middleware stands around those before it.
    server.add_middleware(_ErrorAnswers, error_log=error_log)
    # Dash's own middleware, which reads the body, stands around this one.
    server.add_middleware(CallbackCheck, callbacks=app.callback_map)
    app.init_app(server)
    server.add_middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED_BYTES, compresslevel=LEVEL)
    server.add_middleware(StaticFileCache)
    server.add_middleware(
        Guard,
        gate=gate,
        headers=SecurityHeaders(policy([*app.csp_hashes(), *map(hash_of, (KEEPS_PLACE, *INLINE_SCRIPTS))])),
        buckets=buckets or Buckets(),
        known=_KNOWN,
        pages=pages,
        now=now,
    )

    async def page(request: Request) -> Response:
        return HTMLResponse(put_prefix(app.document, base_of(request)))

    # Before the routes that Dash has for these paths.
    server.router.routes[:0] = [Route("/", page, methods=["GET"]), scripts.route(), styles.route()]
    capture_logger(app.logger.name, error_log)
    return app


def _create_server(pages: Mapping[str, Page]) -> FastAPI:
    """Create the FastAPI app, without pages, redirects and telemetry of its own, with our answers to errors."""

    async def handle_error(request: Request, error: Exception) -> Response:
        if isinstance(error, BadNumber):
            return error_response(request, 400, "Not a number", f"{error} must be a number of seconds, such as 600.")
        if isinstance(error, (BadParameter, RequestValidationError)):
            text = describe(request, error) if isinstance(error, RequestValidationError) else str(error)
            return error_response(request, 400, "Bad parameter", f"{text}.")
        if isinstance(error, HTTPException) and error.status_code == 404:
            return no_such_page(request, pages)
        status = error.status_code if isinstance(error, HTTPException) else 404
        # Dash raises DependencyException for an unknown file of a library.
        return error_response(request, status, "Not found", "There is no such file.")

    return FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        # Else the environment could name a server to send it to. Earlier versions of FastAPI ignore the argument.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers=dict.fromkeys(
            (BadNumber, BadParameter, RequestValidationError, HTTPException, DependencyException), handle_error
        ),
    )
