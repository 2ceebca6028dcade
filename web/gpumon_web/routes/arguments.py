"""Query arguments of the page routes. One that is too long cannot name anything that exists, and counts as missing."""

from __future__ import annotations

from starlette.requests import Request

from gpumon_web.auth.http_errors import BadNumber

MAX_TEXT = 200
"""Longest argument in characters."""
MAX_LIST = 1000
"""Longest argument that is a list of names, in characters."""
MAX_TIME = 1e11
"""Largest time accepted as an argument (s since 1970): calendars do not go further."""


def read_text(request: Request, name: str, max_length: int = MAX_TEXT) -> str:
    """Return the value of an argument as a string; empty if it is missing."""
    value = request.query_params.get(name, "")
    return value if len(value) <= max_length else ""


def read_list(request: Request, name: str) -> tuple[str, ...]:
    """Return a comma-separated list."""
    value = read_text(request, name, MAX_LIST)
    return tuple(value.split(",")) if value else ()


def read_whole(request: Request, name: str) -> int:
    """Return a whole number; 0 if it is missing or none."""
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else 0


def read_number(request: Request, name: str) -> float | None:
    """Return a number of seconds; None if it is missing. Raises BadNumber if it is invalid or out of range."""
    value = read_text(request, name).strip()
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        raise BadNumber(name) from None
    if not abs(number) <= MAX_TIME:
        raise BadNumber(name)
    return number
