"""ASCII replacements for the glyphs of the view, of equal width, for terminals without Unicode or with double-width
glyphs.

Pages are drawn in Unicode. Some replacements depend on the role of the color: the same block is full in a bar, but
empty in the track behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from unicodedata import normalize

from rich.cells import cell_len

KEY_NAMES = {
    "↵": "Enter", "↑ ↓": "Up Down", "↓ ↑": "Down Up", "→ ←": "Right Left", "← →": "<- ->",
}  # fmt: skip
"""Names of keys that have no ASCII character; `^` stands for Ctrl."""
_BOUNDS = {"≥": ">=", "≤": "<="}
_BOUND = re.compile(f"( ?)([{''.join(_BOUNDS)}])( ?)")
LEVELS = " _.:-=+*#"
"""Levels from empty to full, for values that are otherwise shown by color alone."""
REPLACEMENTS: dict[str, str] = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+##", strict=True)),
    **dict.fromkeys("▏▎▍▐▕", "|"),
    **dict.fromkeys("▌▋▊▉▀▖▗▘▙▚▛▜▝▞▟▓", "#"),
    **dict.fromkeys("▒░╱", ":"),
    **dict.fromkeys("━╸", "="),
    **dict.fromkeys("─╌┄╴╶╺⎺⎻⎼⎽‐‑‒–—−", "-"),
    **dict.fromkeys("│┃├┤└╎┆┊", "|"),
    **dict.fromkeys("┌┐┘┬┴┼╭╮╯╰", "+"),
    "╵": "'", "╷": ",",
    "▲": "!", "△": "!", "▴": "^", "▼": "v", "▾": "v", "▸": ">", "▶": ">", "►": ">", "◂": "<", "◀": "<", "◄": "<",
    "●": "*", "○": "o", "‖": "=", "←": "<", "→": ">", "↑": "^", "↓": "v", "↵": "E", "⏎": "E", "␣": "_",
    "×": "x", "✕": "x", "✗": "x", "✘": "x", "╳": "x", "✓": "+", "✔": "+", "·": ".", "•": "*", "…": "~", "°": " ",
    "‹": "<", "›": ">",
    "’": "'", "‘": "'", "“": '"', "”": '"', "≈": "~", "Δ": "d", "µ": "u", "²": "2", "³": "3",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2800": " ",
}  # fmt: skip
ROLE_TABLES: dict[str, dict[str, str]] = {
    "track": dict.fromkeys("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉▀▖▗", ".") | dict.fromkeys("━╸╺─", "-"),
    "key": {"▌": ">", "▎": ">", "▲": "^"},
    "memory": {"▆": "#"},
    "power": {"▆": "#", "▀": "v"},
    "temp": {"▀": "c"},
    "strong": {"▲": "^"},
    "faint": {"▲": "^", "·": " "},
    "rule": {"·": " "},
}
"""Replacements that apply only in a certain color role."""
EMPTY_PARTS = dict.fromkeys("▂▃▄▅▆▇█▏▎▍▌▋▊▉", "▁") | dict.fromkeys("━╸╺", "─")
"""Unicode replacements for the empty parts of bars and lines, used when there is no color to mark them as empty."""
_BRAILLE = range(0x2801, 0x2900)
_HEAT = "▁▁▂▃▄▅▆▇▇"
_MAX_AREA = 0.17
"""Share of a color below which a block belongs to the area behind a line.

From `_BAND` on, the area is the band between minimum and maximum, which may be the only sign of a short stall.
"""
_BAND = 0.1
_AREA = dict.fromkeys("▁▂▃", " ") | dict.fromkeys("▄▅▆▇█", ":")


def spell_keys(text: str) -> str:
    """Return the text with names in place of key symbols that ASCII does not have."""
    for symbol, name in KEY_NAMES.items():
        text = text.replace(symbol, name)
    return text


def replace_bounds(texts: Sequence[str]) -> list[str]:
    """Return the texts of a line with `≥` replaced by `>=` and the like; an adjacent blank is removed to keep the
    width.

    A bare `>` would claim that the value is strictly greater.
    """
    joined = _BOUND.sub(_bound, "".join(texts))
    ends = accumulate(map(len, texts), initial=0)
    return [joined[begin:end] for begin, end in pairwise(ends)]


def _bound(match: re.Match[str]) -> str:
    left, sign, right = match.groups()
    replacement = _BOUNDS[sign]
    return left + replacement if right else replacement if left else replacement[0]


def to_ascii(text: str, role: str = "", share: float = 1.0) -> str:
    """Return `text` in ASCII, of equal width; `role` and `share` describe its color."""
    if text.isascii():
        return text
    text = _by_share(replace_bounds([text])[0], role, share, LEVELS)
    role_table = ROLE_TABLES.get(role, {})
    return "".join(
        role_table.get(letter) or REPLACEMENTS.get(letter) or _nearest(letter) for letter in text.replace(" · ", " | ")
    )


def without_color(text: str, role: str, share: float = 1.0) -> str:
    """Return `text` with glyphs that distinguish empty from full without color."""
    text = _by_share(text, role, share, _HEAT)
    if role != "track" or text.isascii():
        return text
    return "".join(EMPTY_PARTS.get(letter, letter) for letter in text)


def _by_share(text: str, role: str, share: float, levels: str) -> str:
    """Replace heat strips and areas behind lines by glyphs of different density, because only their color
    distinguishes them otherwise.
    """
    if role == "ground":
        return "".join(" " if letter in _AREA or letter == "▌" else letter for letter in text)
    if share < 1.0 and role == "util" and "▌" in text:
        return text.replace("▌", levels[min(len(levels) - 1, round((share / 0.68) ** 0.45 * (len(levels) - 1)))])
    if share < _MAX_AREA:
        return "".join(_AREA[letter] if letter in _AREA and share >= _BAND else " " for letter in text)
    return text


def _nearest(letter: str) -> str:
    """Return a letter without its accent, or `?` repeated to the same width."""
    if letter.isascii():
        return letter
    if ord(letter) in _BRAILLE:
        return "*"
    cells = cell_len(letter)
    base = normalize("NFKD", letter)[:1]
    return base if cells == 1 and base.isascii() and base.isprintable() else "?" * cells
