"""Content negotiation of a scrape by the headers of its request: format, compression and timeout."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.numbers import is_known

PLAIN = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_OPENMETRICS_KIND = OPENMETRICS.partition(";")[0]
_PLAIN_KINDS = ("text/plain", "text/*", "*/*")
_VERSIONS = ("1.0.0", "0.0.1", "")
_MAX_CHOICES = 32
TIMEOUT_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"
MAX_WAIT = 10.0
"""Maximum seconds that a scrape waits for other scrapes to finish."""
_MARGIN = 0.5
"""Seconds of a scraper's timeout that are reserved for sending the answer."""


def choose_format(accept: str) -> str:
    """Return `OPENMETRICS` if the scraper prefers it to the text format, otherwise `PLAIN`.

    Every scraper can read `PLAIN`. `accept`: value of the header `Accept`.

    >>> choose_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1")
    'application/openmetrics-text; version=1.0.0'
    """
    for _, kind, parameters in sorted(_parse_choices(accept), key=lambda choice: -choice[0]):
        if kind == _OPENMETRICS_KIND and parameters.get("version", "") in _VERSIONS:
            return OPENMETRICS
        if kind in _PLAIN_KINDS:
            return PLAIN
    return PLAIN


def accepts_gzip(accept_encoding: str) -> bool:
    """Return True if the answer may be compressed with gzip. `accept_encoding`: value of the header."""
    return any(quality > 0 and kind in ("gzip", "x-gzip", "*") for quality, kind, _ in _parse_choices(accept_encoding))


def parse_timeout(timeout: str) -> float:
    """Return the maximum seconds that a scrape may take. `timeout`: value of the header `TIMEOUT_HEADER`."""
    try:
        seconds = float(timeout)
    except ValueError:
        return MAX_WAIT
    return min(MAX_WAIT, max(0.1, seconds - _MARGIN)) if is_known(seconds) else MAX_WAIT


def _parse_choices(header: str) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Yield the quality, name and parameters of each choice in a header, in the order of the header."""
    for choice in header.split(",")[:_MAX_CHOICES]:
        kind, *rest = (part.strip() for part in choice.split(";"))
        parameters = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        if kind and quality > 0:
            yield quality, kind.lower(), parameters
