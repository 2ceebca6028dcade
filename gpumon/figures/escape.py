"""A stranger's text inside a figure.

Plotly reads a small HTML of its own in nearly every text: a name could be a link, or hide what stands
beside it. Escaped, it is shown letter by letter (tried with plotly.js 4.1.1 in legends, hovers, labels
and titles).
"""

from __future__ import annotations

from html import escape

from gpumon.text import clean

LONGEST = 80


def words(text: str) -> str:
    """`text` as Plotly shows it literally, on one line, at most 80 characters."""
    return escape(clean(text, LONGEST), quote=False)
