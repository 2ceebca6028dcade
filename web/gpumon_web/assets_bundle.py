"""Our scripts and style sheets, each as one file without comments and indentation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_SCRIPT_COMMENT = re.compile(r"(?:^|[ ])// .*$", re.MULTILINE)
"""A comment up to the end of a line. Strings in our scripts contain no such text, which a test checks."""
_STYLE_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def minify_script(text: str) -> str:
    """Return a script without comments, indentation and empty lines; it keeps the other line breaks."""
    return _trim(_SCRIPT_COMMENT.sub("", text))


def minify_style(text: str) -> str:
    """Return a style sheet without comments, indentation and empty lines."""
    return _trim(_STYLE_COMMENT.sub("", text))


def _trim(text: str) -> str:
    return "\n".join(line for line in map(str.strip, text.splitlines()) if line)


class Bundle:
    """A file made of several, whose address changes with its content."""

    def __init__(self, name: str, media_type: str, texts: Iterable[str]) -> None:
        self._body = "\n".join(texts).encode()
        self._name = name
        self._media_type = media_type
        self.address = f"assets/{name}?m={hashlib.sha256(self._body).hexdigest()[:12]}"
        """Address relative to the root of the app."""

    def route(self) -> Route:
        """Return the route of the bundle."""
        return Route(f"/assets/{self._name}", self._answer, methods=["GET"])

    async def _answer(self, request: Request) -> Response:
        del request
        return Response(self._body, media_type=self._media_type)


def bundle_scripts(folder: Path) -> Bundle:
    """Bundle the scripts in a folder whose names begin with two digits, in the order of their names."""
    texts = (minify_script(path.read_text("utf-8")) for path in sorted(folder.glob("[0-9][0-9]-*.js")))
    return Bundle("scripts.js", "text/javascript", texts)


def bundle_styles(folder: Path) -> Bundle:
    """Bundle the style sheets in a folder, in the order of their names."""
    texts = (minify_style(path.read_text("utf-8")) for path in sorted(folder.glob("*.css")))
    return Bundle("styles.css", "text/css", texts)
