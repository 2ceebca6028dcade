"""A stranger's text inside a figure.

Plotly reads a small HTML of its own in nearly every text: a name could be a link, or hide what stands
beside it. Escaped, it is shown letter by letter (tried with plotly.js 4.1.1 in legends, hovers, labels
and titles).
"""

from __future__ import annotations

from html import escape

from gpumon.common.text import clean, cut

LONGEST = 80
"""Cells that a text takes at most."""


def literal(text: str, longest: int = LONGEST) -> str:
    """Return `text` as Plotly shows it letter by letter, on one line: no tags, and no %{…} of templates."""
    return escape(cut(clean(text), longest), quote=False)
