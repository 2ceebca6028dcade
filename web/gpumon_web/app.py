"""The Dash app: the page skeleton, its routes, and the checks before and after every request.

The layout is an empty skeleton that our scripts fill. There are no Dash callbacks, so Dash accepts no input from
browsers: every answer is a static file, the skeleton, or comes from `routes` or `api`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from dash import Dash, html
from dash.exceptions import DependencyException
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule

from gpumon_web.api.route import ApiData
from gpumon_web.api.serving import add_api
from gpumon_web.assets_bundle import ScriptBundle, placeholder_markup
from gpumon_web.auth.gate import OPEN, Gate, peer_of
from gpumon_web.auth.http_errors import (
    KEEPS_PLACE,
    NO_TOKEN,
    SIGN_OUT,
    TOO_MANY,
    WRONG_TOKEN,
    BadNumber,
    Rejection,
    error_response,
    no_such_page,
    rejection_response,
)
from gpumon_web.auth.rate_limit import GUESSES, Buckets
from gpumon_web.components.layout import aria, data
from gpumon_web.components.page import Page
from gpumon_web.http.error_log import ErrorLog, capture_logger
from gpumon_web.http.headers import Compressor, add_headers, hash_of, policy
from gpumon_web.http.prefix import CHANNEL, JOB, PLACEHOLDER, base_of, put_prefix
from gpumon_web.live.values import PageFeed, PageViews
from gpumon_web.pages import PAGES
from gpumon_web.routes.metrics import METRICS, add_metrics
from gpumon_web.routes.pages import Sources, add_page_routes, add_routes
from gpumon_web.routes.responses import Sender
from gpumon_web.routes.ticks import RepeatedTicks

ASSETS = Path(__file__).parent / "assets"
_META = [
    {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    {"name": "color-scheme", "content": "light dark"},
    {"name": "referrer", "content": "no-referrer"},
]
_PAGES = ("/", "/_dash-layout", "/_dash-dependencies", "/_favicon.ico", "/healthz")
_FILES = ("/assets/", "/_dash-component-suites/", "/api/", METRICS)


_UNUSED = re.compile(r'<script src="[^"]*/(?:dash/dcc/|dash/dash_table/|dash/deps/polyfill@)[^"]*"></script>\n?')
"""Scripts that Dash adds to every page and ours does not need: 160 kB of 400 kB to transfer and parse."""


class SlimDash(Dash):
    """Dash without the scripts of unused components, and with our own scripts bundled into one."""

    bundle: ScriptBundle | None = None
    placeholder: str = ""
    """Markup shown until the scripts have built the page."""

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
    """Create the app for one machine; its WSGI application is `.server`."""
    views = PageFeed(sources.feed, sources.colors)

    def add(server: Flask, error_log: ErrorLog) -> None:
        add_routes(server, sources, views, error_log)
        add_metrics(server, sources.feed)
        add_api(server, ApiData(sources.feed, sources.runs, sources.figures), Sender(error_log), gate.cookie)

    return _create_app(PAGES, views, add, gate, now, buckets)


def make_cluster_app(
    views: PageViews, pages: Mapping[str, Page], gate: Gate, now: Callable[[], float] = time.time,
    buckets: Buckets | None = None,
) -> Dash:  # fmt: skip
    """Create the app for a whole cluster, whose pages only have values that are sent with a tick."""

    def add(server: Flask, error_log: ErrorLog) -> None:
        del error_log
        add_page_routes(server, views, pages)

    return _create_app(pages, views, add, gate, now, buckets)


def _create_app(
    pages: Mapping[str, Page], views: PageViews, add: Callable[[Flask, ErrorLog], None], gate: Gate,
    now: Callable[[], float], buckets: Buckets | None,
) -> Dash:  # fmt: skip
    app = SlimDash(
        __name__,
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
    app.bundle.add_to(app.server)
    error_log = ErrorLog()
    capture_logger(app.server.logger.name, error_log)
    add(app.server, error_log)
    buckets = buckets or Buckets()
    repeats = RepeatedTicks(app.server.wsgi_app, views, gate, buckets)
    _guard(
        server=app.server,
        gate=gate,
        csp=policy([*app.csp_hashes(), hash_of(KEEPS_PLACE)]),
        now=now,
        buckets=buckets,
        error_log=error_log,
        repeats=repeats,
        pages=pages,
    )
    app.server.wsgi_app = repeats  # the way Flask documents to add middleware
    return app


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


def _is_known(rule: Rule | None) -> bool:
    """Whether a path has its own route, not only Dash's catch-all rule."""
    return rule is not None and rule.rule != "/<path:path>"


def _guard(
    server: Flask, gate: Gate, csp: str, now: Callable[[], float], buckets: Buckets, error_log: ErrorLog,
    repeats: RepeatedTicks, pages: Collection[str],
) -> None:  # fmt: skip
    """Register the checks before, and the changes after, every request, and the error handler."""
    compress = Compressor()

    def check_request() -> Response | None:
        timestamp = now()
        rejection = gate.rejection(request, timestamp)
        if request.environ.get(JOB) is None:  # else it was already counted when its job started
            response = answer_sign_in(rejection, timestamp)
            if response is not None:
                return response
        if rejection is not None:
            return rejection_response(request, rejection)
        channel = request.environ.get(CHANNEL)
        if channel is not None and not channel.is_proven:
            channel.is_proven = request.path != OPEN and gate.is_known(request, timestamp)
        # Dash would answer any path with its page, on which relative addresses would then be wrong.
        if request.path not in _PAGES and not (request.path.startswith(_FILES) and _is_known(request.url_rule)):
            return no_such_page(request, base_of(request), pages)
        return None

    def answer_sign_in(rejection: Rejection | None, timestamp: float) -> Response | None:
        """Return the answer to a token in a link or a form, or to a client over its rate limit; else None."""
        forms = request.method == "POST" and rejection is None
        if forms and request.path == SIGN_OUT:
            return gate.sign_out(request, timestamp)
        answer = None
        if forms:
            answer = gate.sign_in(request, timestamp)
        elif rejection in (None, NO_TOKEN) and "token" in request.args:
            answer = gate.exchange(request, timestamp)
        if answer is None:
            # A valid token is never rate-limited, else a client that guesses tokens could lock out the others.
            source = "form" if forms else gate.wrong_token_source(request) if rejection is NO_TOKEN else ""
            if source:
                peer = peer_of(request)
                is_allowed = buckets.allows(f"guess {peer}", time.monotonic(), GUESSES)
                gate.failed_logins.log(
                    peer=peer, source=source, path=request.path, status=401 if is_allowed else 429, now=timestamp
                )
                if not is_allowed:
                    return rejection_response(request, TOO_MANY, is_stranger=rejection is NO_TOKEN)
            elif rejection is None:
                gate.record_program(request, timestamp)
            visitor, times = gate.visitor(request, timestamp)
            if not buckets.allows(visitor, time.monotonic(), times):
                return rejection_response(request, TOO_MANY, is_stranger=rejection is NO_TOKEN)
        return rejection_response(request, WRONG_TOKEN) if forms and answer is None else answer

    def finish_response(answer: Response) -> Response:
        if answer.mimetype == "text/html" and answer.status_code == 200:
            answer.set_data(put_prefix(answer.get_data(as_text=True), base_of(request)))
        timestamp = now()
        gate.renew(request, answer, timestamp)
        add_headers(compress(request, answer), csp)
        repeats.store(request, answer, timestamp)
        return answer

    def handle_error(error: Exception) -> Response:
        if isinstance(error, BadNumber):
            return error_response(request, 400, "Not a number", f"{error} must be a number of seconds, such as 600.")
        if isinstance(error, HTTPException):
            return error_response(request, error.code or 500, error.name, "No details are available.")
        if isinstance(error, DependencyException):  # raised by Dash for an unknown file of a library
            return error_response(request, 404, "Not found", "There is no such file.")
        kind = type(error).__name__
        error_log.log(kind, f"gpumon web: {request.path[:80]!r}: {kind}: {error}")
        return error_response(
            request, 500, "Something went wrong", "The terminal in which gpumon web runs has the details."
        )

    server.before_request(check_request)
    server.after_request(finish_response)
    server.register_error_handler(Exception, handle_error)
