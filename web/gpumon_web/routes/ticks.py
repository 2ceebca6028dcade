"""The tick that a page requests once a second, answered without repeating the access checks.

A page sends the same headers each time, on one connection. The first request passes through everything: access control,
rate limits, Flask routes. A later one with byte-identical headers within `GOOD_FOR` seconds gets the same permission;
it still counts against the visitor's rate limit. All other requests, and all after any session has ended, take the full
path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Request, Response

from gpumon_web.auth.gate import Gate
from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.feed import JsonBody
from gpumon_web.http.prefix import CHANNEL, HEAD, TICK
from gpumon_web.live.values import PageViews

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

PERMISSION_SECONDS = 5.0
"""Seconds for which a permission is valid."""
MIN_PACKED_BYTES = 1024
"""Size in bytes from which answers are sent compressed."""
_QUERY = re.compile(
    r"page=(\w{1,20})&boot=([0-9a-f.]{0,32})&since=(\d{1,15})((?:&\w{1,20}=[\w.-]{0,100})*)",
    re.ASCII,
)
"""The page, the viewer's newest frame, and arguments that need no URL decoding."""


class Permission(NamedTuple):
    """Permission granted to the last fully checked request of a connection."""

    head: bytes
    """The header lines of that request."""
    until: float
    """When it expires; s of CLOCK_MONOTONIC."""
    ended: int
    """`Gate.ended` at that time."""
    visitor: bytes
    times: float
    takes_gzip: bool
    headers: tuple[tuple[str, str], ...]
    """Headers of its answer, except those about the content."""


class RepeatedTicks:
    """WSGI middleware that answers repeated ticks."""

    def __init__(self, application: WSGIApplication, views: PageViews, gate: Gate, buckets: Buckets) -> None:
        self._application = application
        self._views = views
        self._gate = gate
        self._buckets = buckets

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        permission = self._permission(environ)
        arguments = self._parse(environ["QUERY_STRING"]) if permission is not None else None
        if (
            permission is None
            or arguments is None
            or not self._buckets.allows(permission.visitor, monotonic(), permission.times)
        ):
            return self._application(environ, start_response)
        answer = self._views.answer(*arguments)
        is_packed, body = choose_body(answer, permission.takes_gzip)
        headers = [*permission.headers, ("Content-Length", str(len(body)))]
        if is_packed:
            headers += PACKED.items()
        start_response("200 OK", headers)
        return (body,)

    def _parse(self, query: str) -> tuple[str, dict[str, str], str, int] | None:
        """Parse the query into the arguments of `PageViews.answer`; None for a query that no page sends."""
        match = _QUERY.fullmatch(query)
        if match is None:
            return None
        page, boot, since, rest = match.groups()
        arguments = dict(part.split("=") for part in rest.split("&")[1:])
        return (page, arguments, boot, int(since)) if self._views.accepts(page, arguments) else None

    def store(self, request: Request, answer: Response, now: float) -> None:
        """Store the permission of a fully checked request; `now`: s since 1970."""
        channel = request.environ.get(CHANNEL)
        if channel is None or request.path != TICK or answer.status_code != 200 or "Set-Cookie" in answer.headers:
            return
        visitor, times = self._gate.visitor(request, now)
        headers = tuple((name, value) for name, value in answer.headers if name not in _CONTENT_HEADERS)
        channel.allowed = Permission(
            head=request.environ[HEAD],
            until=monotonic() + PERMISSION_SECONDS,
            ended=self._gate.ended,
            visitor=visitor,
            times=times,
            takes_gzip=takes_gzip(request),
            headers=headers,
        )

    def _permission(self, environ: dict[str, Any]) -> Permission | None:
        channel = environ.get(CHANNEL)
        permission: Permission | None = channel.allowed if channel is not None else None
        if (
            permission is None
            or environ["PATH_INFO"] != TICK
            or environ["REQUEST_METHOD"] != "GET"
            or environ[HEAD] != permission.head
            or monotonic() > permission.until
            or self._gate.ended != permission.ended
        ):
            return None
        return permission


PACKED = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
_CONTENT_HEADERS = ("Content-Length", *PACKED)


def choose_body(answer: JsonBody, is_gzip_accepted: bool) -> tuple[bool, bytes]:
    """Return whether to send the compressed body, and the body to send."""
    is_packed = is_gzip_accepted and len(answer.plain) >= MIN_PACKED_BYTES
    return is_packed, answer.packed if is_packed else answer.plain


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts gzip."""
    return "gzip" in request.headers.get("Accept-Encoding", "").lower()
