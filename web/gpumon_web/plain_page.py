"""Pages without a script: what is shown when the real one cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape

from flask import Request, Response

API = "/api/"
"""Below it programs ask, and get errors that they can read."""
_PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpumon: {title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34em; margin: 15vh auto; padding: 0 1em }}
h1 {{ font-size: 1.3em }}
input, button {{ font: inherit; padding: .4em .6em; max-width: 100%; box-sizing: border-box }}
</style>
<h1>{title}</h1>
<p>{text}</p>{more}
</html>
"""
_FORM = """
<form method="post" action="{action}" autocomplete="off">
<p><label for="token">Token</label><br>
<input id="token" name="token" type="password" size="44" required autocomplete="off" autofocus>
<button type="submit">Open</button></p>
</form>"""


class BadNumber(ValueError):
    """An argument that should be a number and is none, or one that nobody means; its text is the argument's name."""


def plain(
    status: int, title: str, text: str, headers: Mapping[str, str] | None = None, *, sign_in: str = ""
) -> Response:
    """A small page that says what is wrong and what to do; with a form for the token that goes to `sign_in`."""
    more = _FORM.format(action=escape(sign_in)) if sign_in else ""
    page = _PAGE.format(title=escape(title), text=escape(text), more=more)
    return Response(page, status=status, mimetype="text/html", headers={"Cache-Control": "no-store", **(headers or {})})


def failure(
    request: Request, status: int, title: str, text: str, headers: Mapping[str, str] | None = None, *, sign_in: str = ""
) -> Response:
    """The same for whoever asks: a page, or JSON for what programs ask for."""
    if not request.path.startswith(API):
        return plain(status, title, text, headers, sign_in=sign_in)
    said = json.dumps({"error": f"gpumon: {title}", "text": text})
    given = {"Cache-Control": "no-store", **(headers or {})}
    return Response(said, status=status, mimetype="application/json", headers=given)
