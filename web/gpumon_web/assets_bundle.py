"""The first sight of every page, in the document itself until the scripts have put the page up: its head, and veils."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from flask import Flask, Response

from gpumon_web.components.page import Page

_CARD = '<div class="card"><i></i></div>'

_NO_SCRIPT = (
    '<noscript><p class="problem">This page needs JavaScript, which is off in this browser. '
    "'gpumon status' and 'gpumon top' show the same in a terminal.</p></noscript>"
)


def first_bytes(pages: Mapping[str, Page]) -> str:
    """Return markup without ids, scripts or requests of its own, which the first script of the page takes away.

    The tabs are links already: the address that they set is the one that the scripts open.
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
"""Its name among the assets."""
_TAG = re.compile(r'<script src="([^"]*/?assets/)\d\d-[^"]*\.js[^"]*"></script>\n?')


class OneScript:
    """Our scripts in the order of their names, and the document that asks for them."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._whole = b"\n".join(path.read_bytes() for path in sorted(files))
        self._version = hashlib.sha256(self._whole).hexdigest()[:12]

    @classmethod
    def of(cls, assets: Path) -> OneScript:
        """Those of a folder whose names begin with their place."""
        return cls(assets.glob("[0-9][0-9]-*.js"))

    def tags(self, html: str) -> str:
        """`html` with one tag in place of theirs, before all others: it asks for values while these are read."""
        first = _TAG.search(html)
        if first is None:
            return html
        tag = f'<script src="{first[1]}{SCRIPT}?m={self._version}"></script>\n'
        return tag + _TAG.sub("", html)

    def add_to(self, server: Flask) -> None:
        """Serve it."""
        server.add_url_rule(f"/assets/{SCRIPT}", "one_script", self._answer, methods=["GET"])

    def _answer(self) -> Response:
        return Response(self._whole, mimetype="text/javascript")
