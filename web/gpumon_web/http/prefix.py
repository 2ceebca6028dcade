"""The path prefix of a reverse proxy: reading it from a request, serving below it, and putting it into the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import Request

from gpumon.common.errors import UsageError

if TYPE_CHECKING:
    from dash import Dash
    from starlette.types import ASGIApp, Receive, Scope, Send


PLACEHOLDER = "/__gpumon_prefix__/"
NAMED_BY = ("X-Forwarded-Prefix", "X-Forwarded-Context", "X-ProxyContextPath")
"""Headers that name the prefix: nginx and Traefik usually send the first, jupyter-server-proxy the others."""
_PATH = re.compile(r"(/[A-Za-z0-9._~@%+-]{1,128}){1,16}/?")


def path_of(request: Request) -> str:
    """Return the decoded path of a request, without the prefix."""
    path: str = request.scope["path"]
    return path


def prefix_of(headers: Headers) -> str:
    """Return the prefix of a request, with a slash at both ends; `/` if no header has a valid one."""
    for name in NAMED_BY:
        prefix = headers.get(name, "")
        if _is_path(prefix):
            return prefix.rstrip("/") + "/"
    return "/"


def parse_prefix(value: str) -> str:
    """Validate the value of --prefix and return it without a trailing slash. Raises UsageError."""
    if not _is_path(value):
        raise UsageError(f"--prefix: not a path: '{value}'. Give one such as /gpus")
    return value.rstrip("/")


def _is_path(value: str) -> bool:
    return _PATH.fullmatch(value) is not None and ".." not in value


class _Below:
    """ASGI middleware that serves below a prefix unless a header names another, whether or not the proxy strips it."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not any(headers.get(name) for name in NAMED_BY):
            named = [(NAMED_BY[0].lower().encode(), self._prefix.encode()), *scope["headers"]]
            scope = {**scope, "headers": named}
        if scope["path"].startswith(f"{self._prefix}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self._prefix)}
        await self._app(scope, receive, send)


def put_below(app: Dash, prefix: str) -> None:
    """Serve the app below `prefix`, which has no trailing slash."""
    app.server.add_middleware(_Below, prefix=prefix)


def base_of(request: Request) -> str:
    """Return the base of our addresses in an answer: the prefix, else a relative path up to the root.

    Relative, because a proxy may add a path without naming it in a header.
    """
    prefix = prefix_of(request.headers)
    return prefix if prefix != "/" else "./" + "../" * (path_of(request).count("/") - 1)


def put_prefix(page: str, prefix: str) -> str:
    """Replace the placeholder in `page`, including its escaped forms in the JSON of scripts."""
    for slash in ("/", "\\u002f", "\\/"):
        page = page.replace(PLACEHOLDER.replace("/", slash), prefix.replace("/", slash))
    return page
