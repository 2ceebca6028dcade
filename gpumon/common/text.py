"""Sanitize untrusted text for terminal, HTML and JSON.

Process names, users, run names, metric names, file paths and driver strings come from other
people. They enter gpumon through `clean` and are shown as plain text only.
"""

from __future__ import annotations

# General categories of Unicode that move a cursor, hide, reorder, or cannot be encoded: controls
# (C0, DEL, C1), formats (bidirectional and zero-width marks, tags, the joiner of emoji), surrogates, line and
# paragraph separators, and what this Python does not know.
_HARMFUL = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Cn"))
# Letters and marks by category, but invisible: Hangul fillers, the combining grapheme joiner, and
# variation selectors, on whose width terminals disagree. A symbol that is one: the braille pattern without dots.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0))
}
_SPACE = "Zs"
"""Spaces: with one of another kind than the usual, `a b` would look like another name."""
_MARKS = frozenset(("Mn", "Me"))
_MARKS_ON_A_LETTER = 2


def clean(text: str, limit: int = 256) -> str:
    """`text` on one line with every harmful character spelled out, at most `limit` characters.

    A letter keeps two combining marks: a tower of them would draw over its neighbors.

    >>> clean("evil\\x1b[31m")
    'evil\\\\x1b[31m'
    """
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text  # nearly every name
    try:
        from unicodedata import category
    except (ImportError, OSError):  # a process without a free descriptor to load it
        return ascii(text)[1:-1][:limit]

    safe = []
    marks = 0
    for character in text:
        kind = category(character)
        if kind in _HARMFUL or character in _INVISIBLE or (kind == _SPACE and character != " "):
            safe.append(_spell(ord(character)))
            marks = 0
        elif kind in _MARKS:
            marks += 1
            if marks <= _MARKS_ON_A_LETTER:
                safe.append(character)
        else:
            safe.append(character)
            marks = 0
    return "".join(safe)[:limit]


def text_width(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, with … where it was cut."""
    if text_width(text) <= width:
        return text
    while text and text_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _spell(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
