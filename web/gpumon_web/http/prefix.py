"""The path prefix of a reverse proxy, and the keys that our server adds to the WSGI environment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Request
from werkzeug.datastructures import Headers

from gpumon.common.errors import UsageError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from dash import Dash


TICK = "/api/delta"
"""Path that each page requests once a second."""
JOB = "gpumon.job"
"""Finished job that the request waited for, or None. Without this key the server cannot rerun requests (`jobs`)."""
CHANNEL = "gpumon.channel"
"""The `Channel` of the request."""
HEAD = "gpumon.head"
"""The raw header lines, without the request line."""
PEER = "gpumon.peer"
"""Client of the connection, from `rate_limit.peer_of`."""


PLACEHOLDER = "/__gpumon_prefix__/"
NAMED_BY = ("X-Forwarded-Prefix", "X-Forwarded-Context", "X-ProxyContextPath")
"""Headers that name the prefix: nginx and Traefik usually send the first, jupyter-server-proxy the others."""
_PATH = re.compile(r"(/[A-Za-z0-9._~@%+-]{1,128}){1,16}/?")


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


def put_below(app: Dash, prefix: str) -> None:
    """Serve below `prefix` unless a header names another one, whether or not the proxy strips it."""
    inner: WSGIApplication = app.server.wsgi_app
    names = [f"HTTP_{name.upper().replace('-', '_')}" for name in NAMED_BY]

    def below(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not any(environ.get(name) for name in names):
            environ[names[0]] = prefix
        if environ["PATH_INFO"].startswith(f"{prefix}/"):
            environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(prefix)
        return inner(environ, start)

    app.server.wsgi_app = below  # the way Flask documents to add middleware


def base_of(request: Request) -> str:
    """Return the base of our addresses in an answer: the prefix, else a relative path up to the root.

    Relative, because a proxy may add a path without naming it in a header.
    """
    prefix = prefix_of(request.headers)
    return prefix if prefix != "/" else "./" + "../" * (request.path.count("/") - 1)


def put_prefix(page: str, prefix: str) -> str:
    """Replace the placeholder in `page`, including its escaped forms in the JSON of scripts."""
    for slash in ("/", "\\u002f", "\\/"):
        page = page.replace(PLACEHOLDER.replace("/", slash), prefix.replace("/", slash))
    return page
