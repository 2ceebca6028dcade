"""Themes: a table of colors by role, one row per theme; roles a row does not list are inherited from its base theme."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.color_triplet import ColorTriplet

from gpumon_tui.palette import LINEAR, ROLES, mix, triplet

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
