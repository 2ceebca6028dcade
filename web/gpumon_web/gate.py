"""Access control: one check before every request, on every route.

On a shared server, loopback is not private: everyone who is logged in can connect to it, so it requires
a token, too. A browser sends it once, in the link that `gpumon web` prints or in the form of the page that
asks for it, and gets a cookie for it; a program sends it as `Authorization: Bearer`. The page only reads, so every
method but GET and HEAD is refused, save to sign in and out. Names in Host and Origin are checked against a list,
which stops rebinding.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from flask import Request, Response

from gpumon_web.environ import PEER
from gpumon_web.limits import PROGRAMS
from gpumon_web.peers import network_of
from gpumon_web.plain_page import failure
from gpumon_web.prefix import prefix_of
from gpumon_web.sessions import LASTS, Session, Sessions, new_id

__all__ = ["LASTS", "Gate"]

OPEN = "/healthz"
"""The one path that answers without a token."""
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
"""The two paths that take a POST."""
LOCAL = ("127.0.0.1", "localhost", "::1")
RENEWED = 3600
"""Seconds after which a cookie that is used is given anew."""
_FOREIGN = ("cross-site", "same-site")
_SESSION = "gpumon.session"
"""In a request's environment, where no client can write: its session, once it was looked for."""
_COOKIES = 4
"""Cookies of our name that are looked at: other programs of the host can set some, too."""


class Refused(NamedTuple):
    """Why a request is not answered."""

    status: int
    title: str
    text: str


UNKNOWN_HOST = Refused(
    421,
    "Unknown host name",
    "To allow the name in the address bar, start gpumon web with --allowed-host NAME.",
)
ONLY_READS = Refused(405, "Read-only", "Nothing can be changed here.")
FOREIGN = Refused(403, "Request from another site", "Open the page itself.")
NO_TOKEN = Refused(
    401, "Token required", "Open the link that gpumon web printed when it started, or ask the person who started it."
)
WRONG_TOKEN = Refused(401, "Wrong token", NO_TOKEN.text)
TOO_MANY = Refused(429, "Too many requests", "Wait a moment, then load the page again.")


class Gate:
    """The check. `token` None lets everybody in who names an allowed host."""

    def __init__(
        self, token: str | None, hosts: Iterable[str] = (), port: int = 0, sessions: Sessions | None = None
    ) -> None:
        self._key = token.encode() if token else None
        # Without a token a cookie opens nothing; it still tells one visitor from another.
        self._signs = self._key or secrets.token_bytes(32)
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*LOCAL, *hosts))
        # Cookies know no ports, and all of a person's tunnels are "localhost".
        self.cookie = f"gpumon-{port}"
        self._sessions = sessions or Sessions()

    @property
    def has_token(self) -> bool:
        """Whether a token is needed."""
        return self._key is not None

    @property
    def ended(self) -> int:
        """Number of ended sessions: permissions from before the last end must be checked again."""
        return self._sessions.ended

    def refuses(self, request: Request, now: float) -> Refused | None:
        """Why this request is not answered; None when it is."""
        if not self._is_ours(request.headers.get("Host", "")):
            return UNKNOWN_HOST
        if request.method == "POST" and request.path in (SIGN_IN, SIGN_OUT):
            return None if _is_own_form(request) else FOREIGN
        if request.method not in ("GET", "HEAD"):
            return ONLY_READS
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(_netloc(origin)):
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
        return self._key is None or self.is_known(request, now)

    def has_bearer(self, request: Request) -> bool:
        """Whether a program sends the token."""
        return self._is_token(_bearer(request))

    def guesses(self, request: Request) -> bool:
        """Whether a token was given that is not the one."""
        given = (request.args.get("token"), _bearer(request))
        return any(token is not None and not self._is_token(token) for token in given)

    def session(self, request: Request, now: float) -> Session | None:
        """The session whose cookie the request has; None for a cookie that we did not give, or whose time is over."""
        if _SESSION not in request.environ:
            given = map(self._session_of, request.cookies.getlist(self.cookie)[:_COOKIES])
            request.environ[_SESSION] = next(
                (one for one in given if one is not None and not self._sessions.is_over(one, now)), None
            )
        found: Session | None = request.environ[_SESSION]
        return found

    def exchange(self, request: Request, now: float) -> Response | None:
        """The answer to a link with the token in it: a cookie, and the same address without the token.

        None when there is no token in the address, or the wrong one.
        """
        if request.path == OPEN or not self._is_token(request.args.get("token")):
            return None
        rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
        # Relative, so that whatever prefix a proxy put in front of it stays; and never read as another site's.
        name = quote(request.path.rpartition("/")[2], safe="")
        answer = _led_to(f"./{name}" + (f"?{urlencode(rest)}" if rest else ""))
        self.give_cookie(request, answer, self._sessions.begin(peer_of(request), now), now)
        return answer

    def sign_in(self, request: Request, now: float) -> Response | None:
        """The answer to the form with the token; None when it is the wrong one."""
        if not self._is_token(_token_in(request)):
            return None
        answer = _led_to("./")
        self.give_cookie(request, answer, self._sessions.begin(peer_of(request), now), now)
        return answer

    def sign_out(self, request: Request, now: float) -> Response:
        """End the session of whoever asks, wherever else its cookie may be."""
        found = self.session(request, now)
        if found is not None:
            self._sessions.end(found, now)
        answer = _led_to("./")
        answer.delete_cookie(self.cookie, path=prefix_of(request.headers), httponly=True, samesite="Lax")
        return answer

    def renew(self, request: Request, answer: Response, now: float) -> None:
        """Give a cookie anew that is used; and to those who need no token one, to tell them apart."""
        found = self.session(request, now)
        if found is not None and now - found.seen > RENEWED:
            self.give_cookie(request, answer, found, now)
        elif found is None and self._key is None and request.path == "/" and answer.status_code == 200:
            self.give_cookie(request, answer, Session(new_id(), int(now), int(now)), now)

    def give_cookie(self, request: Request, answer: Response, session: Session, now: float) -> None:
        """Put the cookie of a session into an answer: for the path below which we are, and for no script."""
        said = f"{int(now)}.{session.begun:x}~{session.id}"
        secure = request.is_secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
        answer.set_cookie(
            self.cookie,
            f"{said}.{self._sign(said)}",
            max_age=LASTS,
            secure=secure,
            httponly=True,
            samesite="Lax",
            path=prefix_of(request.headers),
        )

    def is_known(self, request: Request, now: float) -> bool:
        """Whether the request shows who asks: with a cookie that we gave, or the token."""
        return self.session(request, now) is not None or self.has_bearer(request)

    def visitor(self, request: Request, now: float) -> tuple[bytes, float]:
        """Return the identity of a visitor, for limits: a cookie that we gave, else the address.

        With it goes how many times as much as usual he may ask.
        """
        found = self.session(request, now)
        if found is not None:
            return _short(f"session {found.id}"), 1.0
        if self.has_bearer(request):
            return _short(f"programs {peer_of(request)}"), PROGRAMS
        return _short(f"strangers {peer_of(request)}"), 1.0

    def _is_ours(self, netloc: str) -> bool:
        try:
            name = urlsplit(f"//{netloc}").hostname or ""
        except ValueError:
            return False
        return name.rstrip(".") in self._hosts

    def _is_token(self, given: str | None) -> bool:
        if self._key is None or given is None:
            return False
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._key)

    def _session_of(self, value: str) -> Session | None:
        said, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(said).encode()):
            return None
        seen, _, rest = said.partition(".")
        begun, _, name = rest.partition("~")
        try:
            return Session(name, int(begun, 16), int(seen))
        except ValueError:
            return None  # signed by us, but of another version

    def _sign(self, said: str) -> str:
        return hmac.digest(self._signs, said.encode("utf-8", "replace"), "sha256").hex()


def _short(told: str) -> bytes:
    return sha256(told.encode("utf-8", "replace")).digest()[:12]


def peer_of(request: Request) -> str:
    """Where a request comes from: a user of this machine or an address, without the port."""
    found = request.environ.get(PEER)
    return found if isinstance(found, str) else network_of(request.remote_addr or "")


def refusal(request: Request, refused: Refused) -> Response:
    """The answer that says why."""
    headers = {}
    sign_in = ""
    if refused.status == 405:
        headers["Allow"] = "GET, HEAD"
    elif refused.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="gpumon"'
        sign_in = prefix_of(request.headers) + SIGN_IN.lstrip("/")
    elif refused.status == 429:
        headers["Retry-After"] = "2"
    return failure(request, refused.status, refused.title, refused.text, headers, sign_in=sign_in)


def _bearer(request: Request) -> str | None:
    """The token that a program sends; None for another kind of password, which is a proxy's."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _netloc(origin: str) -> str:
    """The host and port of an origin; empty where there is none, which is no name of ours."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _is_own_form(request: Request) -> bool:
    """Whether a form of our own page was sent: another page of the same host, on another port, is another site.

    A browser that does not say where it was sent from names the origin, or none: our pages send no referrer.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin")
    return origin in (None, "null") or _netloc(origin).lower() == request.headers.get("Host", "").lower()


def _token_in(request: Request) -> str | None:
    if request.mimetype != "application/x-www-form-urlencoded":
        return None
    text = request.get_data(cache=False).decode("ascii", "replace")
    try:
        found = parse_qs(text, max_num_fields=4).get("token", [])
    except ValueError:
        return None
    return found[0].strip() if len(found) == 1 else None


def _led_to(place: str) -> Response:
    answer = Response(status=303, headers={"Location": place})
    answer.autocorrect_location_header = False
    return answer
