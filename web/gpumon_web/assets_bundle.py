"""The initial HTML shown until the scripts have built the page, and the bundle of our scripts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpumon_web.components.page import Page

_CARD = '<div class="card"><i></i></div>'

_NO_SCRIPT = (
    '<noscript><p class="problem">This page needs JavaScript, which is off in this browser. '
    "'gpumon status' and 'gpumon top' show the same in a terminal.</p></noscript>"
)


def placeholder_markup(pages: Mapping[str, Page]) -> str:
    """Return placeholder markup without ids, scripts or requests, which the first script removes.

    Its tabs are working links: they set the address that the scripts open later.
    """
    tabs = "".join(
        f'<a href="#/{escape(page.name)}">{escape(page.title)}</a>' for page in pages.values() if page.is_tab
    )
    return (
        '<div class="first" aria-busy="true"><header class="top">'
        f'<a class="brand" href="#/{escape(next(iter(pages)))}"><span class="logo"></span><span>gpumon</span></a>'
        f'<nav class="tabs" aria-label="Pages">{tabs}</nav><span class="live">connecting</span></header>'
        f"<main>{_NO_SCRIPT}<i></i>{_CARD}{_CARD}</main></div>"
    )


SCRIPT = "scripts.js"
"""File name of the bundle among the assets."""
_TAG = re.compile(r'<script src="([^"]*/?assets/)\d\d-[^"]*\.js[^"]*"></script>\n?')


class ScriptBundle:
    """Our scripts as one file, in the order of their names."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._body = b"\n".join(path.read_bytes() for path in sorted(files))
        self._version = hashlib.sha256(self._body).hexdigest()[:12]

    @classmethod
    def from_folder(cls, assets: Path) -> ScriptBundle:
        """Bundle the scripts in a folder whose names begin with two digits."""
        return cls(assets.glob("[0-9][0-9]-*.js"))

    def tags(self, html: str) -> str:
        """Replace the tags of our scripts in `html` by one. It is the first, to request values while others load."""
        first = _TAG.search(html)
        if first is None:
            return html
        tag = f'<script src="{first[1]}{SCRIPT}?m={self._version}"></script>\n'
        return tag + _TAG.sub("", html)

    def route(self) -> Route:
        """Return the route of the bundle."""
        return Route(f"/assets/{SCRIPT}", self._answer, methods=["GET"])

    async def _answer(self, request: Request) -> Response:
        del request
        return Response(self._body, media_type="text/javascript")
