"""The tick that a page asks for once a second, answered without asking again who asks.

A page sends the same headers each time, on one connection. The first request goes the whole way: gate, limits,
routes. One that follows soon, and whose headers are the same bytes, is allowed what the first one was; it still
counts against the visitor's limit. Anything else goes the whole way, as does everybody once a session was ended.
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

GOOD_FOR = 5.0
"""Seconds for which who asks need not be asked again."""
WORTH = 1024
"""Bytes from which on an answer is sent compressed."""
_QUERY = re.compile(
    r"page=(\w{1,20})&boot=([0-9a-f.]{0,32})&since=(\d{1,15})((?:&\w{1,20}=[\w.-]{0,100})*)",
    re.ASCII,
)
"""The page, the newest of what the viewer has, and arguments that need no decoding."""


class Allowed(NamedTuple):
    """The permission of the last whole request of a connection."""

    head: bytes
    """Its header lines."""
    until: float
    """Seconds, CLOCK_MONOTONIC."""
    ended: int
    """Sessions that had been ended by then."""
    visitor: bytes
    times: float
    takes_gzip: bool
    headers: tuple[tuple[str, str], ...]
    """Of the answer, without those of its content."""


class Repeats:
    """A WSGI application in front of another one."""

    def __init__(self, application: WSGIApplication, views: PageViews, gate: Gate, buckets: Buckets) -> None:
        self._application = application
        self._views = views
        self._gate = gate
        self._buckets = buckets

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        allowed = self._allowed(environ)
        asked = self._asked(environ["QUERY_STRING"]) if allowed is not None else None
        if allowed is None or asked is None or not self._buckets.takes(allowed.visitor, monotonic(), allowed.times):
            return self._application(environ, start_response)
        answer = self._views.answer(*asked)
        is_packed, body = choose(answer, allowed.takes_gzip)
        headers = [*allowed.headers, ("Content-Length", str(len(body)))]
        if is_packed:
            headers += PACKED.items()
        start_response("200 OK", headers)
        return (body,)

    def _asked(self, query: str) -> tuple[str, dict[str, str], str, int] | None:
        """The arguments of `PageFeed.answer`; None for a question that no page asks."""
        found = _QUERY.fullmatch(query)
        if found is None:
            return None
        page, boot, since, rest = found.groups()
        given = dict(part.split("=") for part in rest.split("&")[1:])
        return (page, given, boot, int(since)) if self._views.takes(page, given) else None

    def note(self, request: Request, answer: Response, now: float) -> None:
        """Remember what a whole request was allowed; `now` is seconds since 1970."""
        channel = request.environ.get(CHANNEL)
        if channel is None or request.path != TICK or answer.status_code != 200 or "Set-Cookie" in answer.headers:
            return
        visitor, times = self._gate.visitor(request, now)
        headers = tuple((name, value) for name, value in answer.headers if name not in _OF_CONTENT)
        channel.allowed = Allowed(
            head=request.environ[HEAD],
            until=monotonic() + GOOD_FOR,
            ended=self._gate.ended,
            visitor=visitor,
            times=times,
            takes_gzip=takes_gzip(request),
            headers=headers,
        )

    def _allowed(self, environ: dict[str, Any]) -> Allowed | None:
        channel = environ.get(CHANNEL)
        allowed: Allowed | None = channel.allowed if channel is not None else None
        if (
            allowed is None
            or environ["PATH_INFO"] != TICK
            or environ["REQUEST_METHOD"] != "GET"
            or environ[HEAD] != allowed.head
            or monotonic() > allowed.until
            or self._gate.ended != allowed.ended
        ):
            return None
        return allowed


PACKED = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
_OF_CONTENT = ("Content-Length", *PACKED)


def choose(answer: JsonBody, takes_gzip: bool) -> tuple[bool, bytes]:
    """Whether an answer goes out compressed, and its bytes."""
    is_packed = takes_gzip and len(answer.plain) >= WORTH
    return is_packed, answer.packed if is_packed else answer.plain


def takes_gzip(request: Request) -> bool:
    """Whether who asks can read compressed answers."""
    return "gzip" in request.headers.get("Accept-Encoding", "").lower()
