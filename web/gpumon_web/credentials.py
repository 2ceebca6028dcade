"""Reads of a request what shows who asks: the token of a program or a form, the origin, the peer."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from flask import Request

from gpumon_web.environ import PEER
from gpumon_web.peers import network_of


def peer_of(request: Request) -> str:
    """Where a request comes from: a user of this machine or an address, without the port."""
    found = request.environ.get(PEER)
    return found if isinstance(found, str) else network_of(request.remote_addr or "")


def bearer_of(request: Request) -> str | None:
    """The token that a program sends; None for another kind of password, which is a proxy's."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def netloc_of(origin: str) -> str:
    """The host and port of an origin; empty where there is none, which is no name of ours."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def is_own_form(request: Request) -> bool:
    """Whether a form of our own page was sent: another page of the same host, on another port, is another site.

    A browser that does not say where it was sent from names the origin, or none: our pages send no referrer.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("Origin")
    return origin in (None, "null") or netloc_of(origin).lower() == request.headers.get("Host", "").lower()


def token_in(request: Request) -> str | None:
    """The token of a form; None where it has none, or several."""
    if request.mimetype != "application/x-www-form-urlencoded":
        return None
    text = request.get_data(cache=False).decode("ascii", "replace")
    try:
        found = parse_qs(text, max_num_fields=4).get("token", [])
    except ValueError:
        return None
    return found[0].strip() if len(found) == 1 else None
