"""The headers of every answer: what a browser may do with the page, and what it must not.

No script but our own files, the few inline ones that Dash writes itself and that of the form to sign in, known by their
hashes; no `unsafe-eval`. Dash inserts `<style>` elements, so these are allowed; style attributes in
markup are not.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256

from flask import Response

_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def hash_of(script: str) -> str:
    """The hash by which a policy knows an inline script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(script_hashes: Iterable[str]) -> str:
    """The content security policy; `script_hashes` are those of the inline scripts, as `'sha256-…'`."""
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(("script-src 'self'", *script_hashes)),
            "style-src 'self'",
            "style-src-elem 'self' 'unsafe-inline'",
            "style-src-attr 'none'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def add_headers(answer: Response, csp: str) -> Response:
    """`answer` with all of them; what is not a file of a fixed name is never stored."""
    for name, value in _FIXED.items():
        answer.headers[name] = value
    answer.headers["Content-Security-Policy"] = csp
    answer.headers.pop("Server", None)
    if "Cache-Control" not in answer.headers or answer.mimetype in ("text/html", "application/json"):
        answer.headers["Cache-Control"] = "no-store"
    return answer
