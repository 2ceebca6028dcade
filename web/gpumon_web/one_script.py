"""Scripts of the pages as one file: a browser that was nowhere yet asks once for what would be some thirty requests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from flask import Flask, Response

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
