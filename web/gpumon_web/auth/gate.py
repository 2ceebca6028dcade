"""Access control of every request: host name and origin, tokens, sessions and their cookies."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from flask import Request, Response

from gpumon.common.net import LOCAL, host_of
from gpumon_web.auth.api_tokens import NamedToken, NamedTokens
from gpumon_web.auth.failed_login_log import RefusedTries
from gpumon_web.auth.http_errors import FOREIGN, NO_TOKEN, ONLY_READS, SIGN_IN, SIGN_OUT, UNKNOWN_HOST, V1, Refused
from gpumon_web.auth.rate_limit import PROGRAMS, network_of
from gpumon_web.auth.session_file import LASTS, Session, Sessions, new_id, tag_of
from gpumon_web.http.prefix import PEER, prefix_of


def peer_of(request: Request) -> str:
    """Return the client of a request: a local user (unix socket) or an address without the port."""
    found = request.environ.get(PEER)
    return found if isinstance(found, str) else network_of(request.remote_addr or "")


def bearer_of(request: Request) -> str | None:
    """Return the bearer token in the Authorization header; None for other schemes, which are for a proxy."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def netloc_of(origin: str) -> str:
    """Return the host and port of an origin; empty if it has none, which matches no allowed host."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def is_own_form(request: Request) -> bool:
    """Whether a form was posted from our own page. A page of the same host on another port is another site.

    Without Sec-Fetch-Site, the Origin decides; it may be missing or "null", because our pages send no referrer.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin")
    return origin in (None, "null") or netloc_of(origin).lower() == request.headers.get("Host", "").lower()


def token_in(request: Request) -> str | None:
    """Return the token in a form; None if it has none or several."""
    if request.mimetype != "application/x-www-form-urlencoded":
        return None
    text = request.get_data(cache=False).decode("ascii", "replace")
    try:
        found = parse_qs(text, max_num_fields=4).get("token", [])
    except ValueError:
        return None
    return found[0].strip() if len(found) == 1 else None


__all__ = ["LASTS", "Gate"]

OPEN = "/healthz"
"""The only path that is answered without a token."""
RENEWED = 3600
"""Age in seconds after which the cookie of an active session is renewed."""
_FOREIGN = ("cross-site", "same-site")
_SESSION = "gpumon.session"
"""Key in the WSGI environment, which clients cannot set: the session of the request, cached."""
_BEARER = "gpumon.bearer"
"""Key in the WSGI environment: the result of checking the bearer token, cached."""
_COOKIES = 4
"""Cookies of our name that are checked: other programs on the host can set some too."""


class ShownToken(NamedTuple):
    """A valid token."""

    named: NamedToken | None
    """None for the token that `gpumon web` prints."""


class Gate:
    """Decides whether a request is answered. With `token` None, an allowed host name is all that is required."""

    def __init__(
        self, token: str | None, hosts: Iterable[str] = (), port: int = 0, sessions: Sessions | None = None,
        named: NamedTokens | None = None,
    ) -> None:  # fmt: skip
        self._key = token.encode() if token else None
        # Without a token, the cookie grants nothing; it only distinguishes visitors.
        self._signs = self._key or secrets.token_bytes(32)
        self._hosts = frozenset(host.lower().rstrip(".") for host in (*LOCAL, *hosts))
        # Cookies are not separated by port, and all SSH tunnels of a user end at "localhost".
        self.cookie = f"gpumon-{port}"
        self._sessions = sessions or Sessions()
        self._named = named or NamedTokens()
        self.refused = RefusedTries()
        """The log of wrong tokens."""

    @property
    def has_token(self) -> bool:
        """Whether a token is needed."""
        return self._key is not None

    @property
    def ended(self) -> int:
        """Number of ended sessions and token changes. Permissions granted before the last one must be checked again."""
        return self._sessions.ended + self._named.changes

    def refuses(self, request: Request, now: float) -> Refused | None:
        """Return why a request must be rejected; None if it may be answered."""
        if not self._is_ours(request.headers.get("Host", "")):
            return UNKNOWN_HOST
        if request.method == "POST" and request.path in (SIGN_IN, SIGN_OUT):
            return None if is_own_form(request) else FOREIGN
        if request.method not in ("GET", "HEAD"):
            return ONLY_READS
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_ours(netloc_of(origin)):
            return FOREIGN
        # Links from elsewhere, such as a mail, are allowed; scripts and images of other sites are not.
        fetched = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
        if fetched and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
            return FOREIGN
        if self._key is None or request.path == OPEN or self.knows(request, now):
            return None
        return NO_TOKEN

    def knows(self, request: Request, now: float) -> bool:
        """Whether the request has a valid token or session, or no token is needed."""
        return self._key is None or self.is_known(request, now)

    def hasbearer_of(self, request: Request) -> bool:
        """Whether the request has a valid bearer token."""
        if _BEARER not in request.environ:
            request.environ[_BEARER] = self._shown(bearer_of(request))
        found: ShownToken | None = request.environ[_BEARER]
        return found is not None

    def guesses(self, request: Request) -> str:
        """Return how a wrong token was sent, `link` or `header`; empty if none was."""
        given = request.args.get("token")
        if given is not None and self._shown(given) is None:
            return "link"
        return "header" if bearer_of(request) is not None and not self.hasbearer_of(request) else ""

    def note_program(self, request: Request, now: float) -> None:
        """Record the use of a named token sent as a bearer token."""
        if self.hasbearer_of(request):
            self._note(request.environ[_BEARER], request, now)

    def session(self, request: Request, now: float) -> Session | None:
        """Return the session of the request's cookie; None if the signature is wrong or the session is over."""
        if _SESSION not in request.environ:
            given = map(self._session_of, request.cookies.getlist(self.cookie)[:_COOKIES])
            request.environ[_SESSION] = next(
                (one for one in given if one is not None and not self._is_over(one, now)), None
            )
        found: Session | None = request.environ[_SESSION]
        return found

    def exchange(self, request: Request, now: float) -> Response | None:
        """Begin a session for a link with a token, and redirect to the same address without the token.

        Returns None if the address has no token or a wrong one.
        """
        # Programs must send the token in a header, because addresses end up in logs.
        in_program = request.path == OPEN or request.path.startswith(V1)
        shown = None if in_program else self._shown(request.args.get("token"))
        if shown is None:
            return None
        rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
        # Relative, which keeps a proxy's prefix and can never lead to another site.
        name = quote(request.path.rpartition("/")[2], safe="")
        answer = _led_to(f"./{name}" + (f"?{urlencode(rest)}" if rest else ""))
        self._enter(request, answer, shown, now)
        return answer

    def sign_in(self, request: Request, now: float) -> Response | None:
        """Begin a session for the sign-in form; None if its token is wrong."""
        shown = self._shown(token_in(request))
        if shown is None:
            return None
        answer = _led_to("./")
        self._enter(request, answer, shown, now)
        return answer

    def sign_out(self, request: Request, now: float) -> Response:
        """End the session of the request, also for copies of its cookie elsewhere."""
        found = self.session(request, now)
        if found is not None:
            self._sessions.end(found, now)
        answer = _led_to("./")
        answer.delete_cookie(self.cookie, path=prefix_of(request.headers), httponly=True, samesite="Lax")
        return answer

    def renew(self, request: Request, answer: Response, now: float) -> None:
        """Renew the cookie of an active session. Without a token, set one on the first page to distinguish visitors."""
        found = self.session(request, now)
        if found is not None and now - found.seen > RENEWED:
            self.give_cookie(request, answer, found, now)
        elif found is None and self._key is None and request.path == "/" and answer.status_code == 200:
            self.give_cookie(request, answer, Session(new_id(), int(now), int(now)), now)

    def give_cookie(self, request: Request, answer: Response, session: Session, now: float) -> None:
        """Set the cookie of a session, limited to our path prefix and hidden from scripts."""
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
        """Whether the request has a valid session or bearer token."""
        return self.session(request, now) is not None or self.hasbearer_of(request)

    def visitor(self, request: Request, now: float) -> tuple[bytes, float]:
        """Return the key of a visitor for rate limits, and the factor of the usual limit.

        The key is the session, else the token and address, else the address alone.
        """
        found = self.session(request, now)
        if found is not None:
            return _short(f"session {found.id}"), 1.0
        if self.hasbearer_of(request):
            shown: ShownToken = request.environ[_BEARER]
            return _short(f"programs {shown.named.tag if shown.named else ''} {peer_of(request)}"), PROGRAMS
        return _short(f"strangers {peer_of(request)}"), 1.0

    def _is_ours(self, netloc: str) -> bool:
        return host_of(netloc) in self._hosts

    def _shown(self, given: str | None) -> ShownToken | None:
        """Return the valid token; None for a wrong one."""
        if self._key is None or given is None:
            return None
        is_first = hmac.compare_digest(given.encode("utf-8", "replace"), self._key)
        if is_first:
            return ShownToken(None)
        named = self._named.find(given)
        return ShownToken(named) if named is not None else None

    def _enter(self, request: Request, answer: Response, shown: ShownToken, now: float) -> None:
        """Begin a session for a browser that sent a valid token."""
        self._note(shown, request, now)
        tag = shown.named.tag if shown.named else ""
        self.give_cookie(request, answer, self._sessions.begin(peer_of(request), now, tag), now)

    def _note(self, shown: ShownToken, request: Request, now: float) -> None:
        if shown.named is not None:
            self._named.note_use(shown.named, peer_of(request), now)

    def _is_over(self, session: Session, now: float) -> bool:
        """Whether a session is over, or the token that began it was revoked."""
        if self._sessions.is_over(session, now):
            return True
        tag = tag_of(session.id)
        return bool(tag) and not self._named.is_there(tag)

    def _session_of(self, value: str) -> Session | None:
        said, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(said).encode()):
            return None
        seen, _, rest = said.partition(".")
        begun, _, name = rest.partition("~")
        try:
            return Session(name, int(begun, 16), int(seen))
        except ValueError:
            return None  # signed by us, but by another version

    def _sign(self, said: str) -> str:
        return hmac.digest(self._signs, said.encode("utf-8", "replace"), "sha256").hex()


def _short(told: str) -> bytes:
    return sha256(told.encode("utf-8", "replace")).digest()[:12]


def _led_to(place: str) -> Response:
    answer = Response(status=303, headers={"Location": place})
    answer.autocorrect_location_header = False
    return answer
