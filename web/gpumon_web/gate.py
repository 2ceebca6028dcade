"""Who may ask, and for what: one check before every request, whatever route it is for.

On a shared server loopback is not private: everybody who is logged in can connect to it. So there is
a token even there. A browser brings it once, in the link that `gpumon web` prints, and gets a cookie
for it; a program sends it as `Authorization: Bearer`. The page only reads, so every method but GET
and HEAD is refused. Names in Host and Origin are checked against a list, which stops rebinding.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from flask import Request, Response

from gpumon_web.pages import plain

OPEN = "/healthz"
"""The one path that answers without a token."""
LOCAL = ("127.0.0.1", "localhost", "::1")
LASTS = 30 * 86400
"""Seconds that a cookie is good for."""
SHORTEST = 16
"""Characters of a token that somebody chose."""
_FOREIGN = ("cross-site", "same-site")


class Refused(NamedTuple):
    """Why a request is not answered."""

    status: int
    title: str
    text: str


UNKNOWN_HOST = Refused(
    421,
    "Not a name of this server",
    "Start gpumon web with --allowed-host NAME for the name that is in the address bar.",
)
ONLY_READS = Refused(405, "Only for reading", "Nothing can be changed here.")
FOREIGN = Refused(403, "Asked by another site", "Open the page itself.")
NO_TOKEN = Refused(
    401, "A token is needed", "Open the link that gpumon web printed when it started, or ask the person who started it."
)


class Gate:
    """The check. `token` None lets everybody in who names an allowed host."""

    def __init__(self, token: str | None, hosts: Iterable[str] = (), port: int = 0) -> None:
        self._key = token.encode() if token else None
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*LOCAL, *hosts))
        # Cookies know no ports, and all of a person's tunnels are "localhost".
        self.cookie = f"gpumon-{port}"

    def refuses(self, request: Request, now: float) -> Refused | None:
        """Why this request is not answered; None when it is."""
        if not self._is_ours(request.headers.get("Host", "")):
            return UNKNOWN_HOST
        if request.method not in ("GET", "HEAD"):
            return ONLY_READS
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(urlsplit(origin).netloc):
            return FOREIGN
        # A link in a mail may lead here; a script or a picture of another site may not.
        fetched = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
        if fetched and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
            return FOREIGN
        if self._key is None or request.path == OPEN or self.knows(request, now):
            return None
        return NO_TOKEN

    def knows(self, request: Request, now: float) -> bool:
        """Whether the request carries the token, or a cookie that was given for it."""
        if self._key is None:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip().encode("utf-8", "replace"), self._key):
            return True
        return self._is_cookie(request.cookies.get(self.cookie, ""), now)

    def exchange(self, request: Request, now: float) -> Response | None:
        """The answer to a link with the token in it: a cookie, and the same address without the token.

        None when there is no token in the address, or the wrong one.
        """
        given = request.args.get("token")
        if self._key is None or given is None or not _same(given.encode("utf-8", "replace"), self._key):
            return None
        rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
        # Relative: whatever prefix a proxy put in front of it stays.
        name = request.path.rpartition("/")[2]
        answer = Response(status=303, headers={"Location": (name or "./") + (f"?{urlencode(rest)}" if rest else "")})
        answer.autocorrect_location_header = False
        secure = request.is_secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
        answer.set_cookie(
            self.cookie, self._new_cookie(now), max_age=LASTS, secure=secure, httponly=True, samesite="Lax", path="/"
        )
        return answer

    def visitor(self, request: Request) -> str:
        """What tells one visitor from another, for limits: the cookie, else the connection."""
        return request.cookies.get(self.cookie, "") or f"{request.remote_addr} {request.environ.get('REMOTE_PORT', '')}"

    def _is_ours(self, netloc: str) -> bool:
        try:
            name = urlsplit(f"//{netloc}").hostname or ""
        except ValueError:
            return False
        return name.rstrip(".") in self._hosts

    def _new_cookie(self, now: float) -> str:
        said = f"{int(now)}.{secrets.token_urlsafe(9)}"
        return f"{said}.{self._sign(said)}"

    def _is_cookie(self, value: str, now: float) -> bool:
        said, _, signature = value.rpartition(".")
        given = said.partition(".")[0]
        if not (given.isascii() and given.isdigit() and len(given) < 12):
            return False
        return -60 <= now - int(given) <= LASTS and _same(
            signature.encode("utf-8", "replace"), self._sign(said).encode()
        )

    def _sign(self, said: str) -> str:
        assert self._key is not None
        return hmac.new(self._key, said.encode("utf-8", "replace"), sha256).hexdigest()


def _same(given: bytes, wanted: bytes) -> bool:
    return hmac.compare_digest(given, wanted)


def refusal(refused: Refused) -> Response:
    """The answer that says why."""
    headers = {"Allow": "GET, HEAD"} if refused.status == 405 else {}
    if refused.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="gpumon"'
    return plain(refused.status, refused.title, refused.text, headers)
