"""Letters of the view in ASCII, cell for cell: for a terminal without Unicode, or where some letters take two cells.

Pages draw in Unicode. What a letter becomes depends on the role of its color at times: the same block is full in
a bar, and empty in the track behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from unicodedata import normalize

from rich.cells import cell_len

SPELLED = {
    "↵": "Enter", "↑ ↓": "Up Down", "↓ ↑": "Down Up", "→ ←": "Right Left", "← →": "<- ->",
}  # fmt: skip
"""Keys for which ASCII has no letter: `^` is Ctrl's."""
_BOUNDS = {"≥": ">=", "≤": "<="}
_BOUND = re.compile(f"( ?)([{''.join(_BOUNDS)}])( ?)")
LEVELS = " _.:-=+*#"
"""From nothing to all, for what is told by color alone."""
TABLE: dict[str, str] = {
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
BY_ROLE: dict[str, dict[str, str]] = {
    "track": dict.fromkeys("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉▀▖▗", ".") | dict.fromkeys("━╸╺─", "-"),
    "key": {"▌": ">", "▎": ">", "▲": "^"},
    "memory": {"▆": "#"},
    "power": {"▆": "#", "▀": "v"},
    "temp": {"▀": "c"},
    "strong": {"▲": "^"},
    "faint": {"▲": "^", "·": " "},
    "rule": {"·": " "},
}
"""Letters that are others in a certain color."""
EMPTY = dict.fromkeys("▂▃▄▅▆▇█▏▎▍▌▋▊▉", "▁") | dict.fromkeys("━╸╺", "─")
"""In Unicode, of what is empty: where no color tells it from what is full."""
_BRAILLE = range(0x2801, 0x2900)
_HEAT = "▁▁▂▃▄▅▆▇▇"
_BEHIND = 0.17
"""Share of a color below which a block is an area behind a line: one between lowest and highest values from `_BAND` on,
which is all that tells a short stall."""
_BAND = 0.1
_AREA = dict.fromkeys("▁▂▃", " ") | dict.fromkeys("▄▅▆▇█", ":")


def spelled(text: str) -> str:
    """Return a text with names in the place of keys for which ASCII has no letter."""
    for sign, name in SPELLED.items():
        text = text.replace(sign, name)
    return text


def bounds(texts: Sequence[str]) -> list[str]:
    """Return the texts of a line with `>=` for `≥`, and the like: the blank beside it, before or behind, makes room.

    A `>` alone would say that a value is more than that.
    """
    whole = _BOUND.sub(_bound, "".join(texts))
    ends = accumulate(map(len, texts), initial=0)
    return [whole[begin:end] for begin, end in pairwise(ends)]


def _bound(found: re.Match[str]) -> str:
    before, sign, behind = found.groups()
    told = _BOUNDS[sign]
    return before + told if behind else told if before else told[0]


def plain(text: str, role: str = "", share: float = 1.0) -> str:
    """Return `text` in ASCII, in as many cells; `role` and `share` are of its color."""
    if text.isascii():
        return text
    text = _by_share(bounds([text])[0], role, share, LEVELS)
    own = BY_ROLE.get(role, {})
    return "".join(own.get(letter) or TABLE.get(letter) or _nearest(letter) for letter in text.replace(" · ", " | "))


def uncolored(text: str, role: str, share: float = 1.0) -> str:
    """Return `text` so that what is empty can be told from what is full without color."""
    text = _by_share(text, role, share, _HEAT)
    if role != "track" or text.isascii():
        return text
    return "".join(EMPTY.get(letter, letter) for letter in text)


def _by_share(text: str, role: str, share: float, levels: str) -> str:
    """Return a heat strip, and areas behind lines, in letters of their own: color alone tells these otherwise."""
    if role == "ground":
        return "".join(" " if letter in _AREA or letter == "▌" else letter for letter in text)
    if share < 1.0 and role == "util" and "▌" in text:
        return text.replace("▌", levels[min(len(levels) - 1, round((share / 0.68) ** 0.45 * (len(levels) - 1)))])
    if share < _BEHIND:
        return "".join(_AREA[letter] if letter in _AREA and share >= _BAND else " " for letter in text)
    return text


def _nearest(letter: str) -> str:
    """Return a letter without its accent, or `?` in as many cells."""
    if letter.isascii():
        return letter
    if ord(letter) in _BRAILLE:
        return "*"
    cells = cell_len(letter)
    base = normalize("NFKD", letter)[:1]
    return base if cells == 1 and base.isascii() and base.isprintable() else "?" * cells
