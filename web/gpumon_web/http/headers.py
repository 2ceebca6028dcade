"""Response headers: caching, the content security policy and other security headers; and cached static files."""

from __future__ import annotations

import gzip
from asyncio import Future
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_STATIC = ("/assets/", "/_dash-component-suites/")
_FOREVER = "private, max-age=31536000, immutable"
"""Cache-Control of files whose address contains their version or time. Private, as they require the token."""
_FOR_AN_HOUR = "private, max-age=3600"
MIN_COMPRESSED_BYTES, LEVEL = 1024, 6
"""Size from which answers are compressed, and the level of gzip."""
_MAX_CACHED = 128
"""Number of static files kept in memory; a page has about 20."""


class StaticFileCache:
    """ASGI middleware that keeps static files in memory as they were first sent, compressed.

    Compressing Dash's scripts for each visitor would take 0.1 s of a core. Requests come in only through the gate.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._files: OrderedDict[tuple[str, bytes, bool], list[Message]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_STATIC):
            await self._app(scope, receive, send)
            return
        is_compressed = "gzip" in Headers(scope=scope).get("Accept-Encoding", "").lower()
        key = (scope["path"], scope["query_string"], is_compressed)
        if key not in self._files:
            # Whoever asks first gets a whole file: no header such as Range, and no end if the client leaves.
            messages: list[Message] = []

            async def collect(message: Message) -> None:
                messages.append(message)

            await self._app({**scope, "headers": []}, _receive_nothing, collect)
            start = messages[0]
            if start["status"] != 200:
                for message in messages:
                    await send(message)
                return
            _set_caching(start, scope)
            body = b"".join(message.get("body", b"") for message in messages[1:])
            headers = MutableHeaders(raw=start["headers"])
            if is_compressed and len(body) >= MIN_COMPRESSED_BYTES:
                # In a thread: plotly.js alone would keep all others waiting for 0.2 s.
                body = await run_in_threadpool(gzip.compress, body, LEVEL)
                headers["Content-Encoding"] = "gzip"
            headers["Vary"] = "Accept-Encoding"
            headers["Content-Length"] = str(len(body))
            self._files[key] = [start, {"type": "http.response.body", "body": body}]
            if len(self._files) > _MAX_CACHED:
                self._files.popitem(last=False)
        start, body_message = self._files[key]
        await send({**start, "headers": list(start["headers"])})
        await send(body_message)


async def _receive_nothing() -> Message:
    return await Future()


def _set_caching(start: Message, scope: Scope) -> None:
    headers = MutableHeaders(raw=start["headers"])
    is_versioned = scope["query_string"].startswith(b"m=") or ".v" in scope["path"]
    headers["Cache-Control"] = _FOREVER if is_versioned else _FOR_AN_HOUR
    for name in ("ETag", "Last-Modified", "Accept-Ranges"):
        del headers[name]


_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def hash_of(script: str) -> str:
    """Return the CSP source expression that allows an inline script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(script_hashes: Iterable[str]) -> str:
    """Return the content security policy; `script_hashes` allow the inline scripts, each as `'sha256-…'`."""
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(("script-src 'self'", *script_hashes)),
            "style-src 'self'",
            "style-src-elem 'self' 'unsafe-inline'",
            "style-src-attr 'none'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


class SecurityHeaders:
    """The headers that every answer gets."""

    def __init__(self, csp: str) -> None:
        fixed = {**_FIXED, "Content-Security-Policy": csp}
        self._fixed = [(name.lower().encode(), value.encode()) for name, value in fixed.items()]

    def add_to(self, start: Message) -> None:
        """Add the headers to a response. HTML, JSON and answers without Cache-Control get `no-store`."""
        headers = MutableHeaders(raw=start["headers"])
        media_type = headers.get("Content-Type", "").partition(";")[0]
        if "Cache-Control" not in headers or media_type in ("text/html", "application/json"):
            headers["Cache-Control"] = "no-store"
        start["headers"] = [*headers.raw, *self._fixed]
