"""Refusals: why a request is not answered, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from flask import Request, Response

from gpumon_web.plain_page import V1, failure
from gpumon_web.prefix import base_of

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
"""The two paths that take a POST."""


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
TO_PROGRAMS = (
    "Send 'Authorization: Bearer TOKEN'. On the server, 'gpumon web token add NAME' prints a token, and "
    "'gpumon web token list' names those that are not revoked."
)
"""The remedy where a program asks."""
WRONG_TOKEN = Refused(401, "Wrong token", NO_TOKEN.text)
TOO_MANY = Refused(429, "Too many requests", "Wait a moment, then load the page again.")


def refusal(request: Request, refused: Refused, *, is_stranger: bool = False) -> Response:
    """The answer that says why; `is_stranger`: who asks needs a token, and has shown none."""
    headers = {}
    sign_in = ""
    if refused.status == 405:
        headers["Allow"] = "GET, HEAD"
    elif refused.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="gpumon"'
        sign_in = base_of(request) + SIGN_IN.lstrip("/")
        if request.path.startswith(V1):
            refused = refused._replace(text=TO_PROGRAMS)
    elif refused.status == 429:
        headers["Retry-After"] = "2"
        # Strangers of one machine share an address: whoever asks too often must not take the form from the others.
        if is_stranger:
            sign_in = base_of(request) + SIGN_IN.lstrip("/")
    return failure(request, refused.status, refused.title, refused.text, headers, sign_in=sign_in)
