"""Appearance on this terminal: theme, number of colors, and available glyphs.

Pictures are drawn with color roles and in Unicode. They are converted for the terminal here, once per style, when lines
become cells, so that pages are drawn the same for every theme and terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate, pairwise
from typing import NamedTuple
from unicodedata import normalize

from rich.cells import cell_len
from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style

from gpumon_tui.theme import DARK, ROLE_BY_NAME, Theme, role_of, theme_color

_MIN_ROLE_SHARE = 0.25
"""Minimum share of a role for its tint to be shown as that role in 16 colors; weaker tints are treated as empty."""
_MIN_GRAY_SHARE = 0.1
"""Minimum share for a background to be shown as gray in 16 colors; weaker ones are dropped."""
_GRAY = 8
_NO_COLOR = Color.default()
_BOLD_ROLES = frozenset(("strong", "warn", "crit"))
"""Roles shown in bold on terminals with few or no colors."""
_COLORLESS_TERMS = ("vt", "ansi-m", "xterm-mono", "linux-m", "screen-m")
"""Name prefixes (TERM) of terminals without colors."""
_FEW_GLYPHS_TERM = "linux"
"""TERM of the Linux console: its fonts have 256 or 512 glyphs, without braille and with hardly any blocks."""


class ColorDepth(Enum):
    """Number of colors of a terminal."""

    MANY = "many"
    SIXTEEN = "16"
    NONE = "none"


class Appearance(NamedTuple):
    """Theme, number of colors, and glyph set: everything that decides how a picture becomes terminal cells."""

    theme: Theme = DARK
    depth: ColorDepth = ColorDepth.MANY
    is_ascii: bool = False

    @property
    def ground(self) -> str:
        """Background color in the syntax of a style sheet."""
        return self.theme.colors["ground"] if self.depth is ColorDepth.MANY else "ansi_default"

    def key(self, name: str) -> str:
        """Return the name of a key as displayed on this terminal."""
        return spell_keys(name) if self.is_ascii else name

    def letters(self, text: str, style: Style | None) -> str:
        """Return the text with glyphs the terminal supports; without colors, glyphs replace what color would show."""
        if text.isascii() or not (self.is_ascii or self._has_no_tints(style)):
            return text
        role, share = _role_of(style.color if style else None) or ("text", 1.0)
        return to_ascii(text, role, share) if self.is_ascii else without_color(text, role, share)

    def bounds(self, line: list[Segment]) -> list[Segment]:
        """Return a line with `≥` and similar signs adapted to the terminal: in ASCII they take two cells."""
        if not self.is_ascii or all(text.isascii() for text, _, _ in line):
            return line
        texts = replace_bounds([text for text, _, _ in line])
        return [Segment(text, style) for text, (_, style, _) in zip(texts, line, strict=True)]

    def _has_no_tints(self, style: Style | None) -> bool:
        """Whether the tints of a style are lost: the terminal has few colors, or the row is drawn in a single color."""
        if self.depth is not ColorDepth.MANY:
            return True
        background = _role_of(style.bgcolor) if self.theme.reverses_selection and style else None
        return background is not None and background[0] == "select"

    def cells(self, style: Style | None, ground: str = "ground", is_old: bool = False) -> Style:
        """Convert a style for the terminal, on the background of the role `ground`; faded if `is_old`."""
        return _terminal_style(self, style or Style.null(), ground, is_old)


_PLAIN_LOCALES = ("C", "POSIX")
"""ASCII-only locales. Python still uses UTF-8 in them, so its encoding cannot be used to detect them."""


def from_terminal(env: Mapping[str, str], color_system: str | None, encoding: str) -> Appearance:
    """Return the appearance for a terminal; `color_system` is Rich's name, `encoding` the character encoding of the
    output.
    """
    term = env.get("TERM", "").lower()
    if env.get("NO_COLOR") or term.startswith(_COLORLESS_TERMS):
        depth = ColorDepth.NONE
    else:
        depth = ColorDepth.SIXTEEN if color_system in ("standard", "windows", None) else ColorDepth.MANY
    is_utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    is_ascii = not is_utf8 or _locale(env) in _PLAIN_LOCALES or term.startswith(_FEW_GLYPHS_TERM)
    return Appearance(depth=depth, is_ascii=is_ascii)


def _locale(env: Mapping[str, str]) -> str:
    """Return the character locale of the environment; empty if none is set, as in many containers."""
    return next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), "")


def _role_of(color: Color | None) -> tuple[str, float] | None:
    return role_of(color.name) if color is not None else None


def _terminal_style(appearance: Appearance, style: Style, ground: str, is_old: bool) -> Style:
    ink = _role_of(style.color) or (("text", 1.0) if style.color is None else None)
    background = _role_of(style.bgcolor) or ((ground, 1.0) if style.bgcolor is None else None)
    if ink is None or background is None:  # a color from outside the palette
        return style
    if appearance.depth is ColorDepth.NONE:
        return _without_colors(style, ink, background, is_old)
    if appearance.depth is ColorDepth.SIXTEEN:
        return _sixteen_colors(style, ink, background, is_old)
    if appearance.theme.reverses_selection and background[0] == "select":
        ink, background = ("ground", 1.0), ("text", 1.0)
    name = appearance.theme.name
    bold = style.bold and not is_old
    return Style(color=_exact(name, *ink, is_old), bgcolor=_exact(name, *background, is_old), bold=bold or None)


def _exact(theme: str, role: str, share: float, is_old: bool) -> Color:
    rgb = theme_color(theme, role, share, is_old)
    return Color(rgb.hex, ColorType.TRUECOLOR, triplet=rgb)


def _sixteen_colors(style: Style, ink: tuple[str, float], background: tuple[str, float], is_old: bool) -> Style:
    color, ground = _role_color(*ink, _ansi_color(_GRAY)), _role_color(*background, _NO_COLOR)
    if is_old:
        return Style(color=_ansi_color(_GRAY), bgcolor=ground if background[0] in ("panel", "select") else _NO_COLOR)
    if ink[0] == "ground" and ink[1] >= 1.0 and background[0] not in ("ground", "panel"):  # a chip
        return Style(color=_ansi_color(0), bgcolor=ground, bold=style.bold)
    if style.bold and background[0] == ink[0]:  # a chip in a tint: gray would be hard to distinguish from its letters
        ground = _NO_COLOR
    if background[0] == "select" and color.number == _GRAY:
        color = _NO_COLOR
    return Style(color=color, bgcolor=ground, bold=style.bold or (ink[0] in _BOLD_ROLES) or None)


def _role_color(role: str, share: float, empty: Color) -> Color:
    number = ROLE_BY_NAME[role].ansi
    if share < _MIN_ROLE_SHARE:
        return empty if share < _MIN_GRAY_SHARE else _ansi_color(_GRAY)
    return _NO_COLOR if number is None else _ansi_color(number)


def _ansi_color(number: int) -> Color:
    return Color(str(number), ColorType.STANDARD, number=number)


def _without_colors(style: Style, ink: tuple[str, float], background: tuple[str, float], is_old: bool) -> Style:
    """Return a style of bold and reverse in place of colors. Glyphs or words carry the same information."""
    if is_old:
        return Style(dim=True)
    is_chip = background[0] == "select" or ink == ("ground", 1.0) or ink[0] == "crit"
    return Style(bold=style.bold or (ink[0] in _BOLD_ROLES) or None, reverse=is_chip or None)


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
