"""What a screen shows, cell by cell: its letters, and the roles by which these are colored.

A screen is painted in the roles themselves, and from the same lines in each look. What a role is in a look is one
table for all screens: a golden screen need not be kept once per look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color, ColorType
from rich.style import Style
from textual.strip import Strip

from gpumon_tui import theme
from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import Appearance, ColorDepth
from gpumon_tui.theme import BY_NAME as THEMES

LOOKS: Mapping[str, Appearance] = {
    "dark": Appearance(),
    "light": Appearance(theme=THEMES["light"]),
    "16 colors": Appearance(depth=ColorDepth.SIXTEEN),
    "ASCII": Appearance(depth=ColorDepth.NONE, is_ascii=True),
}
OLD = "~"
"""Stands before the color of what is no longer so."""
BELOW = "below"
"""Of cells of a page on which a window lies."""


class RoleStyle(NamedTuple):
    """How a cell is colored: the role of its letter and that of its ground, each perhaps with a share."""

    ink: str
    back: str = "ground"
    bold: bool = False
    is_old: bool = False

    def __str__(self) -> str:
        ground = "" if self.back == "ground" else f"/{_short(self.back)}"
        return f"{OLD if self.is_old else ''}{_short(self.ink)}{'*' if self.bold else ''}{ground}"

    def seen(self, look: Appearance) -> Style:
        """Return what a terminal of a look shows of it."""
        style = Style(color=_color(self.ink), bgcolor=_color(self.back), bold=self.bold or None)
        return look.cells(style, is_old=self.is_old)


PLAIN = RoleStyle("text")


@lru_cache(maxsize=4096)
def parsed(text: str) -> RoleStyle | None:
    """Return the style that `str` wrote so; None of a color that has no role."""
    ink, _, back = text.removeprefix(OLD).partition("/")
    style = RoleStyle(_long(ink.removesuffix("*")), _long(back or "ground"), ink.endswith("*"), text.startswith(OLD))
    return style if theme.role_of(style.ink) and theme.role_of(style.back) else None


class Run(NamedTuple):
    """Letters of one style: None of a page below a window."""

    text: str
    style: RoleStyle | None


class GoldenScreen(NamedTuple):
    """Rows of runs, and the letters of each row in each look."""

    rows: list[list[Run]]
    letters: Mapping[str, list[str]]


class InRoles(Appearance):
    """A look in which the name of each color tells the roles of the cell."""

    __slots__ = ()

    def cells(self, style: Style | None, on: str = "ground", is_old: bool = False) -> Style:
        """Return the roles of a style."""
        style = style or Style.null()
        ink, back = (style.color.name if style.color else "text"), (style.bgcolor.name if style.bgcolor else on)
        told = str(RoleStyle(ink, back, bool(style.bold), is_old))
        return Style(color=Color(told, ColorType.TRUECOLOR, triplet=theme.triplet("#000000")))


def screen_of(app: GpumonApp) -> GoldenScreen:
    """Return what is on screen, and in each look; each is held against what the roles are in that look."""
    in_roles: dict[tuple[ColorDepth, bool], list[list[Run]]] = {}
    letters = {}
    for name, look in LOOKS.items():
        kind = look.depth, look.is_ascii
        if kind not in in_roles:
            in_roles[kind] = [_runs(row) for row in _painted(app, InRoles(look.theme, *kind))]
        rows, seen = in_roles[kind], _Seen(look)
        for number, (row, strip) in enumerate(zip(rows, _painted(app, look), strict=True)):
            _compare(f"{name}, row {number}", row, strip, seen)
        letters[name] = [text_of(row) for row in rows]
    app.set_appearance(Appearance())
    return GoldenScreen(next(iter(in_roles.values())), letters)


def _compare(where: str, row: list[Run], strip: Strip, seen: Mapping[RoleStyle, Style]) -> None:
    """Raise `AssertionError` where what is shown differs, but for what lies below a window."""
    expected = [(text, seen[style] if style else None) for text, style in row]
    found = [(text, style) for text, style, _ in strip]
    if found != expected:  # Textual joins what is of one style
        expected, found = ([(letter, style) for text, style in one for letter in text] for one in (expected, found))
        expected = [both if both[1] is not None else other for both, other in zip(expected, found, strict=True)]
    assert found == expected, where


def text_of(row: Iterable[Run]) -> str:
    """Return the letters of a row."""
    return "".join(run.text if run.style else " " * cell_len(run.text) for run in row).rstrip()


class _Seen(dict[RoleStyle, Style]):
    """Styles in a look, by the roles of a cell; each is worked out once."""

    def __init__(self, look: Appearance) -> None:
        super().__init__()
        self._look = look

    def __missing__(self, style: RoleStyle) -> Style:
        found = self[style] = style.seen(self._look)
        return found


def _painted(app: GpumonApp, look: Appearance) -> list[Strip]:
    """What is on screen in a look."""
    app.set_appearance(look)
    app.page.footer.show()  # some keys have other names in ASCII
    return app.screen._compositor.render_strips()


def _runs(strip: Strip) -> list[Run]:
    return [Run(text, parsed(style.color.name) if style and style.color else None) for text, style, _ in strip]


def written(row: Iterable[Run]) -> list[tuple[int, str]]:
    """Return how many cells have which style, from the left; what is empty has that of a neighbor on its ground."""
    joined: list[Run] = []
    for run in row:
        before = joined[-1] if joined else None
        if before and (_alike(before.style, run.style) if not before.text.strip() else before.style == run.style):
            joined[-1] = Run(before.text + run.text, run.style)
        elif before and not run.text.strip() and _alike(before.style, run.style):
            joined[-1] = Run(before.text + run.text, before.style)
        else:
            joined.append(run)
    if len(joined) == 1 and joined[0].style in (PLAIN, None):
        return []
    return [(cell_len(text), str(style or BELOW)) for text, style in joined]


def _alike(one: RoleStyle | None, other: RoleStyle | None) -> bool:
    """Whether letters alone tell the one from the other."""
    return one == other or (one is not None and other is not None and one.back == other.back)


def _color(name: str) -> Color:
    role, share = theme.role_of(name) or ("text", 1.0)
    return theme.color(role, share)


def _short(name: str) -> str:
    role, at, share = name.partition("@")
    return f"{role}{at}{share.removeprefix('0').rstrip('0')}"


def _long(name: str) -> str:
    role, at, share = name.partition("@")
    return f"{role}{at}{float(share):.3f}" if at else role
