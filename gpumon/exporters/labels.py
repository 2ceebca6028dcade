"""Texts in labels: sanitized, and so short that a server with the settings that we ship takes them."""

from __future__ import annotations

from gpumon.text import clean

MOST_LETTERS = 100
MOST_BYTES = 190
"""Of a value in UTF-8, which is what Prometheus counts: with one that is longer it refuses the whole scrape."""


def label_text(text: str, letters: int = MOST_LETTERS) -> str:
    """Return a text of other people as the value of a label.

    >>> len(label_text("\\u6a21" * 70))
    63
    """
    return within(clean(text, letters))


def within(text: str) -> str:
    """Return as many whole letters of a text as `MOST_BYTES` hold."""
    if len(text) * 4 <= MOST_BYTES or (text.isascii() and len(text) <= MOST_BYTES):
        return text
    return text.encode(errors="replace")[:MOST_BYTES].decode(errors="ignore")
