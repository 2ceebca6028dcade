"""Appearance on this terminal: theme, number of colors, and available glyphs.

Pictures are drawn with color roles and in Unicode. They are converted for the terminal here, once per style, when lines
become cells, so that pages are drawn the same for every theme and terminal.
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
"""Minimum share of a role for its tint to be shown as that role in 16 colors; weaker tints are treated as empty."""
_SEEN_SHARE = 0.1
"""Minimum share for a background to be shown as gray in 16 colors; weaker ones are dropped."""
_GRAY = 8
_NO_COLOR = Color.default()
_HEAVY = frozenset(("strong", "warn", "crit"))
"""Roles shown in bold on terminals with few or no colors."""
_COLORLESS = ("vt", "ansi-m", "xterm-mono", "linux-m", "screen-m")
"""Name prefixes (TERM) of terminals without colors."""
_FEW_LETTERS = "linux"
"""TERM of the Linux console: its fonts have 256 or 512 glyphs, without braille and with hardly any blocks."""


class Depth(Enum):
    """Number of colors of a terminal."""

    MANY = "many"
    SIXTEEN = "16"
    NONE = "none"


class TerminalLook(NamedTuple):
    """Theme, number of colors, and glyph set: everything that decides how a picture becomes terminal cells."""

    theme: themes.Theme = themes.DARK
    depth: Depth = Depth.MANY
    is_ascii: bool = False

    @property
    def ground(self) -> str:
        """Background color in the syntax of a style sheet."""
        return self.theme.colors["ground"] if self.depth is Depth.MANY else "ansi_default"

    def key(self, shown: str) -> str:
        """Return the name of a key as displayed on this terminal."""
        return glyphs.spelled(shown) if self.is_ascii else shown

    def letters(self, text: str, style: Style | None) -> str:
        """Return the text with glyphs the terminal supports; without colors, glyphs replace what color would show."""
        if text.isascii() or not (self.is_ascii or self._has_no_tints(style)):
            return text
        role, share = _meant(style.color if style else None) or ("text", 1.0)
        return glyphs.plain(text, role, share) if self.is_ascii else glyphs.uncolored(text, role, share)

    def bounds(self, line: list[Segment]) -> list[Segment]:
        """Return a line with `≥` and similar signs adapted to the terminal: in ASCII they take two cells."""
        if not self.is_ascii or all(text.isascii() for text, _, _ in line):
            return line
        texts = glyphs.bounds([text for text, _, _ in line])
        return [Segment(text, style) for text, (_, style, _) in zip(texts, line, strict=True)]

    def _has_no_tints(self, style: Style | None) -> bool:
        """Whether the tints of a style are lost: the terminal has few colors, or the row is drawn in a single color."""
        if self.depth is not Depth.MANY:
            return True
        back = _meant(style.bgcolor) if self.theme.reverses and style else None
        return back is not None and back[0] == "select"

    def cells(self, style: Style | None, on: str = "ground", is_old: bool = False) -> Style:
        """Convert a style for the terminal, on the background of the role `on`; faded if `is_old`."""
        return _cells(self, style or Style.null(), on, is_old)


_PLAIN_LOCALES = ("C", "POSIX")
"""ASCII-only locales. Python still uses UTF-8 in them, so its encoding cannot be used to detect them."""


def of_terminal(env: Mapping[str, str], color_system: str | None, encoding: str) -> TerminalLook:
    """Return the appearance for a terminal; `color_system` is Rich's name, `encoding` the character encoding of the
    output.
    """
    term = env.get("TERM", "").lower()
    if env.get("NO_COLOR") or term.startswith(_COLORLESS):
        depth = Depth.NONE
    else:
        depth = Depth.SIXTEEN if color_system in ("standard", "windows", None) else Depth.MANY
    is_utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    is_ascii = not is_utf8 or _locale(env) in _PLAIN_LOCALES or term.startswith(_FEW_LETTERS)
    return TerminalLook(depth=depth, is_ascii=is_ascii)


def _locale(env: Mapping[str, str]) -> str:
    """Return the character locale of the environment; empty if none is set, as in many containers."""
    return next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), "")


def _meant(color: Color | None) -> tuple[str, float] | None:
    return palette.meant(color.name) if color is not None else None


def _cells(look: TerminalLook, style: Style, on: str, is_old: bool) -> Style:
    ink = _meant(style.color) or (("text", 1.0) if style.color is None else None)
    back = _meant(style.bgcolor) or ((on, 1.0) if style.bgcolor is None else None)
    if ink is None or back is None:  # a color from outside the palette
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
    if style.bold and back[0] == ink[0]:  # a chip in a tint: gray would be hard to distinguish from its letters
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
    """Return a style of bold and reverse in place of colors. Glyphs or words carry the same information."""
    if is_old:
        return Style(dim=True)
    is_chip = back[0] == "select" or ink == ("ground", 1.0) or ink[0] == "crit"
    return Style(bold=style.bold or (ink[0] in _HEAVY) or None, reverse=is_chip or None)
