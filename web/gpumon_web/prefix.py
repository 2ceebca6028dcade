"""Serving below any path without being told which: /user/ada/proxy/8050/ as well as /.

Dash writes absolute paths into its page. It is built with a placeholder for the prefix, and each
page gets the one that the proxy names; our own scripts use relative addresses only.
"""

from __future__ import annotations

import re

from werkzeug.datastructures import Headers

PLACEHOLDER = "/__gpumon_prefix__/"
NAMED_BY = ("X-Forwarded-Prefix", "X-Forwarded-Context", "X-ProxyContextPath")
"""nginx and Traefik by custom; jupyter-server-proxy sends the other two."""
_PATH = re.compile(r"(/[A-Za-z0-9._~@%+-]{1,128}){1,16}/?")


def prefix_of(headers: Headers) -> str:
    """The prefix of this request, with a slash at both ends; `/` where none, or none that is a path, is named."""
    for name in NAMED_BY:
        given = headers.get(name, "")
        if _PATH.fullmatch(given) and ".." not in given:
            return given.rstrip("/") + "/"
    return "/"


def put_prefix(page: str, prefix: str) -> str:
    """`page` with the placeholder replaced, also where it stands escaped in a script's JSON."""
    for slash in ("/", "\\u002f", "\\/"):
        page = page.replace(PLACEHOLDER.replace("/", slash), prefix.replace("/", slash))
    return page
