"""The checks before every request, whatever its route, and the headers of every answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from starlette.requests import Request

from gpumon_web.auth.gate import OPEN, Credentials, Gate, is_callback, is_form, peer_of
from gpumon_web.auth.http_errors import (
    NO_TOKEN,
    SIGN_OUT,
    TOO_MANY,
    WRONG_TOKEN,
    Rejection,
    no_such_page,
    rejection_response,
)
from gpumon_web.auth.rate_limit import GUESSES, Buckets
from gpumon_web.http.headers import SecurityHeaders
from gpumon_web.http.prefix import path_of

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONNECTION = "gpumon.connection"
"""Key in the ASGI scope for the `Connection` of the request."""


class Guard:
    """ASGI middleware around all routes. `known` are the paths, or with a slash at the end the folders, of the app."""

    def __init__(
        self, app: ASGIApp, *, gate: Gate, headers: SecurityHeaders, buckets: Buckets, known: Collection[str],
        pages: Collection[str], now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._app = app
        self._gate = gate
        self._headers = headers
        self._buckets = buckets
        self._paths = frozenset(path for path in known if path == "/" or not path.endswith("/"))
        self._folders = tuple(path for path in known if path != "/" and path.endswith("/"))
        self._pages = pages
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the server has neither websockets nor lifespan events
            return
        request = Request(scope, receive)
        timestamp = self._now()
        credentials = await self._gate.credentials(request, timestamp)
        answer = await self._check(request, credentials, timestamp)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if answer is None:
                    cookie = self._gate.renewed_cookie(request, credentials, message["status"], timestamp)
                    if cookie is not None:
                        message["headers"] = [*message["headers"], (b"set-cookie", cookie.encode())]
                self._headers.add_to(message)
            await send(message)

        if answer is not None:
            await answer(scope, receive, send_with_headers)
            return
        connection = scope.get(CONNECTION)
        if connection is not None and credentials.are_valid and path_of(request) != OPEN:
            connection.is_proven = True
        # The server leaves out the body of an answer to HEAD; Dash's routes only know GET.
        method = "POST" if is_callback(request) else "GET"
        await self._app({**scope, "method": method}, receive, send_with_headers)

    async def _check(self, request: Request, credentials: Credentials, timestamp: float) -> Response | None:
        """Return the answer if the request must not reach a route, or is about signing in or out; else None."""
        rejection = self._gate.rejection(request)
        if rejection is None and not is_form(request) and not self._gate.is_admitted(request, credentials):
            rejection = NO_TOKEN
        answer = await self._answer_sign_in(request, credentials, rejection, timestamp)
        if answer is not None:
            return answer
        if rejection is not None:
            return rejection_response(request, rejection)
        path = path_of(request)
        # Dash has more routes than the pages use.
        if not is_callback(request) and path not in self._paths and not path.startswith(self._folders):
            return no_such_page(request, self._pages)
        return None

    async def _answer_sign_in(
        self, request: Request, credentials: Credentials, rejection: Rejection | None, timestamp: float
    ) -> Response | None:
        """Return the answer to a token in a link or a form, or to a client over its rate limit; else None."""
        gate = self._gate
        forms = rejection is None and is_form(request)
        if forms and path_of(request) == SIGN_OUT:
            return gate.sign_out(request, credentials, timestamp)
        answer = None
        if forms:
            answer = await gate.sign_in(request, timestamp)
        elif rejection in (None, NO_TOKEN):
            answer = gate.exchange(request, credentials, timestamp)
        if answer is not None:
            return answer
        # A valid token is never rate-limited, else a client that guesses tokens could lock out the others.
        is_stranger = rejection is NO_TOKEN
        source = "form" if forms else _wrong_token_source(credentials) if is_stranger else ""
        if source:
            peer = peer_of(request)
            is_allowed = self._buckets.allows(f"guess {peer}", time.monotonic(), GUESSES)
            status = 401 if is_allowed else 429
            gate.failed_logins.log(peer=peer, source=source, path=path_of(request), status=status, now=timestamp)
            if not is_allowed:
                return rejection_response(request, TOO_MANY, is_stranger=is_stranger)
        elif rejection is None:
            gate.record_program(request, credentials, timestamp)
        visitor, times = gate.visitor(request, credentials)
        if not self._buckets.allows(visitor, time.monotonic(), times):
            return rejection_response(request, TOO_MANY, is_stranger=is_stranger)
        return rejection_response(request, WRONG_TOKEN) if forms else None


def _wrong_token_source(credentials: Credentials) -> str:
    """Return how a wrong token was sent, `link` or `header`; empty if none was."""
    if credentials.link_token is not None and credentials.link is None:
        return "link"
    return "header" if credentials.is_bearer_wrong else ""
