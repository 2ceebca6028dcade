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
from gpumon_web.auth.failed_login_log import FailedLoginLog
from gpumon_web.auth.http_errors import FOREIGN, NO_TOKEN, ONLY_READS, SIGN_IN, SIGN_OUT, UNKNOWN_HOST, V1, Rejection
from gpumon_web.auth.rate_limit import PROGRAMS, network_of
from gpumon_web.auth.session_file import LASTS, Session, Sessions, new_id, tag_of
from gpumon_web.http.prefix import PEER, prefix_of


def peer_of(request: Request) -> str:
    """Return the client of a request: a local user (unix socket) or an address without the port."""
    peer = request.environ.get(PEER)
    return peer if isinstance(peer, str) else network_of(request.remote_addr or "")


def bearer_of(request: Request) -> str | None:
    """Return the bearer token in the Authorization header; None for other schemes, which are for a proxy."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


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


def form_token(request: Request) -> str | None:
    """Return the token in a form; None if it has none or several."""
    if request.mimetype != "application/x-www-form-urlencoded":
        return None
    text = request.get_data(cache=False).decode("ascii", "replace")
    try:
        tokens = parse_qs(text, max_num_fields=4).get("token", [])
    except ValueError:
        return None
    return tokens[0].strip() if len(tokens) == 1 else None


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


class ValidToken(NamedTuple):
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
        self.failed_logins = FailedLoginLog()
        """The log of wrong tokens."""

    @property
    def has_token(self) -> bool:
        """Whether a token is needed."""
        return self._key is not None

    @property
    def ended(self) -> int:
        """Number of ended sessions and token changes. Permissions granted before the last one must be checked again."""
        return self._sessions.ended + self._named.changes

    def rejection(self, request: Request, now: float) -> Rejection | None:
        """Return why a request must be rejected; None if it may be answered."""
        if not self._is_allowed_host(request.headers.get("Host", "")):
            return UNKNOWN_HOST
        if request.method == "POST" and request.path in (SIGN_IN, SIGN_OUT):
            return None if is_own_form(request) else FOREIGN
        if request.method not in ("GET", "HEAD"):
            return ONLY_READS
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_allowed_host(netloc_of(origin)):
            return FOREIGN
        # Links from elsewhere, such as a mail, are allowed; scripts and images of other sites are not.
        fetched = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
        if fetched and request.headers.get("Sec-Fetch-Site") in _FOREIGN:
            return FOREIGN
        if self._key is None or request.path == OPEN or self.is_admitted(request, now):
            return None
        return NO_TOKEN

    def is_admitted(self, request: Request, now: float) -> bool:
        """Whether the request has a valid token or session, or no token is needed."""
        return self._key is None or self.is_known(request, now)

    def has_bearer(self, request: Request) -> bool:
        """Whether the request has a valid bearer token."""
        if _BEARER not in request.environ:
            request.environ[_BEARER] = self._validate(bearer_of(request))
        valid_token: ValidToken | None = request.environ[_BEARER]
        return valid_token is not None

    def wrong_token_source(self, request: Request) -> str:
        """Return how a wrong token was sent, `link` or `header`; empty if none was."""
        token = request.args.get("token")
        if token is not None and self._validate(token) is None:
            return "link"
        return "header" if bearer_of(request) is not None and not self.has_bearer(request) else ""

    def record_program(self, request: Request, now: float) -> None:
        """Record the use of a named token that was sent as a bearer token."""
        if self.has_bearer(request):
            self._record_use(request.environ[_BEARER], request, now)

    def session(self, request: Request, now: float) -> Session | None:
        """Return the session of the request's cookie; None if the signature is wrong or the session is over."""
        if _SESSION not in request.environ:
            sessions = map(self._session_of, request.cookies.getlist(self.cookie)[:_COOKIES])
            request.environ[_SESSION] = next(
                (session for session in sessions if session is not None and not self._is_over(session, now)), None
            )
        session: Session | None = request.environ[_SESSION]
        return session

    def exchange(self, request: Request, now: float) -> Response | None:
        """Begin a session for a link with a token, and redirect to the same address without the token.

        Returns None if the address has no token or a wrong one.
        """
        # Programs must send the token in a header, because addresses end up in logs.
        in_program = request.path == OPEN or request.path.startswith(V1)
        valid_token = None if in_program else self._validate(request.args.get("token"))
        if valid_token is None:
            return None
        arguments = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
        # Relative, which keeps a proxy's prefix and can never lead to another site.
        name = quote(request.path.rpartition("/")[2], safe="")
        answer = _redirect(f"./{name}" + (f"?{urlencode(arguments)}" if arguments else ""))
        self._begin_session(request, answer, valid_token, now)
        return answer

    def sign_in(self, request: Request, now: float) -> Response | None:
        """Begin a session for the sign-in form; None if its token is wrong."""
        valid_token = self._validate(form_token(request))
        if valid_token is None:
            return None
        answer = _redirect("./")
        self._begin_session(request, answer, valid_token, now)
        return answer

    def sign_out(self, request: Request, now: float) -> Response:
        """End the session of the request, also for copies of its cookie elsewhere."""
        session = self.session(request, now)
        if session is not None:
            self._sessions.end(session, now)
        answer = _redirect("./")
        answer.delete_cookie(self.cookie, path=prefix_of(request.headers), httponly=True, samesite="Lax")
        return answer

    def renew(self, request: Request, answer: Response, now: float) -> None:
        """Renew the cookie of an active session. Without a token, set one on the first page to distinguish visitors."""
        session = self.session(request, now)
        if session is not None and now - session.seen > RENEWED:
            self.set_session_cookie(request, answer, session, now)
        elif session is None and self._key is None and request.path == "/" and answer.status_code == 200:
            self.set_session_cookie(request, answer, Session(new_id(), int(now), int(now)), now)

    def set_session_cookie(self, request: Request, answer: Response, session: Session, now: float) -> None:
        """Set the cookie of a session, restricted to our path prefix and hidden from scripts."""
        payload = f"{int(now)}.{session.begun:x}~{session.id}"
        secure = request.is_secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
        answer.set_cookie(
            self.cookie,
            f"{payload}.{self._sign(payload)}",
            max_age=LASTS,
            secure=secure,
            httponly=True,
            samesite="Lax",
            path=prefix_of(request.headers),
        )

    def is_known(self, request: Request, now: float) -> bool:
        """Whether the request has a valid session or bearer token."""
        return self.session(request, now) is not None or self.has_bearer(request)

    def visitor(self, request: Request, now: float) -> tuple[bytes, float]:
        """Return the key of a visitor for rate limits, and the factor of the usual limit.

        The key is the session, else the token and address, else the address alone.
        """
        session = self.session(request, now)
        if session is not None:
            return _visitor_key(f"session {session.id}"), 1.0
        if self.has_bearer(request):
            valid_token: ValidToken = request.environ[_BEARER]
            return _visitor_key(
                f"programs {valid_token.named.tag if valid_token.named else ''} {peer_of(request)}"
            ), PROGRAMS
        return _visitor_key(f"strangers {peer_of(request)}"), 1.0

    def _is_allowed_host(self, netloc: str) -> bool:
        return host_of(netloc) in self._hosts

    def _validate(self, token: str | None) -> ValidToken | None:
        """Return the valid token; None for a wrong one."""
        if self._key is None or token is None:
            return None
        is_first = hmac.compare_digest(token.encode("utf-8", "replace"), self._key)
        if is_first:
            return ValidToken(None)
        named_token = self._named.find(token)
        return ValidToken(named_token) if named_token is not None else None

    def _begin_session(self, request: Request, answer: Response, valid_token: ValidToken, now: float) -> None:
        """Begin a session for a browser that sent a valid token."""
        self._record_use(valid_token, request, now)
        tag = valid_token.named.tag if valid_token.named else ""
        self.set_session_cookie(request, answer, self._sessions.begin(peer_of(request), now, tag), now)

    def _record_use(self, valid_token: ValidToken, request: Request, now: float) -> None:
        if valid_token.named is not None:
            self._named.record_use(valid_token.named, peer_of(request), now)

    def _is_over(self, session: Session, now: float) -> bool:
        """Whether a session is over, or the token that began it was revoked."""
        if self._sessions.is_over(session, now):
            return True
        tag = tag_of(session.id)
        return bool(tag) and not self._named.exists(tag)

    def _session_of(self, value: str) -> Session | None:
        payload, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(payload).encode()):
            return None
        seen, _, rest = payload.partition(".")
        begun, _, session_id = rest.partition("~")
        try:
            return Session(session_id, int(begun, 16), int(seen))
        except ValueError:
            return None  # signed by us, but by another version

    def _sign(self, payload: str) -> str:
        return hmac.digest(self._signs, payload.encode("utf-8", "replace"), "sha256").hex()


def _visitor_key(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()[:12]


def _redirect(location: str) -> Response:
    answer = Response(status=303, headers={"Location": location})
    answer.autocorrect_location_header = False
    return answer
