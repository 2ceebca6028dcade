"""Response headers: gzip compression, caching, the content security policy and other security headers.

Static files are compressed once and cached, because Dash's scripts take 0.1 s of a core. Live data is compressed by its
own route, once for all viewers.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock

from flask import Request, Response

_TYPES = frozenset(
    ("text/javascript", "application/javascript", "text/css", "text/html", "application/json", "text/csv")
)
_MIN_BYTES = 1024
_STATIC = ("/assets/", "/_dash-component-suites/")
_FOREVER = "private, max-age=31536000, immutable"
"""Cache-Control of files whose address contains their version or time. Private, as they require the token."""
_MAX_CACHED = 128


class Compressor:
    """Compresses responses for browsers that accept it. Thread-safe."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, str], bytes] = {}
        self._lock = Lock()

    def __call__(self, request: Request, answer: Response) -> Response:
        """Return `answer`, compressed if it is large enough, with Cache-Control set for static files."""
        static = request.path.startswith(_STATIC)
        if static and answer.status_code == 200:
            answer.headers["Cache-Control"] = _FOREVER if _is_versioned(request) else "private, max-age=3600"
        if (
            answer.status_code != 200
            or "Content-Encoding" in answer.headers
            or (answer.mimetype or "") not in _TYPES
            or "gzip" not in request.headers.get("Accept-Encoding", "").lower()
        ):
            return answer
        answer.direct_passthrough = False
        body = answer.get_data()
        if len(body) < _MIN_BYTES:
            return answer
        answer.set_data(self._compress_static(request.path, body) if static else gzip.compress(body, 3))
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers["Vary"] = "Accept-Encoding"
        answer.headers.pop("ETag", None)  # it identifies the uncompressed file
        return answer

    def _compress_static(self, path: str, body: bytes) -> bytes:
        key = (path, f"{len(body)}.{hash(body)}")
        with self._lock:
            compressed = self._cache.get(key)
        if compressed is None:
            compressed = gzip.compress(body, 9, mtime=0)
            with self._lock:
                if len(self._cache) >= _MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = compressed
        return compressed


def _is_versioned(request: Request) -> bool:
    return "m" in request.args or ".v" in request.path


_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def hash_of(script: str) -> str:
    """Return the CSP source expression that allows an inline script."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(script_hashes: Iterable[str]) -> str:
    """Return the content security policy; `script_hashes` allow the inline scripts, each as `'sha256-…'`."""
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
    """Add the security headers. HTML, JSON and answers without Cache-Control get `no-store`."""
    for name, value in _FIXED.items():
        answer.headers[name] = value
    answer.headers["Content-Security-Policy"] = csp
    answer.headers.pop("Server", None)
    if "Cache-Control" not in answer.headers or answer.mimetype in ("text/html", "application/json"):
        answer.headers["Cache-Control"] = "no-store"
    return answer
