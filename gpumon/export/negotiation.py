"""Formats that a scraper accepts, and for how long it waits, by the headers of its request."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.numbers import is_known

PLAIN = "text/plain; version=0.0.4"

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

_OPENMETRICS_KIND = OPENMETRICS.partition(";")[0]

_PLAIN_KINDS = ("text/plain", "text/*", "*/*")

_VERSIONS = ("1.0.0", "0.0.1", "")

_MOST = 32

TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"

PATIENCE = 10.0
"""Seconds for which a scrape waits for others at most."""

_SPARE = 0.5
"""Seconds that an answer needs on its way, of those that a scraper waits."""


def accepted_format(accept: str) -> str:
    """Return `OPENMETRICS` where it is asked for before any text, else `PLAIN`, which every scraper reads.

    >>> accepted_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1")
    'application/openmetrics-text; version=1.0.0'
    """
    for _, kind, parameters in sorted(_asked(accept), key=lambda one: -one[0]):
        if kind == _OPENMETRICS_KIND and parameters.get("version", "") in _VERSIONS:
            return OPENMETRICS
        if kind in _PLAIN_KINDS:
            return PLAIN
    return PLAIN


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an answer may be compressed with gzip."""
    return any(quality > 0 and kind in ("gzip", "x-gzip", "*") for quality, kind, _ in _asked(accept_encoding))


def patience_of(timeout: str) -> float:
    """Return for how many seconds a scraper that says it waits for `timeout` can be kept waiting."""
    try:
        seconds = float(timeout)
    except ValueError:
        return PATIENCE
    return min(PATIENCE, max(0.1, seconds - _SPARE)) if is_known(seconds) else PATIENCE


def _asked(header: str) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Quality, name and parameters of each choice, in their order."""
    for choice in header.split(",")[:_MOST]:
        kind, *rest = (part.strip() for part in choice.split(";"))
        parameters = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        if kind and quality > 0:
            yield quality, kind.lower(), parameters
