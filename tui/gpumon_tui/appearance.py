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

from gpumon_tui import color_themes, glyphs, palette

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

    theme: color_themes.Theme = color_themes.DARK
    depth: ColorDepth = ColorDepth.MANY
    is_ascii: bool = False

    @property
    def ground(self) -> str:
        """Background color in the syntax of a style sheet."""
        return self.theme.colors["ground"] if self.depth is ColorDepth.MANY else "ansi_default"

    def key(self, name: str) -> str:
        """Return the name of a key as displayed on this terminal."""
        return glyphs.spell_keys(name) if self.is_ascii else name

    def letters(self, text: str, style: Style | None) -> str:
        """Return the text with glyphs the terminal supports; without colors, glyphs replace what color would show."""
        if text.isascii() or not (self.is_ascii or self._has_no_tints(style)):
            return text
        role, share = _role_of(style.color if style else None) or ("text", 1.0)
        return glyphs.to_ascii(text, role, share) if self.is_ascii else glyphs.without_color(text, role, share)

    def bounds(self, line: list[Segment]) -> list[Segment]:
        """Return a line with `≥` and similar signs adapted to the terminal: in ASCII they take two cells."""
        if not self.is_ascii or all(text.isascii() for text, _, _ in line):
            return line
        texts = glyphs.replace_bounds([text for text, _, _ in line])
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
    return palette.role_of(color.name) if color is not None else None


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
    rgb = color_themes.theme_color(theme, role, share, is_old)
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
    number = palette.BY_NAME[role].ansi
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
