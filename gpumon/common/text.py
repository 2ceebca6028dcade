"""Sanitizes untrusted text for terminal, HTML and JSON.

Names of processes, users, runs and metrics, file paths and strings from the driver are untrusted. `clean` sanitizes
them when gpumon reads them, and views show them only as plain text.
"""

from __future__ import annotations

# General categories of Unicode characters that move the cursor, hide or reorder text, or cannot be encoded. They are
# controls (C0, DEL, C1), formats (bidirectional and zero-width marks, tags, the emoji joiner), surrogates, line and
# paragraph separators, and characters that this version of Python does not know.
_HARMFUL = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Cn"))
# Characters that are invisible although their category is letter, mark or symbol: Hangul fillers, the combining
# grapheme joiner, the braille pattern without dots, and variation selectors. Terminals also disagree on the width of
# variation selectors.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0))
}
_SPACE = "Zs"
"""Category of spaces. Unusual spaces are escaped, because otherwise different names could look the same."""
_MARKS = frozenset(("Mn", "Me"))
_MARKS_ON_A_LETTER = 2


def clean(text: str, limit: int = 256) -> str:
    """Return `text` on one line with harmful characters escaped, at most `limit` characters.

    At most two combining marks per letter are kept, because more would cover neighboring lines.

    >>> clean("evil\\x1b[31m")
    'evil\\\\x1b[31m'
    """
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text  # nearly every name is printable
    try:
        from unicodedata import category
    except (ImportError, OSError):  # no free file descriptor to load the module
        return ascii(text)[1:-1][:limit]

    safe = []
    marks = 0
    for character in text:
        kind = category(character)
        if kind in _HARMFUL or character in _INVISIBLE or (kind == _SPACE and character != " "):
            safe.append(_escape(ord(character)))
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
    """Return the number of terminal columns that a string needs."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def cut(text: str, width: int) -> str:
    """Return `text`, cut to at most `width` terminal columns. If it is cut, it ends with …."""
    if text_width(text) <= width:
        return text
    while text and text_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def wrap_words(text: str, width: int) -> list[str]:
    """Return `text` as lines of at most `width` columns, wrapped between words. 0: unlimited width.

    Long words and commands in quotes are not broken, so that they can be copied. The terminal continues them in its
    next row.
    """
    if not width:
        return text.split("\n")
    import re  # few callers wrap text

    lines = []
    for line in text.split("\n"):
        protected = re.sub(r"(?<!\w)'[^']+'", lambda command: command[0].replace(" ", "\0"), line)
        current, *words = (word.replace("\0", " ") for word in protected.split(" "))
        for word in words:
            longer = f"{current} {word}"
            if current.strip() and text_width(longer) > width:
                lines.append(current)
                longer = word
            current = longer
        lines.append(current)
    return lines


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
