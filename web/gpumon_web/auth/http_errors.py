"""Error answers and the sign-in form: small HTML pages without assets, and JSON for API clients."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from gpumon.common.text import clean
from gpumon_web.http.prefix import base_of, path_of

API = "/api/"
"""Path prefix of routes for programs, which get errors as JSON."""
V1 = "/api/v1/"
"""Path prefix of routes whose errors are problem documents (RFC 9457)."""
_MAX_PATH_LENGTH = 80
_PAGE = Template((Path(__file__).parent / "error_page.html").read_text("utf-8"))
KEEPS_PLACE = "document.forms[0].action += location.hash"
"""Script that adds the URL fragment to the form's action: browsers do not send the fragment to the server."""
_FORM = """
<form method="post" action="{action}" autocomplete="off">
<label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="off" autofocus>
<button type="submit">Open</button>
</form>
<p class="note">Read only. The session ends after 12 hours without a request, or when you sign out. On the server,
<code>gpumon web token add NAME</code> prints a token.</p>
<script>{script}</script>"""


_LINK = """
<p><a href="{href}">{label}</a></p>"""


class BadNumber(ValueError):
    """A query argument is not a number, or is out of range. The message is the argument's name."""


class PageLink(NamedTuple):
    """Link to another page, shown on an error page."""

    href: str
    label: str


def no_such_page(request: Request, pages: Collection[str]) -> Response:
    """Return a 404 answer; if the path is the name of a page, it links to that page's `#` address."""
    path = clean(path_of(request), _MAX_PATH_LENGTH)
    name = path.strip("/").partition("/")[0]
    fragment = f"#/{quote(path.strip('/'))}" if name in pages else ""
    label = f"Open /{fragment}" if fragment else "Open gpumon"
    text = f"There is no page at {path}."
    return error_response(request, 404, "No such page", text, page_link=PageLink(base_of(request) + fragment, label))


def error_page(
    status: int, title: str, text: str, headers: Mapping[str, str] | None = None, *, sign_in: str = "",
    page_link: PageLink | None = None,
) -> Response:  # fmt: skip
    """Return a small HTML page that states an error and what to do; with `sign_in`, also a form posted there."""
    extra = _FORM.format(action=escape(sign_in), script=KEEPS_PLACE) if sign_in else ""
    if page_link:
        extra += _LINK.format(href=escape(page_link.href), label=escape(page_link.label))
    page = _PAGE.substitute(title=escape(title), text=escape(text), more=extra)
    return HTMLResponse(page, status, {"Cache-Control": "no-store", **(headers or {})})


def error_response(
    request: Request, status: int, title: str, text: str, headers: Mapping[str, str] | None = None, *,
    sign_in: str = "", page_link: PageLink | None = None,
) -> Response:  # fmt: skip
    """Return an error answer: JSON below `/api/`, else an HTML page."""
    if not path_of(request).startswith(API):
        return error_page(status, title, text, headers, sign_in=sign_in, page_link=page_link)
    all_headers = {"Cache-Control": "no-store", **(headers or {})}
    if path_of(request).startswith(V1):
        problem = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": text})
        return Response(problem, status, all_headers, "application/problem+json")
    body = json.dumps({"error": f"gpumon: {title}", "text": text})
    return Response(body, status, all_headers, "application/json")


SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
"""The only paths that accept POST."""


class Rejection(NamedTuple):
    """Reason for rejecting a request."""

    status: int
    title: str
    text: str


UNKNOWN_HOST = Rejection(
    421,
    "Unknown host name",
    "To allow the name in the address bar, start gpumon web with --allowed-host NAME.",
)
ONLY_READS = Rejection(405, "Read-only", "Nothing can be changed here.")
FOREIGN = Rejection(403, "Request from another site", "Open the page itself.")
NO_TOKEN = Rejection(
    401, "Token required", "Open the link that gpumon web printed when it started, or ask the person who started it."
)
TO_PROGRAMS = (
    "Send 'Authorization: Bearer TOKEN'. On the server, 'gpumon web token add NAME' prints a token, and "
    "'gpumon web token list' names those that are not revoked."
)
"""Text for programs that sent no valid token."""
WRONG_TOKEN = Rejection(401, "Wrong token", NO_TOKEN.text)
TOO_MANY = Rejection(429, "Too many requests", "Wait a moment, then load the page again.")


def rejection_response(request: Request, rejection: Rejection, *, is_stranger: bool = False) -> Response:
    """Return the error answer for a rejected request; `is_stranger`: the client needs a token and sent none."""
    headers = {}
    sign_in = ""
    if rejection.status == 405:
        headers["Allow"] = "GET, HEAD"
    elif rejection.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="gpumon"'
        sign_in = base_of(request) + SIGN_IN.lstrip("/")
        if path_of(request).startswith(V1):
            rejection = rejection._replace(text=TO_PROGRAMS)
    elif rejection.status == 429:
        headers["Retry-After"] = "2"
        # Clients behind one address share a limit: one that exceeds it must not keep the others from signing in.
        if is_stranger:
            sign_in = base_of(request) + SIGN_IN.lstrip("/")
    return error_response(request, rejection.status, rejection.title, rejection.text, headers, sign_in=sign_in)
