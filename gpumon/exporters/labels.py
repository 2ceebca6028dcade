"""Texts in labels: sanitized, and so short that a server with the settings that we ship takes them."""

from __future__ import annotations

from gpumon.common.text import clean

MOST_LETTERS = 100
MOST_BYTES = 190
"""Of a value in UTF-8, which is what Prometheus counts: with one that is longer it refuses the whole scrape."""
_MORE = "…"


def label_text(text: str, letters: int = MOST_LETTERS) -> str:
    """Return a text of other people as the value of a label.

    >>> len(label_text("\\u6a21" * 70))
    63
    """
    return within(clean(text, letters))


def sentence(text: str) -> str:
    """Return a text for people as the value of a label: whole words, of which the end says that some are left out.

    >>> sentence("restart it " * 20)[-22:]
    'restart it restart it…'
    """
    whole = clean(text, 2 * MOST_BYTES)
    if (safe := within(whole)) == whole:
        return whole
    return within(safe, MOST_BYTES - len(_MORE.encode())).rpartition(" ")[0] + _MORE


def within(text: str, most: int = MOST_BYTES) -> str:
    """Return as many whole letters of a text as `most` bytes hold."""
    if len(text) * 4 <= most or (text.isascii() and len(text) <= most):
        return text
    return text.encode(errors="replace")[:most].decode(errors="ignore")
