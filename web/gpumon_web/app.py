"""The Dash app on FastAPI: the page skeleton, its routes, and what stands before and behind them.

The layout is an empty skeleton that our scripts fill. There are no Dash callbacks, so Dash accepts no input from
browsers: every answer is a static file, the skeleton, or comes from `routes` or `api`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dash import Dash, html
from dash.exceptions import DependencyException
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gpumon_web.api.route import ApiData
from gpumon_web.api.serving import add_api
from gpumon_web.assets_bundle import ScriptBundle, placeholder_markup
from gpumon_web.auth.gate import Gate
from gpumon_web.auth.guard import Guard
from gpumon_web.auth.http_errors import KEEPS_PLACE, SIGN_OUT, BadNumber, error_response, no_such_page
from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.components.layout import aria, data
from gpumon_web.components.page import Page
from gpumon_web.http.error_log import ErrorLog, capture_logger
from gpumon_web.http.headers import SecurityHeaders, StaticFileCache, hash_of, policy
from gpumon_web.http.prefix import PLACEHOLDER, base_of, path_of, put_prefix
from gpumon_web.live.values import PageFeed, PageViews
from gpumon_web.pages import PAGES
from gpumon_web.routes.metrics import METRICS, add_metrics
from gpumon_web.routes.pages import Sources, add_page_routes, add_routes
from gpumon_web.routes.responses import Sender

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
_MIN_COMPRESSED_BYTES = 1024


_UNUSED = re.compile(r'<script src="[^"]*/(?:dash/dcc/|dash/dash_table/|dash/deps/polyfill@)[^"]*"></script>\n?')
"""Scripts that Dash adds to every page and ours does not need: 160 kB of 400 kB to transfer and parse."""


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
    """Dash without the scripts of unused components, and with our own scripts bundled into one."""

    bundle: ScriptBundle | None = None
    placeholder: str = ""
    """Markup shown until the scripts have built the page."""
    on_opened: Callable[[], object] = staticmethod(lambda: None)
    """Called when a browser requests the page."""

    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]
        """Return the HTML document; this is Dash's hook for customizing it."""
        parts["scripts"] = _UNUSED.sub("", parts["scripts"])
        if self.bundle is not None:
            parts["scripts"] = self.bundle.tags(parts["scripts"])
        parts["app_entry"] = self.placeholder + parts["app_entry"]
        return str(super().interpolate_index(**parts))  # type: ignore[no-untyped-call]


def make_app(
    sources: Sources, gate: Gate, now: Callable[[], float] = time.time, buckets: Buckets | None = None
) -> Dash:
    """Create the app for one machine; its ASGI application is `.server`."""
    views = PageFeed(sources.feed, sources.colors)
    app = _create_app(PAGES, gate, now, buckets)
    error_log: ErrorLog = app.server.state.error_log
    add_routes(app.server, sources, views, error_log)
    add_metrics(app.server, sources.feed)
    add_api(app.server, ApiData(sources.feed, sources.runs, sources.figures), Sender(error_log), gate.cookie)
    # Start the process that reads runs while the browser loads the page, as both take about as long.
    app.on_opened = sources.runs.start_reading
    return app


def make_cluster_app(
    views: PageViews, pages: Mapping[str, Page], gate: Gate, now: Callable[[], float] = time.time,
    buckets: Buckets | None = None,
) -> Dash:  # fmt: skip
    """Create the app for a whole cluster, whose pages only have values that are sent with a tick."""
    app = _create_app(pages, gate, now, buckets)
    add_page_routes(app.server, views, pages)
    return app


def _create_app(
    pages: Mapping[str, Page], gate: Gate, now: Callable[[], float], buckets: Buckets | None
) -> SlimDash:  # fmt: skip
    app = SlimDash(
        __name__,
        server=False,  # until `init_app`
        backend="fastapi",
        title="gpumon",
        update_title="",
        meta_tags=_META,
        suppress_callback_exceptions=True,  # else Dash writes a copy of the layout into the page
        health_endpoint="healthz",
        enable_mcp=False,
        use_pages=False,  # else Dash looks for a pages folder in the working directory
        routes_pathname_prefix="/",
        requests_pathname_prefix=PLACEHOLDER,
    )
    index = app.index_string.replace("<html>", '<html lang="en">')
    app.index_string = index.replace("footer>", "div>")  # a footer with only scripts would be a second landmark
    app.layout = skeleton(pages, signs_out=gate.has_token)
    app.placeholder = placeholder_markup(pages)
    app.bundle = ScriptBundle.from_folder(ASSETS)
    app.backend.websocket_capability = False  # else Dash adds a route for websockets
    server, error_log = _create_server(pages), ErrorLog()
    server.state.error_log = error_log
    # Each middleware stands around those before it.
    server.add_middleware(_ErrorAnswers, error_log=error_log)
    app.init_app(server)
    server.add_middleware(GZipMiddleware, minimum_size=_MIN_COMPRESSED_BYTES, compresslevel=6)
    server.add_middleware(StaticFileCache)
    server.add_middleware(
        Guard,
        gate=gate,
        headers=SecurityHeaders(policy([*app.csp_hashes(), hash_of(KEEPS_PLACE)])),
        buckets=buckets or Buckets(),
        known=_KNOWN,
        pages=pages,
        now=now,
    )

    async def page(request: Request) -> Response:
        app.on_opened()
        return HTMLResponse(put_prefix(app.index(), base_of(request)))  # type: ignore[no-untyped-call]

    # Before the routes that Dash has for these paths.
    server.router.routes[:0] = [Route("/", page, methods=["GET"]), app.bundle.route()]
    capture_logger(app.logger.name, error_log)
    return app


def _create_server(pages: Mapping[str, Page]) -> FastAPI:
    """Create the FastAPI app, without pages, redirects and telemetry of its own, with our answers to errors."""

    async def handle_error(request: Request, error: Exception) -> Response:
        if isinstance(error, BadNumber):
            return error_response(request, 400, "Not a number", f"{error} must be a number of seconds, such as 600.")
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
        exception_handlers=dict.fromkeys((BadNumber, HTTPException, DependencyException), handle_error),
    )


def skeleton(pages: Mapping[str, Page], *, signs_out: bool) -> html.Div:
    """Return the layout common to all pages: the empty elements that the scripts fill."""
    return html.Div(
        id="app",
        children=[
            html.A("Skip to content", href="#main", id="skip", className="skip"),
            html.Header(
                className="top",
                children=[
                    html.A(
                        className="brand",
                        href=f"#/{next(iter(pages))}",
                        children=[html.Span(className="logo", **aria(hidden="true")), html.Span("gpumon")],
                    ),
                    html.Span(id="hostname", className="host", hidden=True),
                    html.Nav(
                        className="tabs",
                        **aria(label="Pages"),
                        children=[
                            html.A(page.title, href=f"#/{page.name}", id=f"tab-{page.name}", **data(tab=page.name))
                            for page in pages.values()
                            if page.is_tab
                        ],
                    ),
                    html.Span(id="label", className="label", hidden=True),
                    # Without data, the visible text changes every second, the hidden one only with the state.
                    html.Span("connecting", id="live", className="live", **aria(hidden="true")),
                    html.Span(id="said", className="sr", role="status"),
                    html.Button(
                        [html.I(className="bell", **aria(hidden="true")), html.Span("Notify", className="word")],
                        id="notify",
                        className="icon",
                        type="button",
                        **aria(pressed="false", label="Notify"),
                    ),
                    html.Button(id="theme", className="icon", type="button", title="Light or dark"),
                ],
            ),
            html.Div(id="player", className="player", role="region", hidden=True, **aria(label="Playback")),
            html.P(id="problem", className="problem", hidden=True, role="alert"),
            html.P(id="notice", className="notice", hidden=True, role="status"),
            html.P(id="notified", className="notice", hidden=True, role="status"),
            html.Main(
                id="main",
                tabIndex="-1",
                children=[section(page) for page in pages.values()],
            ),
            *([_sign_out()] if signs_out else []),
        ],
    )


def section(page: Page) -> html.Section:
    """Return the empty section of a page; its data attributes tell the scripts about the page."""
    attributes = data(
        page=page.name, title=page.title, tab_of=page.tab or page.name, args=" ".join(page.args),
        kept_args=" ".join((*page.args, *page.kept_args)), kept="1" if page.kept else "",
        needs_id="1" if page.needs_id else "", without_gpus=page.without_gpus, subject=" ".join(page.subject),
    )  # fmt: skip
    # With an id and without `disable_n_clicks`, Dash would count each click inside.
    return html.Section(id=f"page-{page.name}", className="page", hidden=True, disable_n_clicks=True, **attributes)


def _sign_out() -> html.Footer:
    """Return the sign-out button: a plain form, because a script could be tricked into sending it."""
    button = html.Button("Sign out", type="submit", className="button")
    return html.Footer(html.Form(button, action=SIGN_OUT.lstrip("/"), method="post"), className="foot")
