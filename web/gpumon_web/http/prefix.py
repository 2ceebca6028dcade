"""The keys that our server adds to the WSGI environment of a request."""

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
"""The path of what each page asks once a second."""
JOB = "gpumon.job"
"""The answer that the request waited for, or None; without it the server cannot run a request again (`answers`)."""
CHANNEL = "gpumon.channel"
"""The `Channel` that the request came by."""
HEAD = "gpumon.head"
"""Its header lines as they came, without the request line."""
PEER = "gpumon.peer"
"""Peer of the connection, as `peers` knows it."""


PLACEHOLDER = "/__gpumon_prefix__/"
NAMED_BY = ("X-Forwarded-Prefix", "X-Forwarded-Context", "X-ProxyContextPath")
"""nginx and Traefik by custom; jupyter-server-proxy sends the other two."""
_PATH = re.compile(r"(/[A-Za-z0-9._~@%+-]{1,128}){1,16}/?")


def prefix_of(headers: Headers) -> str:
    """The prefix of this request, with a slash at both ends; `/` where none, or none that is a path, is named."""
    for name in NAMED_BY:
        given = headers.get(name, "")
        if _is_path(given):
            return given.rstrip("/") + "/"
    return "/"


def parse_prefix(given: str) -> str:
    """Return a prefix that a user names, without the slash at its end. Raises UsageError."""
    if not _is_path(given):
        raise UsageError(f"--prefix: not a path: '{given}'. Give one such as /gpus")
    return given.rstrip("/")


def _is_path(given: str) -> bool:
    return _PATH.fullmatch(given) is not None and ".." not in given


def put_below(app: Dash, prefix: str) -> None:
    """Serve below `prefix` where no header names another one, whether or not the proxy strips it."""
    inner: WSGIApplication = app.server.wsgi_app
    names = [f"HTTP_{name.upper().replace('-', '_')}" for name in NAMED_BY]

    def below(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not any(environ.get(name) for name in names):
            environ[names[0]] = prefix
        if environ["PATH_INFO"].startswith(f"{prefix}/"):
            environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(prefix)
        return inner(environ, start)

    app.server.wsgi_app = below  # Flask's own way to put something in front


def base_of(request: Request) -> str:
    """What addresses of ours begin with in an answer: the prefix that is named, else the way up from what was asked.

    A proxy may put a path in front of ours without naming it.
    """
    prefix = prefix_of(request.headers)
    return prefix if prefix != "/" else "./" + "../" * (request.path.count("/") - 1)


def put_prefix(page: str, prefix: str) -> str:
    """`page` with the placeholder replaced, also where it stands escaped in a script's JSON."""
    for slash in ("/", "\\u002f", "\\/"):
        page = page.replace(PLACEHOLDER.replace("/", slash), prefix.replace("/", slash))
    return page
