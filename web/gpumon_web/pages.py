"""Pages without a script: what is shown when the real one cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from flask import Response

_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpumon: {title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34em; margin: 15vh auto; padding: 0 1em }}
h1 {{ font-size: 1.3em }}
</style>
<h1>{title}</h1>
<p>{text}</p>
</html>
"""


def plain(status: int, title: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A small page that says what is wrong and what to do."""
    page = _PAGE.format(title=escape(title), text=escape(text))
    return Response(page, status=status, mimetype="text/html", headers={"Cache-Control": "no-store", **(headers or {})})
