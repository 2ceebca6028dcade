"""Access control of every request: host name and origin, tokens, sessions and their cookies."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from gpumon.common.net import LOCAL, host_of
from gpumon_web.auth.api_tokens import NamedToken, NamedTokens
from gpumon_web.auth.failed_login_log import FailedLoginLog
from gpumon_web.auth.http_errors import FOREIGN, ONLY_READS, SIGN_IN, SIGN_OUT, UNKNOWN_HOST, V1, Rejection
from gpumon_web.auth.rate_limit import PROGRAMS, network_of
from gpumon_web.auth.session_file import LASTS, Session, Sessions, new_id, tag_of
from gpumon_web.http.prefix import base_of, path_of, prefix_of

__all__ = ["LASTS", "Gate"]

OPEN = "/healthz"
"""The only path that is answered without a token."""
CALLBACK = "/_dash-update-component"
"""Path of Dash's callbacks."""
RENEWED = 3600
"""Age in seconds after which the cookie of an active session is renewed."""
PEER = "gpumon.peer"
"""Key in the ASGI scope for the client of the connection, from `rate_limit.peer_of`."""
_FOREIGN = ("cross-site", "same-site")
_COOKIES = 4
"""Cookies of our name that are checked: other programs on the host can set some too."""
_CHECK_TIMEOUT = 0.5
"""Seconds to wait for a check of the file of named tokens."""


def peer_of(request: Request) -> str:
    """Return the client of a request: a local user (unix socket) or an address without the port."""
    peer = request.scope.get(PEER)
    return peer if isinstance(peer, str) else network_of(request.client.host if request.client else "")


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


async def form_token(request: Request) -> str | None:
    """Return the token in a form; None if it has none or several."""
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        return None
    text = (await request.body()).decode("ascii", "replace")
    try:
        tokens = parse_qs(text, max_num_fields=4).get("token", [])
    except ValueError:
        return None
    return tokens[0].strip() if len(tokens) == 1 else None


class ValidToken(NamedTuple):
    """A valid token."""

    named: NamedToken | None
    """None for the token that `gpumon web` prints."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request has sent to prove that it may be answered."""

    session: Session | None
    """Session of its cookie; None if there is none, its signature is wrong, or it is over."""
    bearer: ValidToken | None
    """Valid token in the Authorization header."""
    is_bearer_wrong: bool
    link_token: str | None
    """Token in the address, valid or not."""
    link: ValidToken | None
    """The same token if it is valid."""

    @property
    def are_valid(self) -> bool:
        """Whether there is a valid session or bearer token."""
        return self.session is not None or self.bearer is not None


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

    def rejection(self, request: Request) -> Rejection | None:
        """Return why a request must be rejected whatever token it has; None if it may be answered with one."""
        if not self._is_allowed_host(request.headers.get("Host", "")):
            return UNKNOWN_HOST
        if is_form(request) or is_callback(request):
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
        return None

    async def credentials(self, request: Request, now: float) -> Credentials:
        """Return the credentials of a request; `now`: seconds since 1970."""
        bearer_token = bearer_of(request)
        link_tokens = request.query_params.getlist("token")
        link_token = link_tokens[0] if link_tokens else None
        bearer = await self.validate(bearer_token)
        return Credentials(
            session=self._session(request, now),
            bearer=bearer,
            is_bearer_wrong=bearer_token is not None and bearer is None,
            link_token=link_token,
            link=await self.validate(link_token),
        )

    def is_admitted(self, request: Request, credentials: Credentials) -> bool:
        """Whether the request has a valid token or session, or none is needed."""
        return self._key is None or path_of(request) == OPEN or credentials.are_valid

    def record_program(self, request: Request, credentials: Credentials, now: float) -> None:
        """Record the use of a named token that was sent as a bearer token."""
        if credentials.bearer is not None:
            self._record_use(credentials.bearer, request, now)

    def exchange(self, request: Request, credentials: Credentials, now: float) -> Response | None:
        """Begin a session for a link with a token, and redirect to the same address without the token.

        Returns None if the address has no token or a wrong one.
        """
        # Programs must send the token in a header, because addresses end up in logs.
        in_program = path_of(request) == OPEN or path_of(request).startswith(V1)
        if in_program or credentials.link is None:
            return None
        arguments = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        # A path, which can never lead to another site. The cookie is valid only below the prefix.
        address = base_of(request) + quote(path_of(request).lstrip("/"))
        answer = _redirect(address + (f"?{urlencode(arguments)}" if arguments else ""))
        self._begin_session(request, answer, credentials.link, now)
        return answer

    async def sign_in(self, request: Request, now: float) -> Response | None:
        """Begin a session for the sign-in form; None if its token is wrong."""
        valid_token = await self.validate(await form_token(request))
        if valid_token is None:
            return None
        answer = _redirect(base_of(request))
        self._begin_session(request, answer, valid_token, now)
        return answer

    def sign_out(self, request: Request, credentials: Credentials, now: float) -> Response:
        """End the session of the request, also for copies of its cookie elsewhere."""
        if credentials.session is not None:
            self._sessions.end(credentials.session, now)
        answer = _redirect(base_of(request))
        path = prefix_of(request.headers)
        answer.headers.append("Set-Cookie", f"{self.cookie}=; Max-Age=0; Path={path}; HttpOnly; SameSite=Lax")
        return answer

    def renewed_cookie(self, request: Request, credentials: Credentials, status: int, now: float) -> str | None:
        """Return the Set-Cookie header that renews the cookie of an active session; None if it is young.

        Without a token, the first page sets one to distinguish visitors.
        """
        session = credentials.session
        if session is not None and now - session.seen > RENEWED:
            return self._session_cookie(request, session, now)
        if session is None and self._key is None and path_of(request) == "/" and status == 200:
            return self._session_cookie(request, Session(new_id(), int(now), int(now)), now)
        return None

    def visitor(self, request: Request, credentials: Credentials) -> tuple[bytes, float]:
        """Return the key of a visitor for rate limits, and the factor of the usual limit.

        The key is the session, else the token and address, else the address alone.
        """
        if credentials.session is not None:
            return _visitor_key(f"session {credentials.session.id}"), 1.0
        if credentials.bearer is not None:
            named = credentials.bearer.named
            return _visitor_key(f"programs {named.tag if named else ''} {peer_of(request)}"), PROGRAMS
        return _visitor_key(f"strangers {peer_of(request)}"), 1.0

    async def validate(self, token: str | None) -> ValidToken | None:
        """Return the valid token; None for a wrong one. An unknown one may wait for a check of the tokens file."""
        if self._key is None or token is None:
            return None
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._key):
            return ValidToken(None)
        named_token = self._named.find(token)
        if named_token is None:
            check = self._named.check_for(token)
            if check is not None:
                await asyncio.wait([asyncio.wrap_future(check)], timeout=_CHECK_TIMEOUT)
                named_token = self._named.find(token)
        return ValidToken(named_token) if named_token is not None else None

    def _is_allowed_host(self, netloc: str) -> bool:
        return host_of(netloc) in self._hosts

    def _begin_session(self, request: Request, answer: Response, valid_token: ValidToken, now: float) -> None:
        """Begin a session for a browser that sent a valid token."""
        self._record_use(valid_token, request, now)
        tag = valid_token.named.tag if valid_token.named else ""
        session = self._sessions.begin(peer_of(request), now, tag)
        answer.headers.append("Set-Cookie", self._session_cookie(request, session, now))

    def _session_cookie(self, request: Request, session: Session, now: float) -> str:
        """Return the Set-Cookie header of a session, restricted to our path prefix and hidden from scripts."""
        payload = f"{int(now)}.{session.begun:x}~{session.id}"
        is_secure = "https" in (request.scope["scheme"], request.headers.get("X-Forwarded-Proto", "").lower())
        return "; ".join(
            (
                f"{self.cookie}={payload}.{self._sign(payload)}",
                f"Max-Age={LASTS}",
                *(("Secure",) if is_secure else ()),
                "HttpOnly",
                f"Path={prefix_of(request.headers)}",
                "SameSite=Lax",
            )
        )

    def _record_use(self, valid_token: ValidToken, request: Request, now: float) -> None:
        if valid_token.named is not None:
            self._named.record_use(valid_token.named, peer_of(request), now)

    def _session(self, request: Request, now: float) -> Session | None:
        pairs = (pair.partition("=") for header in request.headers.getlist("Cookie") for pair in header.split(";"))
        values = [value.strip() for name, _, value in pairs if name.strip() == self.cookie]
        sessions = map(self._session_of, values[:_COOKIES])
        return next((session for session in sessions if session is not None and not self._is_over(session, now)), None)

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


def is_form(request: Request) -> bool:
    """Whether a request is a form posted to one of the two paths that accept one."""
    return request.method == "POST" and path_of(request) in (SIGN_IN, SIGN_OUT)


def is_callback(request: Request) -> bool:
    """Whether a request asks for a Dash callback, which only reads. Pages of other sites cannot send its media type."""
    media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return request.method == "POST" and path_of(request) == CALLBACK and media_type == "application/json"


def _visitor_key(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()[:12]


def _redirect(location: str) -> Response:
    return Response(status_code=303, headers={"Location": location})
