"""Color roles, tints made of them, styles of the parts of the screen, and themes; no other module names a color.

Styles use roles. A role becomes a color only when a widget's lines are converted to terminal cells, so that a picture
can be reused after a change of theme. The name of each color here is its role.

High utilization is the goal of training, so it is never red. Yellow and red are reserved for conditions a person should
act on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.color import Color, ColorType
from rich.color_triplet import ColorTriplet
from rich.style import Style


class Role(NamedTuple):
    """A color by its meaning."""

    name: str
    dark: str
    light: str
    ansi: int | None
    """Number among the terminal's 16 colors; None uses the terminal's default color, which is readable on its
    background.
    """
    meaning: str


ROLES = (
    Role("ground", "#0d1017", "#fcfbf8", None, "the page"),
    Role("panel", "#151a25", "#f1efe9", None, "header, footer, pop-ups"),
    Role("select", "#1c2b44", "#dce8f8", 4, "the row or the page under the cursor"),
    Role("rule", "#252d3d", "#ddd9d0", 8, "hairlines between sections"),
    Role("track", "#1b2230", "#ebe8e1", 8, "the empty part of a bar"),
    Role("faint", "#727e98", "#6e6b63", 8, "headings of columns, axes, what may be overlooked"),
    Role("dim", "#8792aa", "#60646e", None, "units, labels, rows of other users"),
    Role("text", "#c9d1e1", "#2c313c", None, "words and numbers"),
    Role("strong", "#f5f7fc", "#090c12", None, "the value of now, names of sections"),
    Role("util", "#4fd6a4", "#08744f", 2, "work done; free; good"),
    Role("memory", "#6ea8fe", "#2a66cf", 12, "memory"),
    Role("power", "#e58fb8", "#b23b76", 13, "power and energy; validation; memory of others"),
    Role("temp", "#dfb287", "#985812", None, "temperature; checkpoint"),
    Role("run", "#b69cff", "#6b46d1", 13, "runs and epochs"),
    Role("key", "#6fcfe6", "#0a6b86", 14, "what can be pressed; focus; the chart's cursor"),
    Role("warn", "#f5c451", "#8a5b00", 11, "attention"),
    Role("crit", "#ff6e6e", "#c02525", 9, "hot, lost, died, out of memory"),
)
ROLE_BY_NAME = {role.name: role for role in ROLES}
LINEAR = 2.2
"""Gamma for mixing on a dark background: in linear light, equal shares look equal."""


@lru_cache(maxsize=1024)
def color(role: str, share: float = 1.0) -> Color:
    """Return the color of a role, or `share` (0..1) of it mixed with the background; both are encoded in the color's
    name.
    """
    role_color = ROLE_BY_NAME[role].dark
    if share >= 1.0:
        return Color(role, ColorType.TRUECOLOR, triplet=triplet(role_color))
    return Color(
        f"{role}@{share:.3f}", ColorType.TRUECOLOR, triplet=mix(ROLE_BY_NAME["ground"].dark, role_color, share)
    )


@lru_cache(maxsize=1024)
def role_of(name: str) -> tuple[str, float] | None:
    """Return the role and share encoded in a color name, or None if the color was not made by `color`."""
    role, _, share = name.partition("@")
    return (role, float(share or 1.0)) if role in ROLE_BY_NAME else None


@lru_cache(maxsize=1024)
def ink(role: str, ground: str = "", *, bold: bool = False) -> Style:
    """Return a text style in a role, on a background in the role `ground` if given."""
    return Style(color=color(role), bgcolor=color(ground) if ground else None, bold=bold or None)


@lru_cache(maxsize=1024)
def tint(role: str, share: float, ground: str = "", ground_share: float = 1.0) -> Style:
    """Return a text style in a tint of a role, on a tint of the role `ground` if given."""
    return Style(color=color(role, share), bgcolor=color(ground, ground_share) if ground else None)


def heat(value: float) -> Color:
    """Return the heat strip color for a value of 0..1; equal steps look equal."""
    return color("util", round(0.012 + 0.66 * min(1.0, max(0.0, value)) ** LINEAR, 3))


def mix(ground: str, color: str, share: float, gamma: float = LINEAR) -> ColorTriplet:
    """Return the color at `share` (0..1) of the way from `ground` to `color`."""
    pairs = zip(triplet(ground), triplet(color), strict=True)
    return ColorTriplet(
        *(
            round(255 * _between(component / 255, over_component / 255, share, gamma))
            for component, over_component in pairs
        )
    )


def _between(first: float, second: float, share: float, gamma: float) -> float:
    begin, end = first**gamma, second**gamma
    return float((begin + (end - begin) * share) ** (1 / gamma))


def triplet(text: str) -> ColorTriplet:
    """Parse `#rrggbb` into red, green and blue."""
    return ColorTriplet(*(int(text[i : i + 2], 16) for i in (1, 3, 5)))


MINT, BLUE, ROSE, SAND, CYAN = "util", "memory", "power", "temp", "key"
"""Color roles."""

PLAIN = ink("text")
STRONG = ink("strong", bold=True)
DIM = ink("dim")
FAINT = ink("faint")
TRACK = ink("track")
TITLE = ink("key", bold=True)
RULE = ink("rule")
RUN = ink("run")
KEY = ink("key", "panel", bold=True)
ON_BAR = Style(bgcolor=color("panel"))
BAR = ink("text", "panel")
BAR_STRONG = ink("strong", "panel", bold=True)
BAR_DIM = ink("dim", "panel")
PAGE = ink("strong", "select", bold=True)
"""Name of the current page."""
HEADING = ink("faint")
CURSOR = Style(bgcolor=color("select"))
LABEL = ink("ground", "warn", bold=True)
"""Label of numbers that do not come from live hardware."""
CHIP = ink("ground", "key", bold=True)
"""Label of recordings."""
RECORDED = ink("key", bold=True)
GOOD = ink("util")
WARN = ink("warn", bold=True)
CRITICAL = ink("crit", bold=True)

LEVELS = (PLAIN, WARN, CRITICAL)
"""Styles indexed by the result of `gpu_status.level`."""

FADED = tint("text", 0.4)


_LIGHT_POWER = 0.75
"""Exponent applied to shares on a light background, where weak tints are less visible than on a dark one."""
_OLD_GRAY, _OLD_FADE, _OLD_FADE_ON_LIGHT = 0.6, 0.5, 0.3
"""Fading of outdated values: share of color removed, and how far the rest moves to the background."""


class Theme(NamedTuple):
    """A theme that the user can choose."""

    name: str
    colors: Mapping[str, str]
    is_light: bool = False
    tint_factor: float = 1.0
    """Factor applied to the shares of tints."""
    reverses_selection: bool = False
    """Whether the selection is shown in reverse: background color on text color."""


_DARK = {role.name: role.dark for role in ROLES}
_LIGHT = {role.name: role.light for role in ROLES}


def _contrasting(colors: Mapping[str, str], ground: str, text: str, changed: Mapping[str, str]) -> Mapping[str, str]:
    return {**colors, **changed, "ground": ground, "text": text, "dim": text, "faint": text}


_FOR_COLOR_BLIND = {
    "util": ("#56b4e9", "#0a6aa6"),
    "memory": ("#9aa7ff", "#4b4fc4"),
    "power": ("#e9a3c9", "#a03070"),
    "warn": ("#f5dc51", "#836500"),
    "crit": ("#f0762a", "#861a00"),
    "run": ("#cc99cc", "#87408a"),
}
"""For dark and light backgrounds: adjacent colors never differ in red and green alone."""

THEMES = (
    Theme("dark", _DARK),
    Theme("light", _LIGHT, is_light=True),
    Theme(
        "high contrast",
        _contrasting(_DARK, "#000000", "#ffffff", {"strong": "#ffffff", "rule": "#5c6a86", "track": "#333d52"}),
        tint_factor=1.6, reverses_selection=True,
    ),
    Theme(
        "high contrast, light",
        _contrasting(_LIGHT, "#ffffff", "#000000", {"strong": "#000000", "rule": "#8a8780", "track": "#d5d1c8"}),
        is_light=True, tint_factor=1.6, reverses_selection=True,
    ),
    Theme("color-blind safe", {**_DARK, **{role: dark for role, (dark, _) in _FOR_COLOR_BLIND.items()}}),
    Theme(
        "color-blind safe, light", {**_LIGHT, **{role: light for role, (_, light) in _FOR_COLOR_BLIND.items()}},
        is_light=True,
    ),
)  # fmt: skip
BY_NAME = {theme.name: theme for theme in THEMES}
DARK = THEMES[0]


def next_theme(current: Theme) -> Theme:
    """Return the theme after the given one; the first follows the last."""
    return THEMES[(THEMES.index(current) + 1) % len(THEMES)]


@lru_cache(maxsize=2048)
def theme_color(name: str, role: str, share: float = 1.0, is_old: bool = False) -> ColorTriplet:
    """Return the color of a role in the named theme, or `share` of it mixed with the background; grayed if `is_old`."""
    theme = BY_NAME[name]
    ground, role_color = theme.colors["ground"], theme.colors[role]
    share = min(1.0, share * theme.tint_factor) if share < 1.0 else 1.0
    if share < 1.0:
        rgb = (
            mix(ground, role_color, share**_LIGHT_POWER, 1.0)
            if theme.is_light
            else mix(ground, role_color, share, LINEAR)
        )
    else:
        rgb = triplet(role_color)
    if not is_old or role in ("ground", "panel"):
        return rgb
    gray = "#" + f"{round(0.2126 * rgb.red + 0.7152 * rgb.green + 0.0722 * rgb.blue):02x}" * 3
    faded = mix(rgb.hex, gray, _OLD_GRAY, 1.0).hex
    return mix(ground, faded, 1.0 - _OLD_FADE_ON_LIGHT, 1.0) if theme.is_light else mix(ground, faded, 1.0 - _OLD_FADE)
