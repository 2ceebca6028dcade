"""The look of the screen on this terminal: the theme, and how many colors and which letters the terminal has.

Pictures are written in roles and in Unicode. What of that reaches the terminal is decided here, once per style, where
lines become cells: a page is drawn the same for every theme and every terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style

from gpumon_tui import glyphs, palette, themes

_LEAST_SHARE = 0.25
"""Share of a role from which a tint of it is that role in 16 colors; below, it is as good as empty."""
_SEEN_SHARE = 0.1
"""Share from which a ground is gray in 16 colors; below, it is none."""
_GRAY = 8
_NO_COLOR = Color.default()
_HEAVY = frozenset(("strong", "warn", "crit"))
"""Roles that are bold where there are few colors or none."""
_COLORLESS = ("vt", "ansi-m", "xterm-mono", "linux-m", "screen-m")
"""Beginnings of names of terminals without colors."""
_FEW_LETTERS = "linux"
"""Beginning of the names of the console of Linux: its fonts have 256 or 512 letters, no braille and hardly a block."""


class Depth(Enum):
    """Number of colors that a terminal has."""

    MANY = "many"
    SIXTEEN = "16"
    NONE = "none"


class TerminalLook(NamedTuple):
    """Theme, number of colors, and letters: what decides how a picture becomes cells."""

    theme: themes.Theme = themes.DARK
    depth: Depth = Depth.MANY
    is_ascii: bool = False

    @property
    def ground(self) -> str:
        """The page's color as a style sheet names it."""
        return self.theme.colors["ground"] if self.depth is Depth.MANY else "ansi_default"

    def key(self, shown: str) -> str:
        """Return a key as it is written here."""
        return glyphs.spelled(shown) if self.is_ascii else shown

    def letters(self, text: str, style: Style | None) -> str:
        """Return a text in letters that the terminal has; what only color tells is told by them where there is none."""
        if text.isascii() or not (self.is_ascii or self._has_no_tints(style)):
            return text
        role, share = _meant(style.color if style else None) or ("text", 1.0)
        return glyphs.plain(text, role, share) if self.is_ascii else glyphs.uncolored(text, role, share)

    def bounds(self, line: list[Segment]) -> list[Segment]:
        """Return a line with signs of bounds as this terminal has them: in ASCII one of them takes two cells."""
        if not self.is_ascii or all(text.isascii() for text, _, _ in line):
            return line
        texts = glyphs.bounds([text for text, _, _ in line])
        return [Segment(text, style) for text, (_, style, _) in zip(texts, line, strict=True)]

    def _has_no_tints(self, style: Style | None) -> bool:
        """Whether colors of a style do not all reach the terminal: it has few, or the row is in one on another."""
        if self.depth is not Depth.MANY:
            return True
        back = _meant(style.bgcolor) if self.theme.reverses and style else None
        return back is not None and back[0] == "select"

    def cells(self, style: Style | None, on: str = "ground", is_old: bool = False) -> Style:
        """Return a style as the terminal is to show it, on the ground of a role; faded where it is of what was."""
        return _cells(self, style or Style.null(), on, is_old)


_PLAIN_LOCALES = ("C", "POSIX")
"""Locales of ASCII alone. Python writes UTF-8 in them all the same, so its encoding does not tell."""


def of_terminal(env: Mapping[str, str], color_system: str | None, encoding: str) -> TerminalLook:
    """Return the look that a terminal can show; `color_system` is Rich's name of it, `encoding` of its letters."""
    term = env.get("TERM", "").lower()
    if env.get("NO_COLOR") or term.startswith(_COLORLESS):
        depth = Depth.NONE
    else:
        depth = Depth.SIXTEEN if color_system in ("standard", "windows", None) else Depth.MANY
    is_utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    is_ascii = not is_utf8 or _locale(env) in _PLAIN_LOCALES or term.startswith(_FEW_LETTERS)
    return TerminalLook(depth=depth, is_ascii=is_ascii)


def _locale(env: Mapping[str, str]) -> str:
    """The locale of letters that the user asked for; empty where none is named, as in a container."""
    return next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), "")


def _meant(color: Color | None) -> tuple[str, float] | None:
    return palette.meant(color.name) if color is not None else None


def _cells(look: TerminalLook, style: Style, on: str, is_old: bool) -> Style:
    ink = _meant(style.color) or (("text", 1.0) if style.color is None else None)
    back = _meant(style.bgcolor) or ((on, 1.0) if style.bgcolor is None else None)
    if ink is None or back is None:  # a color of somebody else's
        return style
    if look.depth is Depth.NONE:
        return _colorless(style, ink, back, is_old)
    if look.depth is Depth.SIXTEEN:
        return _of_sixteen(style, ink, back, is_old)
    if look.theme.reverses and back[0] == "select":
        ink, back = ("ground", 1.0), ("text", 1.0)
    name = look.theme.name
    bold = style.bold and not is_old
    return Style(color=_exact(name, *ink, is_old), bgcolor=_exact(name, *back, is_old), bold=bold or None)


def _exact(theme: str, role: str, share: float, is_old: bool) -> Color:
    found = themes.shade(theme, role, share, is_old)
    return Color(found.hex, ColorType.TRUECOLOR, triplet=found)


def _of_sixteen(style: Style, ink: tuple[str, float], back: tuple[str, float], is_old: bool) -> Style:
    color, ground = _numbered(*ink, _number(_GRAY)), _numbered(*back, _NO_COLOR)
    if is_old:
        return Style(color=_number(_GRAY), bgcolor=ground if back[0] in ("panel", "select") else _NO_COLOR)
    if ink[0] == "ground" and ink[1] >= 1.0 and back[0] not in ("ground", "panel"):  # a chip
        return Style(color=_number(0), bgcolor=ground, bold=style.bold)
    if style.bold and back[0] == ink[0]:  # a chip in a tint: gray would be hardly another one than the letters
        ground = _NO_COLOR
    if back[0] == "select" and color.number == _GRAY:
        color = _NO_COLOR
    return Style(color=color, bgcolor=ground, bold=style.bold or (ink[0] in _HEAVY) or None)


def _numbered(role: str, share: float, empty: Color) -> Color:
    number = palette.BY_NAME[role].ansi
    if share < _LEAST_SHARE:
        return empty if share < _SEEN_SHARE else _number(_GRAY)
    return _NO_COLOR if number is None else _number(number)


def _number(number: int) -> Color:
    return Color(str(number), ColorType.STANDARD, number=number)


def _colorless(style: Style, ink: tuple[str, float], back: tuple[str, float], is_old: bool) -> Style:
    """Return bold and reverse in the place of colors: what a color would tell, a glyph or a word tells too."""
    if is_old:
        return Style(dim=True)
    is_chip = back[0] == "select" or ink == ("ground", 1.0) or ink[0] == "crit"
    return Style(bold=style.bold or (ink[0] in _HEAVY) or None, reverse=is_chip or None)
